/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libnccl.so.2 that the checks use, found at run time. All return 0 on
 * success. */
#ifndef RS_TESTS_GPU_NCCL_API_H
#define RS_TESTS_GPU_NCCL_API_H

#include <stdbool.h>
#include <stddef.h>

struct nccl_id {
	char bytes[128];
};

/* The functions; their names in the library begin with "nccl". */
struct nccl {
	char path[512]; /* of the file that was loaded */
	int (*GetVersion)(int *ret);
	int (*GetUniqueId)(struct nccl_id *ret);
	int (*CommInitRank)(void **ret, int ranks, struct nccl_id id, int rank);
	int (*CommDestroy)(void *comm);
	int (*CommAbort)(void *comm);
	int (*CommGetAsyncError)(void *comm, int *ret);
	int (*AllReduce)(const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream);
};

/* NCCL's numbers. */
enum { NCCL_IN_PROGRESS = 7 };

/* Opens $REDUCTION_NCCL if it is set, else libnccl.so.2, else that of Python's package
 * nvidia.nccl. False: `why` says what is missing. The library stays open. */
bool nccl_open(struct nccl *ret, char *why, size_t room);

#endif
