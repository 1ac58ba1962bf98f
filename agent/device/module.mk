# SPDX-License-Identifier: Apache-2.0
# the interface of devices, and the pieces of an operation on their memory, without any I/O
libagent_device := $(B)/agent/device/libagent_device.a
$(libagent_device): $(patsubst %.c,$(B)/%.o,$(wildcard agent/device/*.c))
