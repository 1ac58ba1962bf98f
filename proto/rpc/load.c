/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: the module is beside libreduction.so, or in lib/ beside the bin/ of a
 * program. Failure modes: it was not built or not installed, gRPC's own libraries are
 * missing, or it has another version. */
#include "proto/rpc/rpc.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MODULE "libreduction-grpc.so"

/* Cuts off the name of the file; false if the path has no folder. */
static bool load_cut_name(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash)
		*slash = '\0';
	return slash;
}

/* Finds the library that contains this code, if it is in one. */
static bool load_beside_library(char *file, size_t size)
{
	char folder[PATH_MAX];
	Dl_info info;

	if (!dladdr((void *)(uintptr_t)rpc_load, &info) || !info.dli_fname)
		return false;
	snprintf(folder, sizeof folder, "%s", info.dli_fname);
	return load_cut_name(folder) && snprintf(file, size, "%s/" MODULE, folder) < (int)size;
}

static bool load_beside_program(char *file, size_t size)
{
	char folder[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);

	if (n <= 0)
		return false;
	folder[n] = '\0';
	return load_cut_name(folder) && snprintf(file, size, "%s/../lib/" MODULE, folder) < (int)size;
}

int rpc_load_file(const struct rpc_api **ret, const char *file, struct rs_err *e)
{
	/* RTLD_LOCAL: its libraries must not clash with other copies, so no symbol of it
	 * is visible outside */
	void *module = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	const struct rpc_api *(*get)(void);
	const struct rpc_api *api;

	if (!module)
		return rs_fail(e, RS_EUNSUPPORTED, "gRPC needs %s, which cannot be loaded: %s", file, dlerror());
	*(void **)&get = dlsym(module, "reduction_rpc");
	api = get ? get() : NULL;
	if (!api || api->version != RPC_VERSION) {
		rs_fail(e, RS_EUNSUPPORTED,
			"gRPC needs version %d of %s, found %u: it belongs to another version of this program",
			RPC_VERSION, file, api ? api->version : 0);
		dlclose(module);
		return RS_EUNSUPPORTED;
	}
	*ret = api; /* the module is never unloaded: gRPC's threads and their thread-local storage would not survive
		       that */
	return RS_OK;
}

int rpc_load(const struct rpc_api **ret, struct rs_err *e)
{
	char library[PATH_MAX + 64] = "", program[PATH_MAX + 64] = "";

	if (load_beside_library(library, sizeof library) && access(library, F_OK) == 0)
		return rpc_load_file(ret, library, e);
	if (load_beside_program(program, sizeof program) && access(program, F_OK) == 0)
		return rpc_load_file(ret, program, e);
	if (rpc_load_file(ret, MODULE, e) == RS_OK)
		return RS_OK;
	return rs_wrap(e, "there is neither %s nor %s", library, program);
}
