/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/nccl_api.h"
#include "tests/gpu/proc.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Asks Python where its package has the library. */
static void nccl_of_python(char *to, size_t room)
{
	static const char code[] =
	    "import importlib.util as u\n"
	    "print(u.find_spec('nvidia.nccl').submodule_search_locations[0] + '/lib/libnccl.so.2')";
	char path[64] = "/tmp/check-gpu-XXXXXX";
	struct proc_start p = {.argv = {"python3", "-c", code, NULL}, .out = path};
	int fd = mkstemp(path), status;

	to[0] = '\0';
	if (fd < 0)
		return;
	close(fd);
	status = proc_run(&p, 30);
	if (status == 0)
		proc_read(to, room, path);
	to[strcspn(to, "\n")] = '\0';
	unlink(path);
}

static void *nccl_load(char *why, size_t room)
{
	const char *named = getenv("REDUCTION_NCCL");
	char of_python[512];
	void *library = dlopen(named ? named : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

	if (library)
		return library;
	snprintf(why, room, "%s", dlerror());
	if (named)
		return NULL;
	nccl_of_python(of_python, sizeof of_python);
	if (!of_python[0])
		return NULL;
	library = dlopen(of_python, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		snprintf(why, room, "%s", dlerror());
	return library;
}

bool nccl_open(struct nccl *ret, char *why, size_t room)
{
	static const struct {
		const char *name;
		size_t at;
	} wanted[] = {
	    {"ncclGetVersion", offsetof(struct nccl, GetVersion)},
	    {"ncclGetUniqueId", offsetof(struct nccl, GetUniqueId)},
	    {"ncclCommInitRank", offsetof(struct nccl, CommInitRank)},
	    {"ncclCommDestroy", offsetof(struct nccl, CommDestroy)},
	    {"ncclCommAbort", offsetof(struct nccl, CommAbort)},
	    {"ncclCommGetAsyncError", offsetof(struct nccl, CommGetAsyncError)},
	    {"ncclAllReduce", offsetof(struct nccl, AllReduce)},
	};
	void *library = nccl_load(why, room);
	struct link_map *map;

	if (!library)
		return false;
	for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		void *found = dlsym(library, wanted[i].name);

		if (!found) {
			snprintf(why, room, "libnccl.so.2 has no %s", wanted[i].name);
			return false;
		}
		memcpy((char *)ret + wanted[i].at, &found, sizeof found);
	}
	ret->path[0] = '\0';
	if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
		snprintf(ret->path, sizeof ret->path, "%s", map->l_name);
	return true;
}
