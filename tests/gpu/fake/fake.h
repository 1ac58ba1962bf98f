/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake libcuda.so.1 and the fake libnccl.so.2 share. */
#ifndef RS_TESTS_GPU_FAKE_H
#define RS_TESTS_GPU_FAKE_H

#include <stdatomic.h>

/* A stream: the number of operations that have not ended. */
struct fake_stream {
	_Atomic int pending;
};

#endif
