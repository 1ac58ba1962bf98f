/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libcudart.so.13 that PyTorch calls for tensors, streams, events and
 * copies. Structs of CUDA are written at their offsets, so that nothing of CUDA is needed
 * to build. Arguments that have no effect are left out of the parameters at the end. */
#include "tests/torch_cuda/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* declares and defines a function that other libraries call */
#define RUNTIME(name, ...)                                                                                             \
	int name(__VA_ARGS__);                                                                                         \
	int name(__VA_ARGS__)

enum { VERSION = 13000, PROPERTIES_BYTES = 1008, FUNCTION_BYTES = 144, CAPTURING = 1, TYPE_HOST = 1, TYPE_DEVICE = 2 };

/* --- devices */

struct field {
	size_t at; /* in cudaDeviceProp of CUDA 13 */
	int value;
};
static const struct field properties[] = {
    {296, 49152}, {304, 65536},   {308, 32},    {320, 1024},   {324, 1024},  {328, 1024},   {332, 64},
    {336, 65535}, {340, 65535},   {344, 65535}, {360, 9},      {364, 0},     {384, 132},    {392, 1},
    {588, 1},     {596, 1 << 20}, {604, 2048},  {624, 233472}, {632, 65536}, {672, 232448},
};

RUNTIME(cudaGetDeviceCount, int *n)
{
	*n = devices();
	return *n ? OK : noted(100);
}

RUNTIME(cudaGetDevice, int *device)
{
	*device = device_now;
	return OK;
}

RUNTIME(cudaSetDevice, int device)
{
	if (device < 0 || device >= devices())
		return noted(NO_DEVICE);
	device_now = device;
	return OK;
}

RUNTIME(cudaInitDevice, void)
{
	return OK;
}

RUNTIME(cudaGetDeviceProperties, char *out, int device)
{
	size_t total = (size_t)8 << 30;
	memset(out, 0, PROPERTIES_BYTES);
	strcpy(out, "no GPU: a fake");
	out[256] = (char)(device + 1); /* uuid */
	memcpy(out + 288, &total, sizeof total);
	for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
		memcpy(out + properties[i].at, &properties[i].value, sizeof(int));
	memcpy(out + 568, &device, sizeof device); /* PCI bus */
	return OK;
}

RUNTIME(cudaDeviceGetAttribute, int *value, int attribute, int device)
{
	static const int known[][2] = {{1, 1024},  {2, 1024},  {3, 1024},  {4, 64},  {5, 65535},
				       {6, 65535}, {7, 65535}, {8, 49152}, {10, 32}, {12, 65536},
				       {16, 132},  {41, 1},    {75, 9},    {76, 0}};
	(void)device;
	*value = 0;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i][0] == attribute)
			*value = known[i][1];
	return OK;
}

RUNTIME(cudaDeviceGetPCIBusId, char *text, int room, int device)
{
	snprintf(text, (size_t)room, "0000:%02x:00.0", (unsigned)device);
	return OK;
}

RUNTIME(cudaDriverGetVersion, int *version)
{
	*version = VERSION;
	return OK;
}

RUNTIME(cudaRuntimeGetVersion, int *version)
{
	*version = VERSION;
	return OK;
}

RUNTIME(cudaDeviceCanAccessPeer, int *can)
{
	*can = 0;
	return OK;
}

RUNTIME(cudaDeviceSynchronize, void)
{
	stream_drain_all();
	return OK;
}

RUNTIME(cudaDeviceGetStreamPriorityRange, int *least, int *greatest)
{
	*least = 0, *greatest = -5;
	return OK;
}

const char *cudaGetErrorString(int error);
const char *cudaGetErrorString(int error)
{
	static _Thread_local char text[64];
	snprintf(text, sizeof text, "error %d of the fake CUDA", error);
	return error ? text : "no error";
}

const char *cudaGetErrorName(int error);
const char *cudaGetErrorName(int error)
{
	return cudaGetErrorString(error);
}

RUNTIME(cudaProfilerStart, void)
{
	return OK;
}

RUNTIME(cudaProfilerStop, void)
{
	return OK;
}

/* --- memory */

RUNTIME(cudaMalloc, void **at, size_t bytes)
{
	*at = memory_new(bytes, device_now);
	return *at ? OK : noted(NO_MEMORY);
}

RUNTIME(cudaFree, void *at)
{
	return noted(memory_free(at));
}

RUNTIME(cudaHostAlloc, void **at, size_t bytes)
{
	int code;
	if (answered(__func__, &code))
		return noted(code);
	*at = memory_new(bytes, -1);
	return *at ? OK : noted(NO_MEMORY);
}

RUNTIME(cudaMallocHost, void **at, size_t bytes)
{
	return cudaHostAlloc(at, bytes);
}

