/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA GPUs as devices, over the driver API. */
#ifndef RS_AGENT_GPU_CUDA_CUDA_H
#define RS_AGENT_GPU_CUDA_CUDA_H

#include "agent/gpu/core/device.h"

/* Loads libcuda.so.1 and initializes it. notify(user) is called on a thread of the driver after a fence may have been
 * passed; it must not block for long and must not call devices. Any thread. Errors: RS_EUNSUPPORTED: there is no
 * library, no driver, or no GPU. */
int cuda_open(struct devices **ret, void (*notify)(void *user), void *user, struct rs_err *e);

#endif
