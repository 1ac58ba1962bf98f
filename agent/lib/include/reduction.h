/* SPDX-License-Identifier: Apache-2.0 */
/* libreduction: all-reduce through reducers.
 *
 *     reduction_options opt = REDUCTION_OPTIONS_INIT;   // rank and world size from torchrun, Slurm or mpirun
 *     reduction_error err;
 *     reduction_comm *comm;
 *     if (reduction_open(&comm, &opt, &err)) { fprintf(stderr, "%s\n", err.message); exit(1); }
 *     reduction_all_reduce(comm, x, x, n, REDUCTION_FLOAT32, REDUCTION_SUM, &err);
 *     reduction_close(comm, &err);
 *
 * Threads: any thread may use a communicator. Ranks are matched by the order in which
 * operations are started, so all ranks must start the same operations in the same order;
 * otherwise every rank gets an error that names the rank that differs. Threads that start
 * operations on one communicator must therefore agree on an order. One thread waits for a
 * request. Fork: in the child after fork() every call on a communicator or request
 * returns REDUCTION_EINVAL. Errors: every call returns 0 or a negative reduction_status
 * and, if `err` is not NULL, stores a sentence in err->message. An argument that must not
 * be NULL and is NULL is REDUCTION_EINVAL; the sentence names it. After an error other
 * than REDUCTION_EINVAL, or REDUCTION_ETIMEOUT of wait, the communicator is broken: every
 * further operation returns the same error until it is closed or reconfigured. */
#ifndef REDUCTION_H
#define REDUCTION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REDUCTION_VERSION_MAJOR 0
#define REDUCTION_VERSION_MINOR 1
#define REDUCTION_VERSION_PATCH 0

#if defined(__GNUC__)
#define REDUCTION_API __attribute__((visibility("default")))
#else
#define REDUCTION_API
#endif

typedef enum reduction_status {
	REDUCTION_OK = 0,
	REDUCTION_EINVAL = -1, /* an argument is invalid; nothing was started */
	REDUCTION_ENOMEM = -2,
	REDUCTION_EIO = -3,
	REDUCTION_EPROTO = -4,    /* the peer does not speak this protocol or this version of it */
	REDUCTION_EMISMATCH = -5, /* ranks disagree about an operation or a setting */
	REDUCTION_EPEER = -6, /* a rank, an agent or a reducer was lost, or did not do its part of an operation within
				 timeouts.op; the message names it */
	REDUCTION_ETIMEOUT = -7, /* open: not all ranks have met in time; wait: not done yet */
	REDUCTION_EREFUSED = -8, /* a reducer or an agent refused this process; the message says why */
	REDUCTION_ECLOSED = -9,  /* the communicator is closed, or another rank closed it */
	REDUCTION_ECONFIG = -10, /* the configuration file or the environment is wrong */
	REDUCTION_EUNSUPPORTED = -11,
	REDUCTION_EINTERNAL = -12,
	REDUCTION_ENONFINITE = -14, /* a rank sent NaN or infinity, and job.detect_nonfinite is `fail`; the message
				       names rank, operation and element */
	REDUCTION_EABORTED = -15    /* a rank, this one or another one, called reduction_abort(); the message names it
				       and its reason */
} reduction_status;

/* numbers as in NCCL */
typedef enum reduction_dtype {
	REDUCTION_INT8 = 0,
	REDUCTION_UINT8 = 1,
	REDUCTION_INT32 = 2,
	REDUCTION_UINT32 = 3,
	REDUCTION_INT64 = 4,
	REDUCTION_UINT64 = 5,
	REDUCTION_FLOAT16 = 6, /* summed in float32; the sum of a node and the total are rounded */
	REDUCTION_FLOAT32 = 7,
	REDUCTION_FLOAT64 = 8,
	REDUCTION_BFLOAT16 = 9 /* as float16 */
} reduction_dtype;

typedef enum reduction_op {
	REDUCTION_SUM = 0,
	REDUCTION_PROD = 1,
	REDUCTION_MAX = 2,
	REDUCTION_MIN = 3,
	REDUCTION_AVG = 4 /* the sum divided by the number of processes; integers truncate towards zero */
} reduction_op;

