/* SPDX-License-Identifier: Apache-2.0 */
/* The binary interface between NCCL and a plugin, versions 8 to 12: the layout of the
 * tables that NCCL looks up (ncclNetPlugin_v8 ... and ncclCollNetPlugin_v8 ...), and the
 * numbers that go over it. Written from NCCL's interface, so that nothing of NCCL is
 * needed to build. The sizes are checked at the end.
 *
 * All functions return an enum nccl_result. A `request` of NULL means "not now, call
 * again". */
#ifndef RS_AGENT_NCCL_ABI_H
#define RS_AGENT_NCCL_ABI_H

#include <stddef.h>
#include <stdint.h>

enum {
	NCCL_HANDLE_BYTES = 128,  /* of a listen handle */
	NCCL_DEVICES_MAX_V11 = 4, /* devices of one virtual device, up to version 11 */
	NCCL_DEVICES_MAX = 8,     /* from version 12 */
	NCCL_PTR_HOST = 1,        /* memory of the host */
};

enum nccl_result {
	NCCL_SUCCESS = 0,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INTERNAL_ERROR = 3,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_REMOTE_ERROR = 6,
};

enum nccl_level { NCCL_WARN = 2, NCCL_INFO = 3 };

/* Subsystems of a log line, for NCCL_DEBUG_SUBSYS. */
enum { NCCL_LOG_INIT = 1, NCCL_LOG_NET = 16 };

/* NCCL's logger. Any thread. */
typedef void (*nccl_logger)(int level, unsigned long subsystems, const char *function, int line, const char *format,
			    ...) __attribute__((format(printf, 5, 6)));

/* The device is the host, and no code on the GPU takes part. */
enum { NCCL_DEVICE_HOST = 0, NCCL_DEVICE_VERSION = 0 };

struct nccl_virtual_device_v11 { /* also of versions 9 and 10 */
	int devices_n;
	int devices[NCCL_DEVICES_MAX_V11];
};

struct nccl_virtual_device {
	int devices_n;
	int devices[NCCL_DEVICES_MAX];
};

/* Properties of a device. */
struct nccl_properties_v8 {
	char *name;
	char *pci_path; /* in /sys; NULL: not known */
	uint64_t guid;
	int pointers;      /* NCCL_PTR_HOST */
	int reg_is_global; /* a registration does not belong to a connection */
	int speed;         /* Mbit/s */
	int port;
	float latency; /* us; 0: NCCL's default */
	int max_connections;
	int max_receives; /* buffers of one irecv */
	int device_type, device_version;
};

struct nccl_properties_v9 { /* also of version 10 */
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int reg_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int max_connections;
	int max_receives;
	int device_type, device_version;
	struct nccl_virtual_device_v11 parts;
	size_t max_p2p_bytes, max_collective_bytes;
};

struct nccl_properties_v11 {
	struct nccl_properties_v9 base;
	int max_multi_request;
};

struct nccl_properties_v12 {
	char *name;
	char *pci_path;
	uint64_t guid;
	int pointers;
	int reg_is_global;
	int force_flush;
	int speed;
	int port;
	float latency;
	int max_connections;
	int max_receives;
	int device_type, device_version;
	struct nccl_virtual_device parts;
	size_t max_p2p_bytes, max_collective_bytes;
	int max_multi_request;
	int16_t rail, plane; /* -1: not known */
};

/* Tables of the point-to-point network. Pointers to connections and requests are the
 * plugin's own. */
struct nccl_net_v8 {
	const char *name;
	int (*init)(nccl_logger log);
	int (*devices)(int *ret);
	int (*properties)(int device, struct nccl_properties_v8 *ret);
	int (*listen)(int device, void *handle, void **listening);
	int (*connect)(int device, void *handle, void **ret, void **device_handle);
	int (*accept)(void *listening, void **ret, void **device_handle);
	int (*register_memory)(void *connection, void *data, size_t bytes, int kind, void **ret);
	int (*register_dmabuf)(void *connection, void *data, size_t bytes, int kind, uint64_t at, int fd, void **ret);
	int (*deregister_memory)(void *connection, void *registered);
	int (*isend)(void *connection, void *data, int bytes, int tag, void *registered, void **request);
	int (*irecv)(void *connection, int n, void **data, int *bytes, int *tags, void **registered, void **request);
	int (*iflush)(void *connection, int n, void **data, int *bytes, void **registered, void **request);
	int (*test)(void *request, int *done, int *bytes);
	int (*close_send)(void *connection);
	int (*close_receive)(void *connection);
	int (*close_listen)(void *listening);
	int (*device_memory)(void *connection, void *registered, void **ret);
	int (*receive_consumed)(void *connection, int n, void *request);
};

