# SPDX-License-Identifier: Apache-2.0
# what a lane does with the bytes of its workers, without any I/O: the linker and 'make layering' keep it so
libserver_core := $(B)/server/core/libserver_core.a
$(libserver_core): $(patsubst %.c,$(B)/%.o,$(wildcard server/core/*.c))
