# SPDX-License-Identifier: Apache-2.0
# a worker's side of the wire protocol, without any I/O: the linker and 'make layering' keep it so
libworker_core := $(B)/agent/worker/core/libworker_core.a
$(libworker_core): $(patsubst %.c,$(B)/%.o,$(wildcard agent/worker/core/*.c))