struct nccl_net_v9 {
	const char *name;
	int (*init)(nccl_logger log);
	int (*devices)(int *ret);
	int (*properties)(int device, struct nccl_properties_v9 *ret);
	int (*listen)(int device, void *handle, void **listening);
	int (*connect)(int device, void *handle, void **ret, void **device_handle);
	int (*accept)(void *listening, void **ret, void **device_handle);
	int (*register_memory)(void *connection, void *data, size_t bytes, int kind, void **ret);
	int (*register_dmabuf)(void *connection, void *data, size_t bytes, int kind, uint64_t at, int fd, void **ret);
	int (*deregister_memory)(void *connection, void *registered);
	int (*isend)(void *connection, void *data, size_t bytes, int tag, void *registered, void **request);
	int (*irecv)(void *connection, int n, void **data, size_t *bytes, int *tags, void **registered, void **request);
	int (*iflush)(void *connection, int n, void **data, int *bytes, void **registered, void **request);
	int (*test)(void *request, int *done, int *bytes);
	int (*close_send)(void *connection);
	int (*close_receive)(void *connection);
	int (*close_listen)(void *listening);
	int (*device_memory)(void *connection, void *registered, void **ret);
	int (*receive_consumed)(void *connection, int n, void *request);
	int (*make_virtual)(int *ret, struct nccl_virtual_device_v11 *parts);
};

struct nccl_net_v10 {
	const char *name;
	int (*init)(nccl_logger log, void *profiler);
	int (*devices)(int *ret);
	int (*properties)(int device, struct nccl_properties_v9 *ret);
	int (*listen)(int device, void *handle, void **listening);
	int (*connect)(int device, void *settings, void *handle, void **ret, void **device_handle);
	int (*accept)(void *listening, void **ret, void **device_handle);
	int (*register_memory)(void *connection, void *data, size_t bytes, int kind, void **ret);
	int (*register_dmabuf)(void *connection, void *data, size_t bytes, int kind, uint64_t at, int fd, void **ret);
	int (*deregister_memory)(void *connection, void *registered);
	int (*isend)(void *connection, void *data, size_t bytes, int tag, void *registered, void *profiled,
		     void **request);
	int (*irecv)(void *connection, int n, void **data, size_t *bytes, int *tags, void **registered, void **profiled,
		     void **request);
	int (*iflush)(void *connection, int n, void **data, int *bytes, void **registered, void **request);
	int (*test)(void *request, int *done, int *bytes);
	int (*close_send)(void *connection);
	int (*close_receive)(void *connection);
	int (*close_listen)(void *listening);
	int (*device_memory)(void *connection, void *registered, void **ret);
	int (*receive_consumed)(void *connection, int n, void *request);
	int (*make_virtual)(int *ret, struct nccl_virtual_device_v11 *parts);
};