RUNTIME(cudaFreeHost, void *at)
{
	return noted(memory_free(at));
}

RUNTIME(cudaHostRegister, void *at, size_t bytes)
{
	int code;
	return noted(answered(__func__, &code) ? code : memory_pin(at, bytes));
}

RUNTIME(cudaHostUnregister, void *at)
{
	return noted(memory_unpin(at));
}

RUNTIME(cudaHostGetDevicePointer, void **device, void *host)
{
	*device = host;
	return OK;
}

RUNTIME(cudaMemGetInfo, size_t *free_bytes, size_t *total)
{
	*total = (size_t)8 << 30;
	*free_bytes = *total - fake.used[device_now];
	return OK;
}

RUNTIME(cudaPointerGetAttributes, char *out, void *p)
{
	struct range r;
	bool found = memory_find(p, &r);
	int type = !found ? 0 : r.device < 0 ? TYPE_HOST : TYPE_DEVICE;
	int device = found && r.device >= 0 ? r.device : 0;
	memset(out, 0, 88);
	memcpy(out, &type, sizeof type);
	memcpy(out + 4, &device, sizeof device);
	if (found)
		memcpy(out + 8, &p, sizeof p);
	if (type == TYPE_HOST)
		memcpy(out + 16, &p, sizeof p);
	return OK;
}

RUNTIME(cudaMemcpyAsync, void *to, const void *from, size_t bytes, int kind, void *stream)
{
	(void)kind;
	return stream_copy(to, from, bytes, stream);
}

RUNTIME(cudaMemcpyPeerAsync, void *to, int to_device, const void *from, int from_device, size_t bytes, void *stream)
{
	(void)to_device, (void)from_device;
	return stream_copy(to, from, bytes, stream);
}

RUNTIME(cudaMemcpy, void *to, const void *from, size_t bytes)
{
	stream_copy(to, from, bytes, NULL);
	stream_drain(NULL);
	return OK;
}

RUNTIME(cudaMemsetAsync, void *to, int value, size_t bytes, void *stream)
{
	stream_set(to, value, bytes, stream);
	return OK;
}

RUNTIME(cudaMemset, void *to, int value, size_t bytes)
{
	return cudaMemsetAsync(to, value, bytes, NULL);
}

/* --- streams and events */

RUNTIME(cudaStreamCreateWithPriority, struct stream **stream, unsigned flags, int priority)
{
	*stream = stream_new(device_now, flags, priority);
	return OK;
}

RUNTIME(cudaStreamCreateWithFlags, struct stream **stream, unsigned flags)
{
	return cudaStreamCreateWithPriority(stream, flags, 0);
}

RUNTIME(cudaStreamCreate, struct stream **stream)
{
	return cudaStreamCreateWithPriority(stream, 0, 0);
}

RUNTIME(cudaStreamDestroy, void *stream)
{
	return stream_destroy(stream);
}

RUNTIME(cudaStreamSynchronize, void *stream)
{
	stream_drain(stream);
	return OK;
}

RUNTIME(cudaStreamQuery, void *stream)
{
	return stream_query(stream); /* NOT_READY is no error for cudaGetLastError() */
}

RUNTIME(cudaStreamWaitEvent, void *stream, struct event *event)
{
	int code;
	if (answered(__func__, &code))
		return noted(code);
	stream_wait_event(event, stream);
	return OK;
}

RUNTIME(cudaStreamGetId, void *stream, unsigned long long *id)
{
	*id = stream_of(stream)->id;
	return OK;
}

RUNTIME(cudaStreamGetPriority, void *stream, int *priority)
{
	*priority = stream_of(stream)->priority;
	return OK;
}

RUNTIME(cudaStreamGetFlags, void *stream, unsigned *flags)
{
	*flags = stream_of(stream)->flags;
	return OK;
}

RUNTIME(cudaStreamGetDevice, void *stream, int *device)
{
	*device = stream_of(stream)->device;
	return OK;
}

RUNTIME(cudaLaunchHostFunc, void *stream, void (*fn)(void *user), void *user)
{
	stream_call(fn, user, stream);
	return OK;
}

RUNTIME(cudaEventCreateWithFlags, struct event **event)
{
	*event = event_new();
	return OK;
}

RUNTIME(cudaEventCreate, struct event **event)
{
	return cudaEventCreateWithFlags(event);
}

RUNTIME(cudaEventRecord, struct event *event, void *stream)
{
	stream_record(event, stream);
	return OK;
}

RUNTIME(cudaEventRecordWithFlags, struct event *event, void *stream)
{
	return cudaEventRecord(event, stream);
}

RUNTIME(cudaEventQuery, struct event *event)
{
	return event_query(event);
}

