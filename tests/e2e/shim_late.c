/* SPDX-License-Identifier: Apache-2.0 */
/* A library to preload into a rank of MPI: it comes back late from the all-reduces by
 * which libreduction-mpi.so lets ranks agree. */
#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

#pragma GCC visibility push(default)

int PMPI_Allreduce(const void *send, void *recv, int count, uintptr_t type, uintptr_t op, uintptr_t comm);
int PMPI_Allreduce(const void *send, void *recv, int count, uintptr_t type, uintptr_t op, uintptr_t comm)
{
	int (*real)(const void *, void *, int, uintptr_t, uintptr_t, uintptr_t);
	int rc;

	*(void **)&real = dlsym(RTLD_NEXT, "PMPI_Allreduce");
	rc = real(send, recv, count, type, op, comm);
	nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
	return rc;
}