struct nccl_net_v11 {
	const char *name;
	int (*init)(void **context, uint64_t communicator, void *settings, nccl_logger log, void *profiler);
	int (*devices)(int *ret);
	int (*properties)(int device, struct nccl_properties_v11 *ret);
	int (*listen)(void *context, int device, void *handle, void **listening);
	int (*connect)(void *context, int device, void *handle, void **ret, void **device_handle);
	int (*accept)(void *listening, void **ret, void **device_handle);
	int (*register_memory)(void *connection, void *data, size_t bytes, int kind, void **ret);
	int (*register_dmabuf)(void *connection, void *data, size_t bytes, int kind, uint64_t at, int fd, void **ret);
	int (*deregister_memory)(void *connection, void *registered);
	int (*isend)(void *connection, void *data, size_t bytes, int tag, void *registered, void *profiled,
		     void **request);
	int (*irecv)(void *connection, int n, void **data, size_t *bytes, int *tags, void **registered, void **profiled,
		     void **request);
	int (*iflush)(void *connection, int n, void **data, int *bytes, void **registered, void **request);
	int (*test)(void *request, int *done, int *bytes);
	int (*close_send)(void *connection);
	int (*close_receive)(void *connection);
	int (*close_listen)(void *listening);
	int (*device_memory)(void *connection, void *registered, void **ret);
	int (*receive_consumed)(void *connection, int n, void *request);
	int (*make_virtual)(int *ret, struct nccl_virtual_device_v11 *parts);
	int (*finalize)(void *context);
	int (*set_attributes)(void *context, void *attributes);
};

struct nccl_net_v12 {
	const char *name;
	int (*init)(void **context, uint64_t communicator, void *settings, nccl_logger log, void *profiler);
	int (*devices)(int *ret);
	int (*properties)(int device, struct nccl_properties_v12 *ret);
	int (*listen)(void *context, int device, void *handle, void **listening);
	int (*connect)(void *context, int device, void *handle, void **ret, void **device_handle);
	int (*accept)(void *listening, void **ret, void **device_handle);
	int (*register_memory)(void *connection, void *data, size_t bytes, int kind, void **ret);
	int (*register_dmabuf)(void *connection, void *data, size_t bytes, int kind, uint64_t at, int fd, void **ret);
	int (*deregister_memory)(void *connection, void *registered);
	int (*isend)(void *connection, void *data, size_t bytes, int tag, void *registered, void *profiled,
		     void **request);
	int (*irecv)(void *connection, int n, void **data, size_t *bytes, int *tags, void **registered, void **profiled,
		     void **request);
	int (*iflush)(void *connection, int n, void **data, int *bytes, void **registered, void **request);
	int (*test)(void *request, int *done, int *bytes);
	int (*close_send)(void *connection);
	int (*close_receive)(void *connection);
	int (*close_listen)(void *listening);
	int (*device_memory)(void *connection, void *registered, void **ret);
	int (*receive_consumed)(void *connection, int n, void *request);
	int (*make_virtual)(int *ret, struct nccl_virtual_device *parts);
	int (*finalize)(void *context);
	int (*set_attributes)(void *context, void *attributes);
};

/* A part of a slice of a collective. NCCL always gives one. */
struct nccl_part_v8 {
	void *registered, *address;
	uint32_t bytes;
};

struct nccl_part {
	void *registered, *address;
	size_t bytes;
};

/* Tables of the collective network. */
struct nccl_coll_v8 {
	const char *name;
	int (*init)(nccl_logger log);
	int (*devices)(int *ret);
	int (*properties)(int device, struct nccl_properties_v8 *ret);
	int (*listen)(int device, void *handle, void **listening);
	int (*connect)(void *handles[], int ranks, int rank, void *listening, void **ret);
	int (*reduce_support)(int dtype, int op, int *ret);
	int (*register_memory)(void *coll, void *data, size_t bytes, int kind, void **ret);
	int (*register_dmabuf)(void *coll, void *data, size_t bytes, int kind, uint64_t at, int fd, void **ret);
	int (*deregister_memory)(void *coll, void *registered);
	int (*iallreduce)(void *coll, void *send, void *recv, int count, int dtype, int op, void *send_registered,
			  void *recv_registered, void **request);
	/* A slice of the buffer of the collective, which has part_bytes of each rank.
	 * NCCL calls these for CollNet Direct alone. */
	int (*iallgather)(void *coll, void *send, int n, struct nccl_part_v8 *recv, size_t part_bytes, size_t offset,
			  size_t bytes, void *send_registered, void **request);
	int (*ireducescatter)(void *coll, int n, struct nccl_part_v8 *send, void *recv, size_t part_bytes,
			      size_t offset, size_t bytes, int dtype, int op, void *recv_registered, void **request);
	int (*iflush)(void *coll, void *data, int bytes, void *registered, void **request);
	int (*test)(void *request, int *done, int *bytes);
	int (*close)(void *coll);
	int (*close_listen)(void *listening);
};