typedef struct reduction_error {
	int code;          /* reduction_status */
	char message[508]; /* one sentence */
} reduction_error;

typedef struct reduction_comm reduction_comm;
typedef struct reduction_request reduction_request;

/* How this process reaches the reducers. */
typedef enum reduction_mode {
	REDUCTION_MODE_DEFAULT = -1, /* not given: AGENT if agent_socket is given; else REDUCTION_MODE; else AUTO */
	REDUCTION_MODE_AUTO = 0,  /* AGENT if a socket is given (reduction_options.agent_socket or REDUCTION_AGENT), or
				     if an agent listens at agent.socket of the file; else NODE if some node has several
				     processes and the launcher says which node this is, or all processes are on one
				     node; else DIRECT */
	REDUCTION_MODE_AGENT = 1, /* through the reduction-agent of this node */
	REDUCTION_MODE_NODE = 2,  /* through the process of local rank 0, which serves its node */
	REDUCTION_MODE_DIRECT = 3 /* by itself */
} reduction_mode;

/* How to open a communicator. Initialize it with REDUCTION_OPTIONS_INIT. A member that
 * stays -1 or NULL is taken from the environment (first from the REDUCTION_ variable
 * named below, then from the launcher's), then from the configuration file, then it is
 * the default. */
typedef struct reduction_options {
	size_t struct_size;  /* set by REDUCTION_OPTIONS_INIT; lets later versions add fields */
	const char *config;  /* YAML file; REDUCTION_CONFIG, or REDUCTION_REDUCERS with addresses; default: one reducer
				on loopback */
	const char *job;     /* name of the job; REDUCTION_JOB; then job.name of the file; then made from `run`; without
				a run "default" */
	const char *run;     /* identity of this training: up to 127 printable characters, equal on all its ranks and
				different from that of every other training. Reducers and agents refuse a rank of another
				run, and opening fails if there is none and several ranks. REDUCTION_RUN; then from
				torchrun,     Slurm, Open MPI, ... */
	reduction_mode mode; /* REDUCTION_MODE (auto, agent, node or direct) */
	const char *agent_socket; /* path of the agent's socket; REDUCTION_AGENT; then agent.socket of the file. Invalid
				     together with the modes NODE and DIRECT */
	int rank; /* of this process; REDUCTION_RANK; RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, PMI_RANK; default 0 if
		     the world size is 1 */
	int world_size; /* processes of the job; REDUCTION_WORLD_SIZE; WORLD_SIZE, ...; default 1 without a launcher */
	int local_rank; /* on this node (not with DIRECT); REDUCTION_LOCAL_RANK; LOCAL_RANK, ... */
	int local_world_size;   /* processes of the job on this node (not with DIRECT); REDUCTION_LOCAL_WORLD_SIZE;
				   LOCAL_WORLD_SIZE, ... */
	int64_t generation;     /* number of the restart; REDUCTION_GENERATION; TORCHELASTIC_RESTART_COUNT; default 0 */
	int connect_timeout_ms; /* time until all ranks must have met; then timeouts.connect of the file */
	const char *group;      /* for a communicator of some of a job's ranks: 16 lower-case hexadecimal digits, equal
				   on the group's ranks and different from those of other groups. The name becomes
				   JOB@DIGITS; rank and world_size are those in the group. NULL: none */
	const char *wire;  /* instead of job.wire of the file, equal on all ranks: same, bf16, fp8, int8, fp16 or int4,
			      or as "up=fp8,down=bf16,rounding=stochastic"; REDUCTION_WIRE. Rounding and feedback are
			      those of the agent's file if there is an agent */
	int node_rank;     /* number of this node among those of the job (not with DIRECT); GROUP_RANK, ... of the
			      launcher; without it ranks are numbered node by node */
	int nodes;         /* of the job (not with DIRECT), given together with node_rank */
	int deterministic; /* 1 or 0, equal on all ranks, instead of job.deterministic of the file;
			      REDUCTION_DETERMINISTIC. An agent goes by its own file */
	int reserved;      /* leave it as REDUCTION_OPTIONS_INIT sets it */
} reduction_options;

