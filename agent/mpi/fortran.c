/* SPDX-License-Identifier: Apache-2.0 */
/* Open MPI's Fortran calls PMPI_ functions, so its own entry points are replaced too:
 * mpi_allreduce_ of mpif.h and `use mpi`, ompi_allreduce_f behind `use mpi_f08`. The
 * Fortran of other libraries calls the MPI_ functions: there mpi_allreduce_ passes on to
 * the library's function of that name. */
#include "agent/mpi/calls.h"
#include "agent/mpi/shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*allreduce_fn)(void *, void *, int *, int *, int *, int *, int *);
typedef void (*iallreduce_fn)(void *, void *, int *, int *, int *, int *, int *, int *);
typedef void (*bcast_fn)(void *, int *, int *, int *, int *, int *);

/* Stores the library's own function at `ret`, for the caller at this address. */
static void next(const char *name, const void *caller, void *ret)
{
	void *symbol = mpi_find_function(name, caller);

	if (!symbol) { /* Fortran programs are linked with the library that has it */
		fprintf(stderr, "reduction-mpi: the MPI of this program has no %s\n", name);
		abort();
	}
	memcpy(ret, &symbol, sizeof symbol);
}

static bool is_one_of(const void *const variables[2], const void *buffer)
{
	return buffer && (buffer == variables[0] || buffer == variables[1]);
}

static void *buffer_of(const struct shim *s, void *buffer)
{
	if (is_one_of(s->mpi.fortran_in_place, buffer))
		return (void *)(uintptr_t)s->mpi.in_place;
	return is_one_of(s->mpi.fortran_bottom, buffer) ? NULL : buffer;
}

void ompi_allreduce_f(void *send, void *recv, int *count, int *type, int *op, int *comm, int *error)
{
	const struct shim *s = shim_get(__builtin_return_address(0));
	const struct mpi_functions *call = &s->mpi.call;
	int rc = MPI_Allreduce(buffer_of(s, send), buffer_of(s, recv), *count, call->type_f2c(*type), call->op_f2c(*op),
			       call->comm_f2c(*comm));

	if (error)
		*error = rc;
}

void ompi_iallreduce_f(void *send, void *recv, int *count, int *type, int *op, int *comm, int *request, int *error)
{
	const struct shim *s = shim_get(__builtin_return_address(0));
	const struct mpi_functions *call = &s->mpi.call;
	mpi_handle started = 0;
	int rc = MPI_Iallreduce(buffer_of(s, send), buffer_of(s, recv), *count, call->type_f2c(*type),
				call->op_f2c(*op), call->comm_f2c(*comm), &started);

	if (!rc)
		*request = call->request_c2f(started);
	if (error)
		*error = rc;
}

void ompi_bcast_f(void *buffer, int *count, int *type, int *root, int *comm, int *error)
{
	const struct shim *s = shim_get(__builtin_return_address(0));
	const struct mpi_functions *call = &s->mpi.call;
	int rc = MPI_Bcast(buffer_of(s, buffer), *count, call->type_f2c(*type), *root, call->comm_f2c(*comm));

	if (error)
		*error = rc;
}

void mpi_allreduce_(void *send, void *recv, int *count, int *type, int *op, int *comm, int *error)
{
	allreduce_fn own;

	if (shim_get(__builtin_return_address(0))->mpi.interface == MPI_OPEN_MPI) {
		ompi_allreduce_f(send, recv, count, type, op, comm, error);
		return;
	}
	next("mpi_allreduce_", __builtin_return_address(0), &own);
	own(send, recv, count, type, op, comm, error);
}

void mpi_iallreduce_(void *send, void *recv, int *count, int *type, int *op, int *comm, int *request, int *error)
{
	iallreduce_fn own;

	if (shim_get(__builtin_return_address(0))->mpi.interface == MPI_OPEN_MPI) {
		ompi_iallreduce_f(send, recv, count, type, op, comm, request, error);
		return;
	}
	next("mpi_iallreduce_", __builtin_return_address(0), &own);
	own(send, recv, count, type, op, comm, request, error);
}

void mpi_bcast_(void *buffer, int *count, int *type, int *root, int *comm, int *error)
{
	bcast_fn own;

	if (shim_get(__builtin_return_address(0))->mpi.interface == MPI_OPEN_MPI) {
		ompi_bcast_f(buffer, count, type, root, comm, error);
		return;
	}
	next("mpi_bcast_", __builtin_return_address(0), &own);
	own(buffer, count, type, root, comm, error);
}
