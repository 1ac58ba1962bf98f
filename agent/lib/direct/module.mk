# SPDX-License-Identifier: Apache-2.0
# the backend whose operations an engine of this process runs
libagent_direct := $(B)/agent/lib/direct/libagent_direct.a
$(libagent_direct): $(patsubst %.c,$(B)/%.o,$(wildcard agent/lib/direct/*.c))