#define REDUCTION_OPTIONS_INIT                                                                                         \
	{                                                                                                              \
		sizeof(reduction_options), NULL, NULL, NULL, REDUCTION_MODE_DEFAULT, NULL, -1, -1, -1, -1, -1, -1,     \
		    NULL, NULL, -1, -1, -1, -1                                                                         \
	}

/* Returns the version of the running library, for example "0.1.0", which may differ from
 * the header's. */
REDUCTION_API const char *reduction_version(void);

/* Returns the text for a reduction_status, in static storage. */
REDUCTION_API const char *reduction_status_text(int status);

/* Opens a communicator. Returns when all ranks of the job have met on all reducers, or
 * after the connect timeout with an error that names the missing ranks. The caller owns
 * *ret: reduction_close(). */
REDUCTION_API int reduction_open(reduction_comm **ret, const reduction_options *opt, reduction_error *err);

/* Leaves the job in good order and frees the communicator, also a broken one. Pending
 * operations fail with REDUCTION_ECLOSED, on all ranks; their requests must still be
 * waited for, before or after this call, and their buffers are neither read nor written
 * any more when it returns. If this process serves its node, the call waits until the
 * node's other ranks have closed, for at most timeouts.drain; after reduction_abort() it
 * does not. Errors: comm is NULL. */
REDUCTION_API int reduction_close(reduction_comm *comm, reduction_error *err);

/* Ends the job on all ranks, as ncclCommAbort() does. Pending and later operations of
 * this process fail with REDUCTION_EABORTED and a sentence that names this rank and the
 * reason. The other ranks get the same error when the news reaches them, within
 * milliseconds on a network that works. Requests must still be waited for; then the
 * caller closes the communicator. `reason` may be NULL; it is cut if the sentence is
 * longer than 507 bytes.
 *
 * Any thread may call it at any time between reduction_open() and reduction_close(), also
 * while other threads start operations or wait for them; not a signal handler. It waits
 * neither for them nor for the network. A pending operation fails at once, or, if a part
 * of its buffer is being sent to a reducer that does not read, or if the agent does not
 * answer, after at most a second. Its buffer is then neither read nor written any more. A
 * second call has no effect. If the communicator is broken already, the error that broke
 * it stays, and other ranks that do not have it get REDUCTION_EABORTED. A communicator
 * that is being opened cannot be aborted, since the caller does not have it yet:
 * reduction_options.connect_timeout_ms limits that time. Errors: comm is NULL. */
REDUCTION_API int reduction_abort(reduction_comm *comm, const char *reason, reduction_error *err);

/* Goes on in another generation of the job, with another rank and world size: for
 * programs whose workers come and go. Ends the generation that runs, on all ranks, as
 * reduction_abort() does: pending operations fail with REDUCTION_ECLOSED. Returns when
 * all ranks of the new generation have met on all reducers, or after the connect timeout
 * with an error that names the missing ranks. Connections to reducers, with TLS, and
 * buffers stay as they are; broken connections are made anew. All ranks of the new
 * generation must give the same world size, and each another rank; a new process joins
 * with reduction_open() and the same generation.
 *
 * May be called after any error of the communicator, at once. After an error the
 * communicator stays broken, and may be reconfigured to a still newer generation. Other
 * threads may start operations or wait for them meanwhile; those fail. Errors:
 * REDUCTION_EINVAL (nothing has happened): an argument is out of range, or the generation
 * is not newer; REDUCTION_EUNSUPPORTED: an agent serves this process; those of
 * reduction_open(). */
REDUCTION_API int reduction_reconfigure(reduction_comm *comm, int rank, int world_size, int64_t generation,
					reduction_error *err);

