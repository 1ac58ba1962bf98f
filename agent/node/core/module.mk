# SPDX-License-Identifier: Apache-2.0
# the agent's side of the local protocol, without any I/O as well
libnode_core := $(B)/agent/node/core/libnode_core.a
$(libnode_core): $(patsubst %.c,$(B)/%.o,$(wildcard agent/node/core/*.c))
