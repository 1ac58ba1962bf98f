# SPDX-License-Identifier: Apache-2.0
# the core of a lane: contributions in, results out, without I/O; 'make layering' checks that
libserver_core := $(B)/server/core/libserver_core.a
$(libserver_core): $(patsubst %.c,$(B)/%.o,$(wildcard server/core/*.c))