/* These three return -1 if comm is NULL. */
REDUCTION_API int reduction_rank(const reduction_comm *comm);
REDUCTION_API int reduction_world_size(const reduction_comm *comm);
/* Returns the number of priorities, at least 1: sharding.priorities of the file, or of
 * the agent's file if there is an agent. */
REDUCTION_API int reduction_priorities(const reduction_comm *comm);

/* Starts an all-reduce: recv[i] = op over all ranks of send[i], for i < count. send may
 * equal recv; any other overlap is invalid. Both buffers must stay valid, and send
 * unchanged, until the request is done. They may be NULL if count is 0; that synchronizes
 * the ranks. `name` (may be NULL) must be equal on all ranks and appears in messages. On
 * success *ret must be passed to reduction_wait().
 * Operations may complete in another order than they were started: an operation with a
 * higher priority overtakes others, see reduction_tensor.priority. Here the priority is
 * REDUCTION_PRIORITY_AUTO. */
REDUCTION_API int reduction_all_reduce_async(reduction_comm *comm, const void *send, void *recv, size_t count,
					     reduction_dtype dtype, reduction_op op, const char *name,
					     reduction_request **ret, reduction_error *err);

/* Starts a broadcast: copies buf of rank `root` to buf of every rank. */
REDUCTION_API int reduction_broadcast_async(reduction_comm *comm, void *buf, size_t count, reduction_dtype dtype,
					    int root, const char *name, reduction_request **ret, reduction_error *err);

/* Starts a reduce-scatter: each rank owns one of world_size parts of `count` elements,
 * part r is rank r's, and recv[i] = op over all ranks of send[rank * count + i], for i <
 * count. send has the elements of all parts. recv may be this rank's part of send; any
 * other overlap is invalid. The rest is as in reduction_all_reduce_async().
 * Errors: REDUCTION_EUNSUPPORTED, which does not break the communicator: see
 * reduction_can_shard(). */
REDUCTION_API int reduction_reduce_scatter_async(reduction_comm *comm, const void *send, void *recv, size_t count,
						 reduction_dtype dtype, reduction_op op, const char *name,
						 reduction_request **ret, reduction_error *err);

/* Starts an all-gather: each rank contributes `count` elements, and recv gets those of
 * all ranks, in the order of ranks. send may be this rank's part of recv. Without a
 * priority it has the highest one, so that it goes on beside a reduce-scatter: then both
 * directions of the network are busy. The rest is as above. */
REDUCTION_API int reduction_all_gather_async(reduction_comm *comm, const void *send, void *recv, size_t count,
					     reduction_dtype dtype, const char *name, reduction_request **ret,
					     reduction_error *err);

/* Returns 1 if this process can start reduce-scatters and all-gathers, 0 if not: a rank
 * or a reducer of the job has an older release, or agents serve nodes that have not
 * equally many ranks in their order. It may be 0 on some ranks until an operation is
 * done, if a reducer was lost or missing at the start: call reduction_barrier() before
 * you ask. From then on all ranks have 0, or none has. -1: comm is NULL. */
REDUCTION_API int reduction_can_shard(const reduction_comm *comm);

/* Waits for at most timeout_ms milliseconds (negative: no limit). REDUCTION_ETIMEOUT: not
 * done, the request stays valid. Any other return value: done, the request is freed. */
REDUCTION_API int reduction_wait(reduction_request *req, int timeout_ms, reduction_error *err);

/* Tests a request without waiting. Done: sets *done = 1, returns the request's result and
 * frees the request. Otherwise sets *done = 0 and returns 0. */
REDUCTION_API int reduction_test(reduction_request *req, int *done, reduction_error *err);

/* The same operations without a name; each call waits until its operation is done. */
REDUCTION_API int reduction_all_reduce(reduction_comm *comm, const void *send, void *recv, size_t count,
				       reduction_dtype dtype, reduction_op op, reduction_error *err);
REDUCTION_API int reduction_broadcast(reduction_comm *comm, void *buf, size_t count, reduction_dtype dtype, int root,
				      reduction_error *err);
