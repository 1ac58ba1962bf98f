# SPDX-License-Identifier: Apache-2.0
# the interface of devices, and the pieces of an operation on their memory, without any I/O
libgpu_core := $(B)/agent/gpu/core/libgpu_core.a
$(libgpu_core): $(patsubst %.c,$(B)/%.o,$(wildcard agent/gpu/core/*.c))
