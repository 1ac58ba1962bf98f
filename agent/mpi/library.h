/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI library of this process, found when the program calls MPI for the first time.
 * No header of an MPI is needed: one build serves every implementation. It knows three
 * binary interfaces: Open MPI's, that of MPICH and its relatives (Intel MPI, Cray MPICH,
 * MVAPICH), and the standard one of MPI 5 (libmpi_abi.so).
 *
 * Handles. They are pointers in Open MPI and in the standard interface, and ints in
 * MPICH's. Here all are mpi_handle, which is as wide as a register: as arguments of
 * functions, ints and pointers have the same places in the calling conventions of x86-64
 * and AArch64, but the upper half of an int's place is undefined. So handles that come
 * from the program go through mpi_handle_of(), and those that MPI has stored through
 * mpi_load(). */
#ifndef RS_AGENT_MPI_LIBRARY_H
#define RS_AGENT_MPI_LIBRARY_H

#include "agent/lib/include/reduction.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uintptr_t mpi_handle;

enum mpi_interface { MPI_OPEN_MPI, MPI_MPICH, MPI_STANDARD, MPI_INTERFACES };

enum { MPI_TYPES_MAX = 48, MPI_SUCCEEDED = 0, MPI_STATUS_ROOM = 64 };

/* A predefined type that reducers can sum. A complex number is two elements. */
struct mpi_type {
	mpi_handle handle;
	reduction_dtype dtype;
	unsigned char elements;
	unsigned char bytes; /* of the type */
	bool fortran;        /* a library may have another size */
};

/* The functions that are called here, with the names that have PMPI_ in front. Those from
 * allreduce_c on may be missing (NULL). */
struct mpi_functions {
	int (*allreduce)(const void *, void *, int, mpi_handle, mpi_handle, mpi_handle);
	int (*iallreduce)(const void *, void *, int, mpi_handle, mpi_handle, mpi_handle, void *);
	int (*bcast)(void *, int, mpi_handle, int, mpi_handle);
	int (*ibarrier)(mpi_handle, void *);
	int (*test)(void *, int *, void *);
	int (*exscan)(const void *, void *, int, mpi_handle, mpi_handle, mpi_handle);
	int (*abort)(mpi_handle, int);
	int (*initialized)(int *);
	int (*finalized)(int *);
	int (*query_thread)(int *);
	int (*comm_rank)(mpi_handle, int *);
	int (*comm_size)(mpi_handle, int *);
	int (*comm_test_inter)(mpi_handle, int *);
	int (*comm_split_type)(mpi_handle, int, int, mpi_handle, void *);
	int (*comm_free)(void *);
	int (*comm_create_keyval)(void *, void *, int *, void *);
	int (*comm_set_attr)(mpi_handle, int, void *);
	int (*comm_get_attr)(mpi_handle, int, void *, int *);
	int (*comm_call_errhandler)(mpi_handle, int);
	int (*type_size_x)(mpi_handle, int64_t *);
	int (*type_get_extent)(mpi_handle, intptr_t *, intptr_t *);
	int (*type_get_true_extent)(mpi_handle, intptr_t *, intptr_t *);
	int (*type_get_envelope)(mpi_handle, int *, int *, int *, int *);
	int (*pack)(const void *, int, mpi_handle, void *, int, int *, mpi_handle);
	int (*unpack)(const void *, int, int *, void *, int, mpi_handle, mpi_handle);
	int (*grequest_start)(void *, void *, void *, void *, void *);
	int (*grequest_complete)(mpi_handle);
	int (*status_set_elements)(void *, mpi_handle, int);
	int (*status_set_cancelled)(void *, int);
	int (*allreduce_c)(const void *, void *, int64_t, mpi_handle, mpi_handle, mpi_handle);
	int (*iallreduce_c)(const void *, void *, int64_t, mpi_handle, mpi_handle, mpi_handle, void *);
	int (*bcast_c)(void *, int64_t, mpi_handle, int, mpi_handle);
	int (*type_get_envelope_c)(mpi_handle, int64_t *, int64_t *, int64_t *, int64_t *, int *);
	/* of Open MPI's Fortran */
	mpi_handle (*type_f2c)(int);
	mpi_handle (*op_f2c)(int);
	mpi_handle (*comm_f2c)(int);
	int (*request_c2f)(mpi_handle);
};

/* Constant after mpi_find(). */
struct mpi {
	enum mpi_interface interface;
	mpi_handle comm_world, comm_self, info_null, byte, int32;
	mpi_handle sum, prod, min, max;
	const void *in_place;
	int thread_multiple, comm_type_shared, err_other, undefined;
	size_t status_source, status_tag; /* offsets in MPI_Status */
	struct mpi_type types[MPI_TYPES_MAX];
	unsigned types_n;
	struct mpi_functions call;
	/* Variables of Open MPI's Fortran, for all objects and for that of the caller,
	 * since each may have its own; NULL: none. */
	const void *fortran_in_place[2], *fortran_bottom[2];
};

/* Finds the library that the caller at this address would call without us. Returns 0, or
 * -1 with a sentence in `why`. */
int mpi_find(struct mpi *ret, const void *caller, char *why, size_t room);

/* Finds another function of the library that the caller at this address uses; NULL: there
 * is none. It is never a function of this library. */
void *mpi_find_function(const char *name, const void *caller);

/* Returns the handle that the program has passed as an argument. */
static inline mpi_handle mpi_handle_of(const struct mpi *m, mpi_handle argument)
{
	return m->interface == MPI_MPICH ? (uint32_t)argument : argument;
}

/* Returns the handle that is stored at this place. */
mpi_handle mpi_load(const struct mpi *m, const void *from);

/* Returns what the type is to reducers; NULL: they cannot sum it. */
const struct mpi_type *mpi_find_type(const struct mpi *m, mpi_handle type);

/* Returns whether the type is one of MPI's own, and not made by the program. */
bool mpi_is_named(const struct mpi *m, mpi_handle type);

/* Returns the bytes of `count` elements without gaps; -1: unknown. */
int64_t mpi_bytes(const struct mpi *m, int64_t count, mpi_handle type);

#endif