REDUCTION_API int reduction_reduce_scatter(reduction_comm *comm, const void *send, void *recv, size_t count,
					   reduction_dtype dtype, reduction_op op, reduction_error *err);
REDUCTION_API int reduction_all_gather(reduction_comm *comm, const void *send, void *recv, size_t count,
				       reduction_dtype dtype, reduction_error *err);
REDUCTION_API int reduction_barrier(reduction_comm *comm, reduction_error *err);

/* The priority follows from the size: highest for an operation of at most 64 KiB, else
 * 0. */
#define REDUCTION_PRIORITY_AUTO (-1)

/* The memory is the process's own. */
#define REDUCTION_HOST (-1)

/* How elements are written on the network. Only sums and averages of floating types are
 * encoded, and only if that takes fewer bytes: all other tensors are sent as they are. */
typedef enum reduction_wire {
	REDUCTION_WIRE_JOB = 0, /* job.wire of the file (of the agent's file with an agent) or reduction_options.wire,
				   for operations of more than 64 KiB; smaller ones are sent as they are */
	REDUCTION_WIRE_SAME = 1,
	REDUCTION_WIRE_BF16 = 2, /* float32 as bfloat16 */
	REDUCTION_WIRE_FP8 = 3,  /* float32, float16 and bfloat16 in 8 bits: blocks of 128 with a scale, E4M3 */
	REDUCTION_WIRE_INT8 = 4, /* the same with integers from -127 to 127 */
	REDUCTION_WIRE_FP16 = 5, /* float32 as float16, in blocks of 128 with a scale */
	REDUCTION_WIRE_INT4 = 6  /* float32, float16 and bfloat16 in 4 bits: as INT8, from -7 to 7 */
} reduction_wire;

/* One tensor, with all settings of an operation on it. Initialize it with
 * REDUCTION_TENSOR_INIT. */
typedef struct reduction_tensor {
	size_t struct_size; /* set by REDUCTION_TENSOR_INIT; lets later versions add fields */
	const void *send;   /* of a broadcast: NULL, or equal to recv */
	void *recv;         /* of a broadcast: the buffer of every rank, also of the root */
	size_t count;
	reduction_dtype dtype;
	reduction_op op;  /* not used by a broadcast */
	const char *name; /* may be NULL */
	/* 0: least urgent. reduction_priorities() - 1, or any higher value: most urgent.
	 * Or REDUCTION_PRIORITY_AUTO. Chunks of an operation with a higher priority are
	 * sent before those of others, so it completes earlier and the others later. Must
	 * be equal on all ranks. */
	int priority;
	/* REDUCTION_HOST, or the number of the NVIDIA GPU, as CUDA counts in this
	 * process, whose memory send and recv are. Ranks may differ. The library copies
	 * pieces between the GPU and pinned host memory while others are on the network.
	 * Errors: REDUCTION_EUNSUPPORTED: there is no libcuda.so.1 or no GPU;
	 * REDUCTION_EINVAL: a buffer is not on this GPU, or it is too short. */
	int device;
	/* With a GPU: the CUstream (cudaStream_t) on which send and recv are used, NULL:
	 * the default stream. The GPU waits for the work that is queued on it when the
	 * call is made; the call itself does not. When the request is done, the result is
	 * in the GPU's memory. */
	void *stream;
	/* The encoding of contributions and results. Must be equal on all ranks. Not used
	 * by a broadcast. */
	reduction_wire wire;
} reduction_tensor;

#define REDUCTION_TENSOR_INIT                                                                                          \
	{                                                                                                              \
		sizeof(reduction_tensor), NULL, NULL, 0, REDUCTION_FLOAT32, REDUCTION_SUM, NULL,                       \
		    REDUCTION_PRIORITY_AUTO, REDUCTION_HOST, NULL, REDUCTION_WIRE_JOB                                  \
	}

/* The four operations above with all settings of a tensor: name and priority too.
 * `tensor` is not used after the call. */
REDUCTION_API int reduction_all_reduce_tensor_async(reduction_comm *comm, const reduction_tensor *tensor,
						    reduction_request **ret, reduction_error *err);
