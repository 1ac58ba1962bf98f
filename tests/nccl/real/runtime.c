/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA runtime and driver of one device whose memory is the host's. Copies happen at
 * once; kernels run on threads. Environment: FAKE_BUS, the number of the device's PCI
 * bus, in hexadecimal (17); FAKE_CAPABILITY, its compute capability (8). */
#include "tests/nccl/real/fake.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	CUDA_VERSION = 13000,
	DRIVER_VERSION = CUDA_VERSION,
	OBJECT_BYTES = 64,      /* of a stream, an event or a pool; nothing is in it */
	PROPERTIES_BYTES = 700, /* of cudaDeviceProp that are cleared, fewer than any version has */
	PAGE = 4096,
	SETTLE_US = 100,
	SPIN_US = 200,
};

enum { ON_HOST = 1, ON_DEVICE = 2 }; /* cudaMemoryType */

/* Memory that CUDA knows. */
struct range {
	char *data;
	size_t bytes;
	int kind;
	struct range *next;
};

static struct {
	pthread_mutex_t lock; /* protects the list */
	struct range *first;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void memory_add(void *data, size_t bytes, int kind)
{
	struct range *r = malloc(sizeof *r);

	if (!r)
		die("out of memory");
	pthread_mutex_lock(&memory.lock);
	*r = (struct range){.data = data, .bytes = bytes, .kind = kind, .next = memory.first};
	memory.first = r;
	pthread_mutex_unlock(&memory.lock);
}

/* Takes the range that begins at `data`. Returns its bytes, 0: there is none. */
static size_t memory_remove(void *data)
{
	struct range **at = &memory.first, *r;
	size_t bytes = 0;

	pthread_mutex_lock(&memory.lock);
	while (*at && (*at)->data != data)
		at = &(*at)->next;
	r = *at;
	if (r) {
		bytes = r->bytes;
		*at = r->next;
	}
	pthread_mutex_unlock(&memory.lock);
	free(r);
	return bytes;
}

/* Finds the range that contains an address. */
static bool memory_find(const void *at, struct range *ret)
{
	bool found = false;

	pthread_mutex_lock(&memory.lock);
	for (const struct range *r = memory.first; r && !found; r = r->next)
		if ((const char *)at >= r->data && (const char *)at < r->data + r->bytes) {
			*ret = *r;
			found = true;
		}
	pthread_mutex_unlock(&memory.lock);
	return found;
}

static void *allocate(size_t bytes, int kind)
{
	size_t whole = ((bytes ? bytes : 1) + PAGE - 1) & ~(size_t)(PAGE - 1);
	void *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	madvise(p, whole, MADV_HUGEPAGE); /* NCCL clears buffers of many MiB */
	memory_add(p, whole, kind);
	return p;
}

void *device_allocate(size_t bytes)
{
	return allocate(bytes, ON_DEVICE);
}

static int on_device(void **ret, size_t bytes)
{
	*ret = allocate(bytes, ON_DEVICE);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR;
}

static int on_host(void **ret, size_t bytes)
{
	*ret = allocate(bytes, ON_HOST);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR;
}

static int release(void *p)
{
	size_t bytes = memory_remove(p);

	if (bytes)
		munmap(p, bytes);
	return CUDA_SUCCESS;
}

static int host_register(void *p, size_t bytes)
{
	memory_add(p, bytes, ON_HOST);
	return CUDA_SUCCESS;
}

static int host_unregister(void *p)
{
	memory_remove(p);
	return CUDA_SUCCESS;
}

static int same_pointer(void **ret, void *p)
{
	*ret = p;
	return CUDA_SUCCESS;
}

static int copy(void *to, const void *from, size_t bytes)
{
	memmove(to, from, bytes);
	return CUDA_SUCCESS;
}

static int set(void *to, int value, size_t bytes)
{
	memset(to, value, bytes);
	return CUDA_SUCCESS;
}

static int memory_info(size_t *left, size_t *all)
{
	*left = *all = (size_t)8 << 30;
	return CUDA_SUCCESS;
}

/* cudaPointerAttributes */
struct pointer {
	int kind, device;
	void *on_device, *on_host;
};

static int pointer_attributes(struct pointer *ret, void *p)
{
	struct range r = {.kind = 0};

	memory_find(p, &r);
	*ret =
	    (struct pointer){.kind = r.kind, .on_device = r.kind ? p : NULL, .on_host = r.kind == ON_HOST ? p : NULL};
	return CUDA_SUCCESS;
}

static int address_range(void **base, size_t *bytes, void *p)
{
	struct range r;

	if (!memory_find(p, &r))
		return CUDA_ERROR;
	if (base)
		*base = r.data;
	if (bytes)
		*bytes = r.bytes;
	return CUDA_SUCCESS;
}

/* The device */

static unsigned bus(void)
{
	const char *text = getenv("FAKE_BUS");

	return text ? (unsigned)strtoul(text, NULL, 16) : 0x17;
}

/* Attributes have the same numbers in the runtime and in the driver. */
static int attribute(int *ret, int which)
{
	const char *capability = getenv("FAKE_CAPABILITY");

	switch (which) {
	case 1: /* threads of a block */
		*ret = 1024;
		break;
	case 8:                    /* shared memory of a block */
	case 81:                   /* of a multiprocessor */
	case 97:                   /* of a block that asks for it */
		*ret = 227 * 1024; /* bytes */
		break;
	case 10: /* threads of a warp */
		*ret = 32;
		break;
	case 16: /* multiprocessors */
		*ret = 132;
		break;
	case 33:
		*ret = (int)bus();
		break;
	case 39: /* threads of a multiprocessor */
		*ret = 2048;
		break;
	case 41: /* one address space */
		*ret = 1;
		break;
	case 75:
		*ret = capability ? atoi(capability) : 8;
		break;
	default:
		*ret = 0;
	}
	return CUDA_SUCCESS;
}

static int properties(void *ret)
{
	memset(ret, 0, PROPERTIES_BYTES);
	strcpy(ret, "host memory");
	return CUDA_SUCCESS;
}

static int device_name(char *ret, int room)
{
	snprintf(ret, (size_t)room, "host memory");
	return CUDA_SUCCESS;
}

static int bus_id(char *ret, int room)
{
	snprintf(ret, (size_t)room, "0000:%02x:00.0", bus());
	return CUDA_SUCCESS;
}

static int device_uuid(void *ret)
{
	const int pid = getpid();

	memset(ret, 0, 16);
	memcpy(ret, &pid, sizeof pid);
	return CUDA_SUCCESS;
}

/* Answers */

int unsupported(void)
{
	return CUDA_UNSUPPORTED;
}

static int succeed(void)
{
	return CUDA_SUCCESS;
}

static int zero(int *ret)
{
	*ret = 0;
	return CUDA_SUCCESS;
}

static int one(int *ret)
{
	*ret = 1;
	return CUDA_SUCCESS;
}

static int second_is_zero(void *first, int *ret)
{
	(void)first;
	return zero(ret);
}

static int version(int *ret)
{
	*ret = CUDA_VERSION;
	return CUDA_SUCCESS;
}

static int ordinal(int *ret, int n)
{
	*ret = n;
	return CUDA_SUCCESS;
}

static int limit(size_t *ret)
{
	*ret = 1024;
	return CUDA_SUCCESS;
}

static int priorities(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return CUDA_SUCCESS;
}

static int elapsed(float *ret)
{
	*ret = 0;
	return CUDA_SUCCESS;
}

static const char *error_text(int code)
{
	return code == CUDA_UNSUPPORTED ? "not supported" : "error";
}

static int driver_error_text(int code, const char **ret)
{
	*ret = error_text(code);
	return CUDA_SUCCESS;
}

static int make_object(void **ret)
{
	*ret = calloc(1, OBJECT_BYTES);
	return *ret ? CUDA_SUCCESS : CUDA_ERROR;
}

static int free_object(void *o)
{
	free(o);
	return CUDA_SUCCESS;
}

static int the_context(void **ret)
{
	static char context[OBJECT_BYTES];

	*ret = context;
	return CUDA_SUCCESS;
}

static int stream_id(void *stream, unsigned long long *ret)
{
	*ret = (uintptr_t)stream;
	return CUDA_SUCCESS;
}

static int symbol_address(void **ret)
{
	return on_device(ret, PAGE);
}

/* cudaFuncAttributes: sizes first, then numRegs and others */
static int function_attributes(void *ret)
{
	const int threads = 1024;

	memset(ret, 0, 72);
	memcpy((char *)ret + 4 * sizeof(size_t), &threads, sizeof threads);
	return CUDA_SUCCESS;
}

/* Waits for all kernels. */
static int settle(void)
{
	while (kernels_running() > 0)
		usleep(SETTLE_US);
	return CUDA_SUCCESS;
}

/* Kernels */

/* Of dim3, which is passed by value. */
struct dimensions {
	unsigned x, y, z;
};

static int launch(void *kernel, struct dimensions grid, struct dimensions block, void **args)
{
	(void)kernel, (void)grid, (void)block;
	kernel_launch(args);
	return CUDA_SUCCESS;
}

static int launch_exc(void *config, void *kernel, void **args)
{
	(void)config, (void)kernel;
	kernel_launch(args);
	return CUDA_SUCCESS;
}

static int launch_driver(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			 unsigned shared, void *stream, void **args, void **extra)
{
	(void)kernel, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
	kernel_launch(args ? args : extra);
	return CUDA_SUCCESS;
}

static int launch_driver_ex(void *config, void *kernel, void **args, void **extra)
{
	(void)config, (void)kernel;
	kernel_launch(args ? args : extra);
	return CUDA_SUCCESS;
}

static int host_function(void *stream, void (*call)(void *), void *user)
{
	(void)stream;
	call(user);
	return CUDA_SUCCESS;
}

/* The tables */

struct entry {
	const char *name;
	function call;
};

#define F(f) ((function)(f))

static int entry_point(const char *name, function *ret);

static int entry_point_status(const char *name, function *ret, int version_asked, unsigned long long flags, int *status)
{
	(void)version_asked, (void)flags;
	if (status)
		*status = 0;
	return entry_point(name, ret);
}

static int runtime_entry_point(const char *name, function *ret, unsigned long long flags, int *status)
{
	return entry_point_status(name, ret, 0, flags, status);
}

static int runtime_entry_point_by_version(const char *name, function *ret, unsigned v, unsigned long long flags,
					  int *status)
{
	return entry_point_status(name, ret, (int)v, flags, status);
}

static const struct entry runtime[] = {
    {"cudaCtxResetPersistingL2Cache", F(succeed)},
    {"cudaDeviceCanAccessPeer", F(zero)},
    {"cudaDeviceGetAttribute", F(attribute)},
    {"cudaDeviceGetByPCIBusId", F(zero)},
    {"cudaDeviceGetDefaultMemPool", F(the_context)},
    {"cudaDeviceGetLimit", F(limit)},
    {"cudaDeviceGetPCIBusId", F(bus_id)},
    {"cudaDeviceGetStreamPriorityRange", F(priorities)},
    {"cudaDeviceSetLimit", F(succeed)},
    {"cudaDeviceSynchronize", F(settle)},
    {"cudaDriverGetVersion", F(version)},
    {"cudaEventCreate", F(make_object)},
    {"cudaEventCreateWithFlags", F(make_object)},
    {"cudaEventDestroy", F(free_object)},
    {"cudaEventElapsedTime", F(elapsed)},
    {"cudaEventQuery", F(succeed)},
    {"cudaEventRecord", F(succeed)},
    {"cudaEventRecordWithFlags", F(succeed)},
    {"cudaEventSynchronize", F(succeed)},
    {"cudaFree", F(release)},
    {"cudaFreeAsync", F(release)},
    {"cudaFreeHost", F(release)},
    {"cudaFuncGetAttributes", F(function_attributes)},
    {"cudaFuncSetAttribute", F(succeed)},
    {"cudaGetDevice", F(zero)},
    {"cudaGetDeviceCount", F(one)},
    {"cudaGetDeviceProperties", F(properties)},
    {"cudaGetDeviceProperties_v2", F(properties)},
    {"cudaGetDriverEntryPoint", F(runtime_entry_point)},
    {"cudaGetDriverEntryPointByVersion", F(runtime_entry_point_by_version)},
    {"cudaGetDriverEntryPoint_ptsz", F(runtime_entry_point)},
    {"cudaGetErrorName", F(error_text)},
    {"cudaGetErrorString", F(error_text)},
    {"cudaGetFuncBySymbol", F(same_pointer)},
    {"cudaGetLastError", F(succeed)},
    {"cudaGetSymbolAddress", F(symbol_address)},
    {"cudaHostAlloc", F(on_host)},
    {"cudaHostGetDevicePointer", F(same_pointer)},
    {"cudaHostRegister", F(host_register)},
    {"cudaHostUnregister", F(host_unregister)},
    {"cudaInitDevice", F(succeed)},
    {"cudaLaunchHostFunc", F(host_function)},
    {"cudaLaunchKernel", F(launch)},
    {"cudaLaunchKernelExC", F(launch_exc)},
    {"cudaMalloc", F(on_device)},
    {"cudaMallocAsync", F(on_device)},
    {"cudaMallocFromPoolAsync", F(on_device)},
    {"cudaMallocHost", F(on_host)},
    {"cudaMemGetInfo", F(memory_info)},
    {"cudaMemPoolCreate", F(make_object)},
    {"cudaMemPoolDestroy", F(free_object)},
    {"cudaMemPoolSetAttribute", F(succeed)},
    {"cudaMemPoolTrimTo", F(succeed)},
    {"cudaMemcpy", F(copy)},
    {"cudaMemcpyAsync", F(copy)},
    {"cudaMemset", F(set)},
    {"cudaMemsetAsync", F(set)},
    {"cudaOccupancyMaxActiveBlocksPerMultiprocessor", F(one)},
    {"cudaPeekAtLastError", F(succeed)},
    {"cudaPointerGetAttributes", F(pointer_attributes)},
    {"cudaRuntimeGetVersion", F(version)},
    {"cudaSetDevice", F(succeed)},
    {"cudaStreamCreate", F(make_object)},
    {"cudaStreamCreateWithFlags", F(make_object)},
    {"cudaStreamCreateWithPriority", F(make_object)},
    {"cudaStreamDestroy", F(free_object)},
    {"cudaStreamGetCaptureInfo", F(second_is_zero)},
    {"cudaStreamGetCaptureInfo_v2", F(second_is_zero)},
    {"cudaStreamGetCaptureInfo_v3", F(second_is_zero)},
    {"cudaStreamGetId", F(stream_id)},
    {"cudaStreamGetPriority", F(second_is_zero)},
    {"cudaStreamIsCapturing", F(second_is_zero)},
    {"cudaStreamQuery", F(succeed)},
    {"cudaStreamSynchronize", F(settle)},
    {"cudaStreamWaitEvent", F(succeed)},
    {"cudaThreadExchangeStreamCaptureMode", F(succeed)},
    {NULL, NULL},
};

static const struct entry driver[] = {
    {"cuCtxCreate", F(the_context)},
    {"cuCtxDestroy", F(succeed)},
    {"cuCtxGetCurrent", F(the_context)},
    {"cuCtxGetDevice", F(zero)},
    {"cuCtxSetCurrent", F(succeed)},
    {"cuDeviceGet", F(ordinal)},
    {"cuDeviceGetAttribute", F(attribute)},
    {"cuDeviceGetCount", F(one)},
    {"cuDeviceGetName", F(device_name)},
    {"cuDeviceGetUuid", F(device_uuid)},
    {"cuDeviceGetUuid_v2", F(device_uuid)},
    {"cuDriverGetVersion", F(version)},
    {"cuGetErrorName", F(driver_error_text)},
    {"cuGetErrorString", F(driver_error_text)},
    {"cuGetProcAddress", F(entry_point_status)},
    {"cuGetProcAddress_v2", F(entry_point_status)},
    {"cuInit", F(succeed)},
    {"cuLaunchKernel", F(launch_driver)},
    {"cuLaunchKernelEx", F(launch_driver_ex)},
    {"cuMemGetAddressRange", F(address_range)},
    {"cuMemGetAddressRange_v2", F(address_range)},
    {NULL, NULL},
};

static function find(const struct entry *table, const char *name)
{
	for (; table->name; table++)
		if (strcmp(table->name, name) == 0)
			return table->call;
	return NULL;
}

function runtime_find(const char *name)
{
	return find(runtime, name);
}

function driver_find(const char *name)
{
	return find(driver, name);
}

static int entry_point(const char *name, function *ret)
{
	*ret = driver_find(name);
	if (!*ret)
		*ret = (function)unsupported;
	return CUDA_SUCCESS;
}

/* NCCL's threads spin in these functions. On few processors the reducers would wait for
 * them for seconds. */
__attribute__((visibility("default"))) int sched_yield(void)
{
	usleep(SPIN_US);
	return 0;
}

__attribute__((visibility("default"))) ssize_t recv(int fd, void *to, size_t room, int flags)
{
	ssize_t n = recvfrom(fd, to, room, flags, NULL, NULL);

	if (n < 0 && errno == EAGAIN) {
		usleep(SPIN_US);
		errno = EAGAIN;
	}
	return n;
}
