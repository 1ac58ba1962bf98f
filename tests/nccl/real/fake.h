/* SPDX-License-Identifier: Apache-2.0 */
/* A process in which an unmodified libnccl runs without a GPU or driver: a CUDA runtime
 * and driver over host memory, and kernels that threads of the process run. README.md
 * says how it works. */
#ifndef RS_TESTS_NCCL_REAL_FAKE_H
#define RS_TESTS_NCCL_REAL_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CUDA_SUCCESS = 0, CUDA_ERROR = 1, CUDA_UNSUPPORTED = 801 };

typedef void (*function)(void);

/* runtime.c: the function of this name; NULL: it is not implemented. */
function runtime_find(const char *name);
function driver_find(const char *name);
/* What stands in for functions that are not implemented: returns CUDA_UNSUPPORTED. */
int unsupported(void);

/* Memory of the "device". NULL: there is none. Any thread. */
void *device_allocate(size_t bytes);

/* patch.c: redirects the CUDA runtime that is linked into the library at `path`, which is
 * loaded at `base`, to runtime_find. Returns how many functions were found; the process
 * ends if the file cannot be read. */
int patch_runtime(const char *path, char *base);

/* layout.c: where NCCL's kernels find their arguments, in bytes; read from a file of
 * "NAME VALUE" lines that layout.py wrote. -1: this version has no such member. */
enum layout {
	ARGS_SIZE, /* of ncclDevKernelArgs; -1: NCCL before 2.22, whose kernels have other arguments */
	ARGS_MASK,
	ARGS_STORAGE,
	ARGS_WORK_MASK,
	ARGS_WORK,
	COMM_RANKS,
	COMM_ABORT,
	COMM_BUFFER_SIZES,
	COMM_CHANNELS,
	CHANNEL_SIZE,
	CHANNEL_PEERS,
	CHANNEL_CHAIN,
	CHANNEL_FIFO_DONE,
	TREE_UP,
	TREE_DOWN,
	PEER_SEND,
	PEER_RECV,
	CONN_SIZE,
	CONN_BUFFERS,
	CONN_TAIL,
	CONN_HEAD,
	CONN_STEP_SIZE,
	CONN_FIFO,
	CONN_STEP,
	FIFO_SIZE,
	FIFO_MODE,
	FIFO_OFFSET,
	FIFO_BYTES,
	WORK_SIZE,
	WORK_SEND,
	WORK_RECV,
	WORK_COUNT,
	WORK_COUNT_SIZE,
	WORK_CHUNK,
	BATCH_SIZE,
	BATCH_BASE,
	BATCH_SET,
	ELEM_SIZE, /* of ncclWorkElem, before 2.22 */
	ELEM_SEND,
	ELEM_RECV,
	ELEM_COUNT,
	LAYOUT_NR
};
extern long layout[LAYOUT_NR];
void layout_read(const char *path);

/* kernel.c: what the next kernel does. NCCL says it by its choice of a kernel, which is
 * code of a GPU. */
enum kernel_kind { KERNEL_CHAIN, KERNEL_GATHER, KERNEL_SCATTER, KERNEL_NONE };
enum kernel_type { KERNEL_INT32, KERNEL_FLOAT16, KERNEL_FLOAT32, KERNEL_BFLOAT16 };
enum kernel_op { KERNEL_SUM, KERNEL_PROD, KERNEL_MAX, KERNEL_MIN, KERNEL_AVERAGE }; /* NCCL's numbers */
struct kernel {
	enum kernel_kind kind;
	enum kernel_type type;
	enum kernel_op op;
	int rank, ranks;
};
extern struct kernel kernel_next;

/* A kernel was launched with these arguments. It runs on threads of its own. */
void kernel_launch(void **args);
/* Returns how many blocks of kernels have not ended. */
int kernels_running(void);

/* element.c: values of one element, as the GPU has them. */
size_t element_size(enum kernel_type type);
double element_get(enum kernel_type type, const void *at);
void element_put(enum kernel_type type, void *at, double value);
/* into[i] = into[i] op from[i] */
void element_reduce(const struct kernel *k, void *into, const void *from, size_t n);
/* at[i] *= factor, rounded */
void element_scale(enum kernel_type type, void *at, size_t n, double factor);

/* Ends the process with a sentence. */
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