struct nccl_coll_v9 { /* also of version 10 */
	const char *name;
	int (*init)(nccl_logger log);
	int (*devices)(int *ret);
	int (*properties)(int device, struct nccl_properties_v9 *ret);
	int (*listen)(int device, void *handle, void **listening);
	int (*connect)(void *handles[], int ranks, int rank, void *listening, void **ret);
	int (*reduce_support)(int dtype, int op, int *ret);
	int (*register_memory)(void *coll, void *data, size_t bytes, int kind, void **ret);
	int (*register_dmabuf)(void *coll, void *data, size_t bytes, int kind, uint64_t at, int fd, void **ret);
	int (*deregister_memory)(void *coll, void *registered);
	int (*iallreduce)(void *coll, void *send, void *recv, size_t count, int dtype, int op, void *send_registered,
			  void *recv_registered, void **request);
	int (*iallgather)(void *coll, void *send, int n, struct nccl_part *recv, size_t part_bytes, size_t offset,
			  size_t bytes, void *send_registered, void **request);
	int (*ireducescatter)(void *coll, int n, struct nccl_part *send, void *recv, size_t part_bytes, size_t offset,
			      size_t bytes, int dtype, int op, void *recv_registered, void **request);
	int (*iflush)(void *coll, void *data, int bytes, void *registered, void **request);
	int (*test)(void *request, int *done, int *bytes);
	int (*close)(void *coll);
	int (*close_listen)(void *listening);
	int (*make_virtual)(int *ret, struct nccl_virtual_device_v11 *parts);
};

struct nccl_coll_v11 {
	const char *name;
	int (*init)(void **context, uint64_t communicator, nccl_logger log);
	int (*devices)(int *ret);
	int (*properties)(int device, struct nccl_properties_v11 *ret);
	int (*listen)(void *context, int device, void *handle, void **listening);
	int (*connect)(void *handles[], int ranks, int rank, void *listening, void **ret);
	int (*reduce_support)(int dtype, int op, int *ret);
	int (*register_memory)(void *coll, void *data, size_t bytes, int kind, void **ret);
	int (*register_dmabuf)(void *coll, void *data, size_t bytes, int kind, uint64_t at, int fd, void **ret);
	int (*deregister_memory)(void *coll, void *registered);
	int (*iallreduce)(void *coll, void *send, void *recv, size_t count, int dtype, int op, void *send_registered,
			  void *recv_registered, void **request);
	int (*iallgather)(void *coll, void *send, int n, struct nccl_part *recv, size_t part_bytes, size_t offset,
			  size_t bytes, void *send_registered, void **request);
	int (*ireducescatter)(void *coll, int n, struct nccl_part *send, void *recv, size_t part_bytes, size_t offset,
			      size_t bytes, int dtype, int op, void *recv_registered, void **request);
	int (*iflush)(void *coll, void *data, int bytes, void *registered, void **request);
	int (*test)(void *request, int *done, int *bytes);
	int (*close)(void *coll);
	int (*close_listen)(void *listening);
	int (*make_virtual)(int *ret, struct nccl_virtual_device_v11 *parts);
	int (*finalize)(void *context);
};

struct nccl_coll_v12 {
	const char *name;
	int (*init)(void **context, uint64_t communicator, nccl_logger log);
	int (*devices)(int *ret);
	int (*properties)(int device, struct nccl_properties_v12 *ret);
	int (*listen)(void *context, int device, void *handle, void **listening);
	int (*connect)(void *handles[], int ranks, int rank, void *listening, void **ret);
	int (*reduce_support)(int dtype, int op, int *ret);
	int (*register_memory)(void *coll, void *data, size_t bytes, int kind, void **ret);
	int (*register_dmabuf)(void *coll, void *data, size_t bytes, int kind, uint64_t at, int fd, void **ret);
	int (*deregister_memory)(void *coll, void *registered);
	int (*iallreduce)(void *coll, void *send, void *recv, size_t count, int dtype, int op, void *send_registered,
			  void *recv_registered, void **request);
	int (*iallgather)(void *coll, void *send, int n, struct nccl_part *recv, size_t part_bytes, size_t offset,
			  size_t bytes, void *send_registered, void **request);
	int (*ireducescatter)(void *coll, int n, struct nccl_part *send, void *recv, size_t part_bytes, size_t offset,
			      size_t bytes, int dtype, int op, void *recv_registered, void **request);
	int (*iflush)(void *coll, void *data, int bytes, void *registered, void **request);
	int (*test)(void *request, int *done, int *bytes);
	int (*close)(void *coll);
	int (*close_listen)(void *listening);
	int (*make_virtual)(int *ret, struct nccl_virtual_device *parts);
	int (*finalize)(void *context);
};