RUNTIME(cudaEventSynchronize, struct event *event)
{
	event_wait(event);
	return OK;
}

RUNTIME(cudaEventDestroy, void)
{
	return OK;
}

RUNTIME(cudaEventElapsedTime, float *ms, const struct event *start, const struct event *end)
{
	*ms = (float)(end->time_ns - start->time_ns) / 1e6F;
	return OK;
}

/* --- graphs: what is captured is thrown away, and a graph does nothing */

RUNTIME(cudaStreamBeginCapture, void *stream)
{
	stream_of(stream)->capturing = true;
	return OK;
}

RUNTIME(cudaStreamEndCapture, void *stream, void **graph)
{
	stream_of(stream)->capturing = false;
	*graph = &fake;
	return OK;
}

RUNTIME(cudaStreamIsCapturing, void *stream, int *status)
{
	*status = stream_of(stream)->capturing ? CAPTURING : 0;
	return OK;
}

RUNTIME(cudaStreamGetCaptureInfo, void *stream, int *status, unsigned long long *id, void **graph)
{
	cudaStreamIsCapturing(stream, status);
	if (id)
		*id = stream_of(stream)->id + 1;
	if (graph)
		*graph = &fake;
	return OK;
}

RUNTIME(cudaGraphInstantiate, void **made, void *graph)
{
	*made = graph;
	return OK;
}

RUNTIME(cudaGraphInstantiateWithFlags, void **made, void *graph)
{
	return cudaGraphInstantiate(made, graph);
}

RUNTIME(cudaGraphGetNodes, void *graph, void **nodes, size_t *n)
{
	(void)graph, (void)nodes;
	*n = 0;
	return OK;
}

RUNTIME(cudaGraphDestroy, void)
{
	return OK;
}

RUNTIME(cudaGraphExecDestroy, void)
{
	return OK;
}

RUNTIME(cudaThreadExchangeStreamCaptureMode, void)
{
	return OK;
}

/* --- kernels: a launch is an error that names the kernel */

struct kernel {
	struct kernel *next;
	const void *host;
	const char *name;
};
static struct kernel *kernels; /* changed while libraries are loaded */

RUNTIME(__cudaRegisterFunction, void *binary, const void *host, void *device, const char *name)
{
	struct kernel *k = malloc(sizeof *k);
	(void)binary, (void)device;
	if (k) {
		*k = (struct kernel){kernels, host, name};
		kernels = k;
	}
	return 0;
}

RUNTIME(cudaLaunchKernel, const void *host)
{
	const struct kernel *k = kernels;
	while (k && k->host != host)
		k = k->next;
	fprintf(stderr, "fake CUDA: tests/torch_cuda/kernels.py has no function for %.300s\n",
		k ? k->name : "a kernel");
	return noted(NO_KERNEL);
}

RUNTIME(__cudaLaunchKernel, const void *host)
{
	return cudaLaunchKernel(host);
}

RUNTIME(cudaLaunchCooperativeKernel, const void *host)
{
	return cudaLaunchKernel(host);
}

RUNTIME(cudaLaunchKernelExC, void *configuration, const void *host)
{
	(void)configuration;
	return cudaLaunchKernel(host);
}

RUNTIME(__cudaGetKernel, const void **kernel, const void *host)
{
	*kernel = host;
	return OK;
}

RUNTIME(cudaFuncGetAttributes, char *out)
{
	int threads = 1024, binary = 90;
	memset(out, 0, FUNCTION_BYTES);
	memcpy(out + 24, &threads, sizeof threads);
	memcpy(out + 32, &binary, sizeof binary);
	memcpy(out + 36, &binary, sizeof binary);
	return OK;
}

RUNTIME(cudaFuncSetAttribute, void)
{
	return OK;
}

RUNTIME(cudaOccupancyMaxActiveBlocksPerMultiprocessor, int *n)
{
	*n = 2;
	return OK;
}

RUNTIME(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *n)
{
	*n = 2;
	return OK;
}

void **__cudaRegisterFatBinary(void);
void **__cudaRegisterFatBinary(void)
{
	static void *binary[8];
	return binary;
}

RUNTIME(__cudaRegisterFatBinaryEnd, void)
{
	return 0;
}

RUNTIME(__cudaUnregisterFatBinary, void)
{
	return 0;
}

RUNTIME(__cudaRegisterVar, void)
{
	return 0;
}

RUNTIME(__cudaPushCallConfiguration, void)
{
	return 0;
}

RUNTIME(__cudaPopCallConfiguration, void *grid, void *block, size_t *bytes, void **stream)
{
	memset(grid, 0, 3 * sizeof(int));
	memset(block, 0, 3 * sizeof(int));
	*bytes = 0, *stream = NULL;
	return OK;
}