REDUCTION_API int reduction_broadcast_tensor_async(reduction_comm *comm, const reduction_tensor *tensor, int root,
						   reduction_request **ret, reduction_error *err);
REDUCTION_API int reduction_all_reduce_tensor(reduction_comm *comm, const reduction_tensor *tensor,
					      reduction_error *err);
REDUCTION_API int reduction_broadcast_tensor(reduction_comm *comm, const reduction_tensor *tensor, int root,
					     reduction_error *err);

/* The same for sharded operations; tensor->count is the number of elements of one part.
 * Memory of a GPU must be that of both buffers; ranks may differ. */
REDUCTION_API int reduction_reduce_scatter_tensor_async(reduction_comm *comm, const reduction_tensor *tensor,
							reduction_request **ret, reduction_error *err);
REDUCTION_API int reduction_all_gather_tensor_async(reduction_comm *comm, const reduction_tensor *tensor,
						    reduction_request **ret, reduction_error *err);

/* Starts the all-reduces of n tensors as a group. Small tensors (at most 32 KiB) of the
 * same dtype and op share operations and chunks: 200 tensors of 1 KiB cost about as much
 * as one of 200 KiB. They are copied in and out; larger tensors are separate operations
 * without a copy. All ranks must pass the same dtypes, ops, counts, names and priorities
 * in the same order. Tensors that share an operation have the highest priority that was
 * given to one of them. The results are those of separate operations, except for the
 * order of additions unless job.deterministic fixes it. The group has one place in the
 * order of operations, and no part of it waits for a later call.
 *
 * On success ret[0..n) are n requests, one for each tensor, to be passed to
 * reduction_wait(); tensors that share an operation are done together. `tensors` is not
 * used after the call. The buffers are as in reduction_all_reduce_async(), and those of
 * two tensors must not overlap. `tensors` and `ret` may be NULL if n is 0. The call may
 * wait while job.max_ops operations, or 4 MiB of operations of small tensors, are in
 * flight. An error means that nothing was started; later errors are returned for the
 * requests. */
REDUCTION_API int reduction_all_reduce_group_async(reduction_comm *comm, const reduction_tensor *tensors, size_t n,
						   reduction_request **ret, reduction_error *err);

/* The same; waits until all are done. */
REDUCTION_API int reduction_all_reduce_group(reduction_comm *comm, const reduction_tensor *tensors, size_t n,
					     reduction_error *err);

/* Allocates zeroed memory for buffers, at least 64-byte aligned. With an agent it is
 * shared memory, so operations on it are not copied between the processes; all other
 * memory works too. Free it with reduction_buffer_free() before the communicator is
 * closed, and not while an operation on it is pending. Memory that is not freed by then
 * stays readable and writable; reduction_buffer_unmap() frees it, with the same number of
 * bytes. Both have no effect if an argument is NULL. */
REDUCTION_API int reduction_buffer_alloc(reduction_comm *comm, size_t bytes, void **ret, reduction_error *err);
REDUCTION_API void reduction_buffer_free(reduction_comm *comm, void *buf);
REDUCTION_API void reduction_buffer_unmap(void *buf, size_t bytes);

/* Counters since open. Initialize it with REDUCTION_STATS_INIT. */
typedef struct reduction_stats {
	size_t struct_size; /* set by REDUCTION_STATS_INIT; lets later versions add fields */
	/* Bytes on the network, including headers: of this process (direct), or of its
	 * node's agent for this job. */
	uint64_t tx_bytes, rx_bytes;
	uint64_t ops_done; /* operations; tensors of a group that share one count once */
} reduction_stats;

#define REDUCTION_STATS_INIT                                                                                           \
	{                                                                                                              \
		sizeof(reduction_stats), 0, 0, 0                                                                       \
	}

/* Stores the counters in *ret, as far as its struct_size says. Any thread. */
REDUCTION_API int reduction_get_stats(reduction_comm *comm, reduction_stats *ret, reduction_error *err);

#ifdef __cplusplus
}
#endif
#endif