/* Collectives, algorithms and protocols of the cost table of a tuner. */
enum { NCCL_ALL_GATHER = 2, NCCL_REDUCE_SCATTER = 3, NCCL_ALL_REDUCE = 4 };
enum { NCCL_RING = 1, NCCL_COLLNET_DIRECT = 2, NCCL_COLLNET_CHAIN = 3, NCCL_SIMPLE = 2 };

/* Tables of a tuner. `costs` is a float[algorithms][protocols] in microseconds; negative:
 * not possible. */
struct nccl_tuner_v2 {
	const char *name;
	int (*init)(size_t ranks, size_t nodes, nccl_logger log, void **ret);
	/* Outputs that are not set are NCCL's choice. */
	int (*choose)(void *context, int collective, size_t bytes, int collnet, int nvls, int operations,
		      int *algorithm, int *protocol, int *channels);
	int (*destroy)(void *context);
};

struct nccl_tuner_v3 {
	const char *name;
	int (*init)(size_t ranks, size_t nodes, nccl_logger log, void **ret);
	int (*choose)(void *context, int collective, size_t bytes, int operations, float **costs, int algorithms,
		      int protocols, int *channels);
	int (*destroy)(void *context);
};

struct nccl_tuner_v4 {
	const char *name;
	int (*init)(size_t ranks, size_t nodes, nccl_logger log, void **ret);
	int (*choose)(void *context, int collective, size_t bytes, int operations, float **costs, int algorithms,
		      int protocols, int registered, int *channels);
	int (*destroy)(void *context);
};

/* Tables of an environment plugin. */
struct nccl_env_v1 {
	const char *name;
	int (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix);
	int (*finalize)(void);
	const char *(*get)(const char *name); /* valid until the next call with this name */
};

struct nccl_env_v2 {
	const char *name;
	int (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix, nccl_logger log);
	int (*finalize)(void);
	const char *(*get)(const char *name);
};

#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(struct nccl_properties_v8) == 64, "properties of version 8");
_Static_assert(sizeof(struct nccl_properties_v9) == 104, "properties of versions 9 and 10");
_Static_assert(sizeof(struct nccl_properties_v11) == 112, "properties of version 11");
_Static_assert(sizeof(struct nccl_properties_v12) == 128, "properties of version 12");
_Static_assert(sizeof(struct nccl_net_v8) == 152, "net table of version 8");
_Static_assert(sizeof(struct nccl_net_v9) == 160, "net table of version 9");
_Static_assert(sizeof(struct nccl_net_v10) == 160, "net table of version 10");
_Static_assert(sizeof(struct nccl_net_v11) == 176, "net table of version 11");
_Static_assert(sizeof(struct nccl_net_v12) == 176, "net table of version 12");
_Static_assert(sizeof(struct nccl_coll_v8) == 136, "CollNet table of version 8");
_Static_assert(sizeof(struct nccl_coll_v9) == 144, "CollNet table of versions 9 and 10");
_Static_assert(sizeof(struct nccl_coll_v11) == 152, "CollNet table of version 11");
_Static_assert(sizeof(struct nccl_tuner_v4) == 32, "tuner table of version 4");
_Static_assert(sizeof(struct nccl_coll_v12) == 152, "CollNet table of version 12");
_Static_assert(offsetof(struct nccl_coll_v11, test) == 14 * sizeof(void *), "members of CollNet tables");
_Static_assert(offsetof(struct nccl_net_v11, test) == 13 * sizeof(void *), "members of net tables");
#endif

#endif
