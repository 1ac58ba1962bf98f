# SPDX-License-Identifier: Apache-2.0
# a worker's side of the wire protocol, without any I/O: the linker and 'make layering' keep it so
libagent_core := $(B)/agent/core/libagent_core.a
$(libagent_core): $(patsubst %.c,$(B)/%.o,$(wildcard agent/core/*.c))
