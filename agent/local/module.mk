# SPDX-License-Identifier: Apache-2.0
# the agent's side of the local protocol, without any I/O as well
libagent_local := $(B)/agent/local/libagent_local.a
$(libagent_local): $(patsubst %.c,$(B)/%.o,$(wildcard agent/local/*.c))
