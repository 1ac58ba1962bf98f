/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that NCCL looks up, versions 8 to 12: the core's functions with the
 * arguments of each version. NCCL takes the newest table that it knows. A release that
 * knows a newer version makes wrappers for the functions that are NULL here, and then
 * calls them. So each new version is added as soon as NCCL has one, and `make
 * nccl-versions` runs NCCL's own code with it. */
#include "agent/nccl/coll.h"
#include "agent/nccl/net.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* The plugin of this process: the functions of versions 8 to 10 get no context that could
 * hold it. */
static struct plugin the_plugin = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Returns NCCL's version, for example 226 for 2.26.2, from the library that has the
 * logger; 0: it is linked statically.
 */
static int version_of(nccl_logger log)
{
	int (*get)(int *ret) = NULL;
	int version = 0;
	void *address, *library = NULL, *symbol;
	Dl_info at;

	memcpy(&address, &log, sizeof address);
	if (dladdr(address, &at))
		library = dlopen(at.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (!library)
		return 0;
	symbol = dlsym(library, "ncclGetVersion");
	memcpy(&get, &symbol, sizeof get);
	if (!get || get(&version))
		version = 0;
	dlclose(library);
	return version / 100;
}

/* Also of version 9. NCCL 2.20 to 2.26 read this variable after they have loaded the
 * plugin, so that no user has to set it; later ones before. */
static int init_v8(nccl_logger log)
{
	int version = version_of(log);

	the_plugin.ends_at_once = version >= 223 && version <= 225;
	setenv("NCCL_COLLNET_ENABLE", "1", 0);
	return plugin_init(&the_plugin, log);
}

static int coll_init_v10(nccl_logger log)
{
	return version_of(log) == 226 ? init_v8(log) : plugin_init(&the_plugin, log);
}

static int net_init_v10(nccl_logger log, void *profiler)
{
	(void)profiler;
	return coll_init_v10(log);
}

static int net_init_v11(void **context, uint64_t communicator, void *settings, nccl_logger log, void *profiler)
{
	(void)communicator, (void)settings, (void)profiler;
	*context = &the_plugin;
	return plugin_init(&the_plugin, log);
}

static int coll_init_v11(void **context, uint64_t communicator, nccl_logger log)
{
	(void)communicator;
	*context = &the_plugin;
	return plugin_init(&the_plugin, log);
}

static int finalize_v11(void *context)
{
	(void)context;
	return NCCL_SUCCESS;
}

static int devices(int *ret)
{
	*ret = 1;
	return NCCL_SUCCESS;
}

static int properties_v9(int device, struct nccl_properties_v9 *ret)
{
	struct device *d = &the_plugin.device;

	*ret = (struct nccl_properties_v9){
	    .name = d->interface,
	    .pci_path = d->pci[0] ? d->pci : NULL,
	    .guid = d->id,
	    .pointers = NCCL_PTR_HOST,
	    .speed = d->speed,
	    .max_connections = PLUGIN_CONNECTIONS_MAX,
	    .max_receives = 1,
	    .device_type = NCCL_DEVICE_HOST,
	    .device_version = NCCL_DEVICE_VERSION,
	    .parts = {.devices_n = 1, .devices = {device}},
	    .max_p2p_bytes = PLUGIN_BYTES_MAX,
	    .max_collective_bytes = PLUGIN_BYTES_MAX,
	};
	return NCCL_SUCCESS;
}

static int properties_v8(int device, struct nccl_properties_v8 *ret)
{
	struct nccl_properties_v9 p;

	properties_v9(device, &p);
	*ret = (struct nccl_properties_v8){
	    .name = p.name,
	    .pci_path = p.pci_path,
	    .guid = p.guid,
	    .pointers = p.pointers,
	    .speed = p.speed,
	    .max_connections = p.max_connections,
	    .max_receives = p.max_receives,
	    .device_type = p.device_type,
	    .device_version = p.device_version,
	};
	return NCCL_SUCCESS;
}

static int properties_v11(int device, struct nccl_properties_v11 *ret)
{
	ret->max_multi_request = 1;
	return properties_v9(device, &ret->base);
}

static int properties_v12(int device, struct nccl_properties_v12 *ret)
{
	struct nccl_properties_v9 p;

	properties_v9(device, &p);
	*ret = (struct nccl_properties_v12){
	    .name = p.name,
	    .pci_path = p.pci_path,
	    .guid = p.guid,
	    .pointers = p.pointers,
	    .speed = p.speed,
	    .max_connections = p.max_connections,
	    .max_receives = p.max_receives,
	    .device_type = p.device_type,
	    .device_version = p.device_version,
	    .parts = {.devices_n = 1, .devices = {device}},
	    .max_p2p_bytes = p.max_p2p_bytes,
	    .max_collective_bytes = p.max_collective_bytes,
	    .max_multi_request = 1,
	    .rail = -1,
	    .plane = -1,
	};
	return NCCL_SUCCESS;
}

/* Point-to-point */

static int net_listen_v8(int device, void *handle, void **listening)
{
	(void)device;
	return net_listen(&the_plugin, handle, (struct net_listen **)listening);
}

static int net_listen_v11(void *context, int device, void *handle, void **listening)
{
	(void)context;
	return net_listen_v8(device, handle, listening);
}

static int net_connect_v8(int device, void *handle, void **ret, void **device_handle)
{
	(void)device, (void)device_handle;
	return net_connect(&the_plugin, handle, (struct net **)ret);
}

static int net_connect_v10(int device, void *settings, void *handle, void **ret, void **device_handle)
{
	(void)settings;
	return net_connect_v8(device, handle, ret, device_handle);
}

static int net_connect_v11(void *context, int device, void *handle, void **ret, void **device_handle)
{
	(void)context;
	return net_connect_v8(device, handle, ret, device_handle);
}

static int net_accept_any(void *listening, void **ret, void **device_handle)
{
	(void)device_handle;
	return net_accept(listening, (struct net **)ret);
}

/* Host memory needs no registration, and NCCL only hands the value back. */
static int net_register(void *connection, void *data, size_t bytes, int kind, void **ret)
{
	struct rs_err e;

	(void)data, (void)bytes;
	*ret = NULL;
	if (kind == NCCL_PTR_HOST)
		return NCCL_SUCCESS;
	rs_fail(&e, RS_EINTERNAL, "NCCL registered memory of kind %d, only host memory is supported", kind);
	return plugin_fail(net_plugin(connection), &e);
}

static int register_dmabuf(void *connection, void *data, size_t bytes, int kind, uint64_t at, int fd, void **ret)
{
	(void)connection, (void)data, (void)bytes, (void)kind, (void)at, (void)fd, (void)ret;
	return NCCL_INTERNAL_ERROR;
}

static int net_deregister(void *connection, void *registered)
{
	(void)connection, (void)registered;
	return NCCL_SUCCESS;
}

static int net_isend_v9(void *connection, void *data, size_t bytes, int tag, void *registered, void **request)
{
	(void)tag, (void)registered;
	return net_send(connection, data, bytes, request);
}

static int net_isend_v8(void *connection, void *data, int bytes, int tag, void *registered, void **request)
{
	return net_isend_v9(connection, data, (size_t)bytes, tag, registered, request);
}

static int net_isend_v10(void *connection, void *data, size_t bytes, int tag, void *registered, void *profiled,
			 void **request)
{
	(void)profiled;
	return net_isend_v9(connection, data, bytes, tag, registered, request);
}

/* `n` is 1, as max_receives says. */
static int net_irecv_v9(void *connection, int n, void **data, size_t *bytes, int *tags, void **registered,
			void **request)
{
	(void)n, (void)tags, (void)registered;
	return net_receive(connection, data[0], bytes[0], request);
}

static int net_irecv_v8(void *connection, int n, void **data, int *bytes, int *tags, void **registered, void **request)
{
	(void)n, (void)tags, (void)registered;
	return net_receive(connection, data[0], (size_t)bytes[0], request);
}

static int net_irecv_v10(void *connection, int n, void **data, size_t *bytes, int *tags, void **registered,
			 void **profiled, void **request)
{
	(void)profiled;
	return net_irecv_v9(connection, n, data, bytes, tags, registered, request);
}

/* Received bytes of host memory are visible when the request is done. */
static int net_iflush(void *connection, int n, void **data, int *bytes, void **registered, void **request)
{
	(void)connection, (void)n, (void)data, (void)bytes, (void)registered;
	*request = NULL;
	return NCCL_SUCCESS;
}

static int net_close_any(void *connection)
{
	net_close(connection);
	return NCCL_SUCCESS;
}

static int net_close_listen_any(void *listening)
{
	net_close_listen(listening);
	return NCCL_SUCCESS;
}

/* Collective */

static int coll_listen_v8(int device, void *handle, void **listening)
{
	(void)device;
	return coll_listen(&the_plugin, handle, (struct coll_listen **)listening);
}

static int coll_listen_v11(void *context, int device, void *handle, void **listening)
{
	(void)context;
	return coll_listen_v8(device, handle, listening);
}

static int coll_connect_any(void *handles[], int ranks, int rank, void *listening, void **ret)
{
	return coll_connect(&the_plugin, handles, ranks, rank, listening, (struct coll **)ret);
}

static int coll_reduce_support(int dtype, int op, int *ret)
{
	*ret = coll_supports(dtype, op);
	return NCCL_SUCCESS;
}

static int coll_register_any(void *coll, void *data, size_t bytes, int kind, void **ret)
{
	return coll_register(coll, data, bytes, kind, ret);
}

static int coll_deregister_any(void *coll, void *registered)
{
	return coll_deregister(coll, registered);
}

static int coll_iallreduce_v9(void *coll, void *send, void *recv, size_t count, int dtype, int op,
			      void *send_registered, void *recv_registered, void **request)
{
	(void)send_registered, (void)recv_registered;
	return coll_all_reduce(coll, send, recv, count, dtype, op, request);
}

static int coll_iallreduce_v8(void *coll, void *send, void *recv, int count, int dtype, int op, void *send_registered,
			      void *recv_registered, void **request)
{
	return coll_iallreduce_v9(coll, send, recv, (size_t)count, dtype, op, send_registered, recv_registered,
				  request);
}

/* NCCL gives a slice as one part. */
static int coll_refuse_parts(struct coll *c, int n)
{
	struct rs_err e;

	rs_fail(&e, RS_EINVAL, "NCCL gave a slice in %d parts; one, as large as the slice, was expected", n);
	return plugin_fail(coll_plugin(c), &e);
}

static int coll_iallgather_v9(void *coll, void *send, int n, struct nccl_part *recv, size_t part_bytes, size_t offset,
			      size_t bytes, void *send_registered, void **request)
{
	(void)send_registered;
	*request = NULL;
	if (n != 1 || recv->bytes != bytes)
		return coll_refuse_parts(coll, n);
	return coll_all_gather(coll, send, recv->address,
			       &(struct slice){.part = part_bytes, .offset = offset, .bytes = bytes}, request);
}

static int coll_iallgather_v8(void *coll, void *send, int n, struct nccl_part_v8 *recv, size_t part_bytes,
			      size_t offset, size_t bytes, void *send_registered, void **request)
{
	struct nccl_part part = {.address = recv->address, .bytes = recv->bytes};

	return coll_iallgather_v9(coll, send, n, &part, part_bytes, offset, bytes, send_registered, request);
}

static int coll_ireducescatter_v9(void *coll, int n, struct nccl_part *send, void *recv, size_t part_bytes,
				  size_t offset, size_t bytes, int dtype, int op, void *recv_registered, void **request)
{
	(void)recv_registered;
	*request = NULL;
	if (n != 1 || send->bytes != bytes)
		return coll_refuse_parts(coll, n);
	return coll_reduce_scatter(coll, send->address, recv,
				   &(struct slice){.part = part_bytes, .offset = offset, .bytes = bytes}, dtype, op,
				   request);
}

static int coll_ireducescatter_v8(void *coll, int n, struct nccl_part_v8 *send, void *recv, size_t part_bytes,
				  size_t offset, size_t bytes, int dtype, int op, void *recv_registered, void **request)
{
	struct nccl_part part = {.address = send->address, .bytes = send->bytes};

	return coll_ireducescatter_v9(coll, n, &part, recv, part_bytes, offset, bytes, dtype, op, recv_registered,
				      request);
}

static int coll_iflush(void *coll, void *data, int bytes, void *registered, void **request)
{
	(void)coll, (void)data, (void)bytes, (void)registered;
	*request = NULL;
	return NCCL_SUCCESS;
}

static int coll_close_any(void *coll)
{
	return coll_close(coll);
}

static int coll_close_listen_any(void *listening)
{
	coll_close_listen(listening);
	return NCCL_SUCCESS;
}

/* NCCL_NET of this name makes the plugin mandatory. */
#define NAME "reduction"

#define NET_SAME                                                                                                       \
	.name = NAME, .devices = devices, .accept = net_accept_any, .register_memory = net_register,                   \
	.register_dmabuf = register_dmabuf, .deregister_memory = net_deregister, .iflush = net_iflush,                 \
	.test = net_test, .close_send = net_close_any, .close_receive = net_close_any,                                 \
	.close_listen = net_close_listen_any

EXPORT extern const struct nccl_net_v8 ncclNetPlugin_v8;
EXPORT extern const struct nccl_net_v9 ncclNetPlugin_v9;
EXPORT extern const struct nccl_net_v10 ncclNetPlugin_v10;
EXPORT extern const struct nccl_net_v11 ncclNetPlugin_v11;
EXPORT extern const struct nccl_net_v12 ncclNetPlugin_v12;
EXPORT extern const struct nccl_coll_v8 ncclCollNetPlugin_v8;
EXPORT extern const struct nccl_coll_v9 ncclCollNetPlugin_v9;
EXPORT extern const struct nccl_coll_v9 ncclCollNetPlugin_v10;
EXPORT extern const struct nccl_coll_v11 ncclCollNetPlugin_v11;
EXPORT extern const struct nccl_coll_v12 ncclCollNetPlugin_v12;

const struct nccl_net_v8 ncclNetPlugin_v8 = {
    NET_SAME,
    .init = init_v8,
    .properties = properties_v8,
    .listen = net_listen_v8,
    .connect = net_connect_v8,
    .isend = net_isend_v8,
    .irecv = net_irecv_v8,
};

const struct nccl_net_v9 ncclNetPlugin_v9 = {
    NET_SAME,
    .init = init_v8,
    .properties = properties_v9,
    .listen = net_listen_v8,
    .connect = net_connect_v8,
    .isend = net_isend_v9,
    .irecv = net_irecv_v9,
};

const struct nccl_net_v10 ncclNetPlugin_v10 = {
    NET_SAME,
    .init = net_init_v10,
    .properties = properties_v9,
    .listen = net_listen_v8,
    .connect = net_connect_v10,
    .isend = net_isend_v10,
    .irecv = net_irecv_v10,
};

const struct nccl_net_v11 ncclNetPlugin_v11 = {
    NET_SAME,
    .init = net_init_v11,
    .properties = properties_v11,
    .listen = net_listen_v11,
    .connect = net_connect_v11,
    .isend = net_isend_v10,
    .irecv = net_irecv_v10,
    .finalize = finalize_v11,
};

const struct nccl_net_v12 ncclNetPlugin_v12 = {
    NET_SAME,
    .init = net_init_v11,
    .properties = properties_v12,
    .listen = net_listen_v11,
    .connect = net_connect_v11,
    .isend = net_isend_v10,
    .irecv = net_irecv_v10,
    .finalize = finalize_v11,
};

#define COLL_SAME                                                                                                      \
	.name = NAME, .devices = devices, .connect = coll_connect_any, .reduce_support = coll_reduce_support,          \
	.register_memory = coll_register_any, .register_dmabuf = register_dmabuf,                                      \
	.deregister_memory = coll_deregister_any, .iflush = coll_iflush, .test = coll_test, .close = coll_close_any,   \
	.close_listen = coll_close_listen_any

const struct nccl_coll_v8 ncclCollNetPlugin_v8 = {
    COLL_SAME,
    .init = init_v8,
    .properties = properties_v8,
    .listen = coll_listen_v8,
    .iallreduce = coll_iallreduce_v8,
    .iallgather = coll_iallgather_v8,
    .ireducescatter = coll_ireducescatter_v8,
};

const struct nccl_coll_v9 ncclCollNetPlugin_v9 = {
    COLL_SAME,
    .init = init_v8,
    .properties = properties_v9,
    .listen = coll_listen_v8,
    .iallreduce = coll_iallreduce_v9,
    .iallgather = coll_iallgather_v9,
    .ireducescatter = coll_ireducescatter_v9,
};

const struct nccl_coll_v9 ncclCollNetPlugin_v10 = {
    COLL_SAME,
    .init = coll_init_v10,
    .properties = properties_v9,
    .listen = coll_listen_v8,
    .iallreduce = coll_iallreduce_v9,
    .iallgather = coll_iallgather_v9,
    .ireducescatter = coll_ireducescatter_v9,
};

const struct nccl_coll_v11 ncclCollNetPlugin_v11 = {
    COLL_SAME,
    .init = coll_init_v11,
    .properties = properties_v11,
    .listen = coll_listen_v11,
    .iallreduce = coll_iallreduce_v9,
    .iallgather = coll_iallgather_v9,
    .ireducescatter = coll_ireducescatter_v9,
    .finalize = finalize_v11,
};

const struct nccl_coll_v12 ncclCollNetPlugin_v12 = {
    COLL_SAME,
    .init = coll_init_v11,
    .properties = properties_v12,
    .listen = coll_listen_v11,
    .iallreduce = coll_iallreduce_v9,
    .iallgather = coll_iallgather_v9,
    .ireducescatter = coll_ireducescatter_v9,
    .finalize = finalize_v11,
};

/* Tuner */

static int tuner_init_any(size_t ranks, size_t nodes, nccl_logger log, void **ret)
{
	struct tuner *t = malloc(sizeof *t);
	struct rs_err e;

	(void)ranks, (void)log;
	if (!t) {
		rs_oom(&e, 0, "a tuner");
		return plugin_fail(&the_plugin, &e);
	}
	plugin_tune(&the_plugin, nodes, t);
	*ret = t;
	return NCCL_SUCCESS;
}

/* `collnet`: whether NCCL can send this collective through the reducers. */
static int tuner_choose_v2(void *tuner, int collective, size_t bytes, int collnet, int nvls, int operations,
			   int *algorithm, int *protocol, int *channels)
{
	const struct tuner *t = tuner;

	(void)nvls, (void)operations, (void)channels;
	if (collective != NCCL_ALL_REDUCE || !collnet || (bytes < t->from && !tuner_is_slower(t, bytes)))
		return NCCL_SUCCESS;
	*algorithm = bytes < t->from ? NCCL_RING : NCCL_COLLNET_CHAIN;
	*protocol = NCCL_SIMPLE;
	return NCCL_SUCCESS;
}

static int tuner_choose_v3(void *tuner, int collective, size_t bytes, int operations, float **costs, int algorithms,
			   int protocols, int *channels)
{
	(void)operations, (void)channels;
	tuner_choose(tuner, collective, bytes, (float *)costs, algorithms, protocols);
	return NCCL_SUCCESS;
}

static int tuner_choose_v4(void *tuner, int collective, size_t bytes, int operations, float **costs, int algorithms,
			   int protocols, int registered, int *channels)
{
	(void)registered;
	return tuner_choose_v3(tuner, collective, bytes, operations, costs, algorithms, protocols, channels);
}

static int tuner_destroy(void *tuner)
{
	free(tuner);
	return NCCL_SUCCESS;
}

#define TUNER_SAME .name = NAME, .init = tuner_init_any, .destroy = tuner_destroy

/* NCCL looks for a tuner in the library of NCCL_NET_PLUGIN too: version 2 in 2.21, 3 in
 * 2.22 and 2.23, 4 in all later.
 */
EXPORT extern const struct nccl_tuner_v2 ncclTunerPlugin_v2;
EXPORT extern const struct nccl_tuner_v3 ncclTunerPlugin_v3;
EXPORT extern const struct nccl_tuner_v4 ncclTunerPlugin_v4;

const struct nccl_tuner_v2 ncclTunerPlugin_v2 = {TUNER_SAME, .choose = tuner_choose_v2};
const struct nccl_tuner_v3 ncclTunerPlugin_v3 = {TUNER_SAME, .choose = tuner_choose_v3};
const struct nccl_tuner_v4 ncclTunerPlugin_v4 = {TUNER_SAME, .choose = tuner_choose_v4};
