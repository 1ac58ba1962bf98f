/* SPDX-License-Identifier: Apache-2.0 */
/* The part of MPItrampoline's interface, version 2.10, that this library implements.
 * jaxlib contains MPItrampoline: it opens the library that MPITRAMPOLINE_LIB names, and
 * looks up all names of interface.txt. A constant is read once, as int or as a handle,
 * and may have any value that differs from those of its kind. stubs.awk makes the other
 * functions. */
#ifndef RS_AGENT_JAX_ABI_H
#define RS_AGENT_JAX_ABI_H

#include <stdint.h>

#define JAX_EXPORT __attribute__((visibility("default")))

enum {
	JAX_SUCCESS = 0,
	JAX_ERROR = 1, /* of every function that fails; MPIABI_Error_string has the sentence */
	JAX_ERROR_TEXT = 1024,
	JAX_LIBRARY_TEXT = 8192,
};

typedef uintptr_t jax_handle; /* of a communicator, a type, an operation or a request */

/* MPItrampoline compares the major number with its own, and the minor one must not be
 * smaller than its own. */
extern const int mpiwrapper_version_major, mpiwrapper_version_minor, mpiwrapper_version_patch;
extern const int mpiabi_version_major, mpiabi_version_minor, mpiabi_version_patch;
void mpiwrapper_export_fortran_constants_(void);

extern const uint64_t MPIABI_COMM_WORLD, MPIABI_COMM_NULL, MPIABI_REQUEST_NULL, MPIABI_IN_PLACE, MPIABI_UNDEFINED,
    MPIABI_THREAD_MULTIPLE;
extern const uint64_t MPIABI_BYTE, MPIABI_CHAR, MPIABI_C_BOOL, MPIABI_INT8_T, MPIABI_UINT8_T, MPIABI_INT16_T,
    MPIABI_UINT16_T, MPIABI_INT, MPIABI_INT32_T, MPIABI_UINT32_T, MPIABI_INT64_T, MPIABI_UINT64_T, MPIABI_FLOAT,
    MPIABI_DOUBLE, MPIABI_C_COMPLEX, MPIABI_C_FLOAT_COMPLEX, MPIABI_C_DOUBLE_COMPLEX;
extern const uint64_t MPIABI_SUM, MPIABI_PROD, MPIABI_MIN, MPIABI_MAX, MPIABI_LAND, MPIABI_LOR;

int MPIABI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPIABI_Initialized(int *flag);
int MPIABI_Finalize(void);
int MPIABI_Finalized(int *flag);
int MPIABI_Is_thread_main(int *flag);
int MPIABI_Query_thread(int *provided);
int MPIABI_Get_version(int *version, int *subversion);
int MPIABI_Get_library_version(char *version, int *len);
int MPIABI_Error_string(int code, char *text, int *len);

int MPIABI_Comm_rank(jax_handle comm, int *rank);
int MPIABI_Comm_size(jax_handle comm, int *size);
int MPIABI_Comm_split(jax_handle comm, int color, int key, jax_handle *ret);
int MPIABI_Comm_free(jax_handle *comm);

int MPIABI_Allreduce(const void *send, void *recv, int count, jax_handle type, jax_handle op, jax_handle comm);
int MPIABI_Reduce_scatter(const void *send, void *recv, const int *counts, jax_handle type, jax_handle op,
			  jax_handle comm);
int MPIABI_Allgather(const void *send, int count, jax_handle type, void *recv, int recv_count, jax_handle recv_type,
		     jax_handle comm);
int MPIABI_Bcast(void *buf, int count, jax_handle type, int root, jax_handle comm);
int MPIABI_Barrier(jax_handle comm);

int MPIABI_Isend(const void *buf, int count, jax_handle type, int to, int tag, jax_handle comm, jax_handle *request);
int MPIABI_Irecv(void *buf, int count, jax_handle type, int from, int tag, jax_handle comm, jax_handle *request);
int MPIABI_Wait(jax_handle *request, void *status);
int MPIABI_Sendrecv(const void *send, int count, jax_handle type, int to, int tag, void *recv, int recv_count,
		    jax_handle recv_type, int from, int recv_tag, jax_handle comm, void *status);
int MPIABI_Alltoall(const void *send, int count, jax_handle type, void *recv, int recv_count, jax_handle recv_type,
		    jax_handle comm);

#endif
