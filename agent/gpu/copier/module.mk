# SPDX-License-Identifier: Apache-2.0
# operations on the memory of devices, over a backend
libagent_copier := $(B)/agent/gpu/copier/libagent_copier.a
$(libagent_copier): $(patsubst %.c,$(B)/%.o,$(wildcard agent/gpu/copier/*.c))
