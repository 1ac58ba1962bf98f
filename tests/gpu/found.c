/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/found.h"
#include "tests/gpu/cuda.h"
#include "tests/gpu/links.h"
#include "tests/gpu/nccl_api.h"
#include "tests/gpu/proc.h"
#include "tests/gpu/row.h"

#include <gnu/libc-version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static void found_machine(void)
{
	struct utsname u;
	char asked[64], path[512];

	uname(&u);
	proc_bundle(path, sizeof path, "GLIBC");
	proc_read(asked, sizeof asked, path);
	asked[strcspn(asked, "\n")] = '\0';
	row("machine", "system", "info", "%s %s %s, %ld cores, C library %s%s%s", u.sysname, u.release, u.machine,
	    sysconf(_SC_NPROCESSORS_ONLN), gnu_get_libc_version(), *asked ? ", the bundle needs " : "", asked);
}

static void found_gpus(struct found *f)
{
	struct cuda c;
	char why[512], name[128];
	int version = 0;

	if (!cuda_open(&c, why, sizeof why)) {
		row("machine", "driver", "skip", "%s", why);
		return;
	}
	c.DriverGetVersion(&version);
	c.DeviceGetCount(&f->gpus);
	row("machine", "driver", f->gpus > 0 ? "ok" : "skip", "libcuda.so.1 for CUDA %d.%d, %d GPUs", version / 1000,
	    version % 1000 / 10, f->gpus);
	for (int i = 0; i < f->gpus; i++) {
		c.DeviceGetName(name, sizeof name, i);
		row("machine", "gpu", "ok", "%d: %s", i, name);
	}
}

static void found_nccl(struct found *f)
{
	struct nccl n;
	char why[1024];

	if (!nccl_open(&n, why, sizeof why)) {
		row("machine", "nccl", "skip", "%s", why);
		return;
	}
	n.GetVersion(&f->nccl_version);
	snprintf(f->nccl, sizeof f->nccl, "%s", n.path);
	row("machine", "nccl", "ok", "version %d.%d.%d, %s", f->nccl_version / 10000, f->nccl_version / 100 % 100,
	    f->nccl_version % 100, f->nccl);
}

static void found_links(struct found *f)
{
	struct links l;
	char why[320];

	f->links = links_start(&l, 2, 1000, why, sizeof why);
	if (!f->links) {
		row("machine", "links", "skip", "%s", why);
		return;
	}
	links_stop(&l);
	row("machine", "links", "ok", "network namespaces, veth, bridge and shaping (tbf) work");
}

static void found_python(void)
{
	static const char code[] =
	    "import sys\ntry:\n import torch\n t = 'torch ' + torch.__version__\nexcept ImportError:\n"
	    " t = 'no torch'\nprint(sys.executable, sys.version.split()[0] + ',', t)";
	char line[256] = "", path[64] = "/tmp/check-gpu-XXXXXX";
	struct proc_start p = {.argv = {"python3", "-c", code, NULL}, .out = path};
	int fd = mkstemp(path), status;

	if (fd < 0)
		return;
	close(fd);
	status = proc_run(&p, 60);
	proc_read(line, sizeof line, path);
	unlink(path);
	line[strcspn(line, "\n")] = '\0';
	row("machine", "python", status ? "skip" : "ok", "%s",
	    status ? "python3 was not found or does not work" : line);
}

void found_print(struct found *f)
{
	*f = (struct found){.gpus = 0};
	found_machine();
	found_gpus(f);
	found_nccl(f);
	found_links(f);
	found_python();
}
