/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that replace MPI's, with arguments as in library.h. */
#ifndef RS_AGENT_MPI_CALLS_H
#define RS_AGENT_MPI_CALLS_H

#include "agent/mpi/library.h"

#define MPI_EXPORT __attribute__((visibility("default")))

MPI_EXPORT int MPI_Allreduce(const void *send, void *recv, int count, mpi_handle type, mpi_handle op, mpi_handle comm);
MPI_EXPORT int MPI_Allreduce_c(const void *send, void *recv, int64_t count, mpi_handle type, mpi_handle op,
			       mpi_handle comm);
MPI_EXPORT int MPI_Iallreduce(const void *send, void *recv, int count, mpi_handle type, mpi_handle op, mpi_handle comm,
			      void *request);
MPI_EXPORT int MPI_Iallreduce_c(const void *send, void *recv, int64_t count, mpi_handle type, mpi_handle op,
				mpi_handle comm, void *request);
MPI_EXPORT int MPI_Bcast(void *buffer, int count, mpi_handle type, int root, mpi_handle comm);
MPI_EXPORT int MPI_Bcast_c(void *buffer, int64_t count, mpi_handle type, int root, mpi_handle comm);

/* of Fortran: every argument is an address */
MPI_EXPORT void mpi_allreduce_(void *send, void *recv, int *count, int *type, int *op, int *comm, int *error);
MPI_EXPORT void mpi_iallreduce_(void *send, void *recv, int *count, int *type, int *op, int *comm, int *request,
				int *error);
MPI_EXPORT void mpi_bcast_(void *buffer, int *count, int *type, int *root, int *comm, int *error);
MPI_EXPORT void ompi_allreduce_f(void *send, void *recv, int *count, int *type, int *op, int *comm, int *error);
MPI_EXPORT void ompi_iallreduce_f(void *send, void *recv, int *count, int *type, int *op, int *comm, int *request,
				  int *error);
MPI_EXPORT void ompi_bcast_f(void *buffer, int *count, int *type, int *root, int *comm, int *error);

#endif
