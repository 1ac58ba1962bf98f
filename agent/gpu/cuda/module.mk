# SPDX-License-Identifier: Apache-2.0
# GPUs of NVIDIA behind the interface of devices; loads the driver's library when the first buffer of a GPU comes
libagent_cuda := $(B)/agent/gpu/cuda/libagent_cuda.a
$(libagent_cuda): $(patsubst %.c,$(B)/%.o,$(wildcard agent/gpu/cuda/*.c))
