# SPDX-License-Identifier: Apache-2.0
# the interface of backends, which api/ uses and client/ implements, and the direct backend over the engine
libagent_backend := $(B)/agent/lib/backend/libagent_backend.a
$(libagent_backend): $(patsubst %.c,$(B)/%.o,$(wildcard agent/lib/backend/*.c))
