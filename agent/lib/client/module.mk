# SPDX-License-Identifier: Apache-2.0
# libreduction's side of the local protocol
libagent_client := $(B)/agent/lib/client/libagent_client.a
$(libagent_client): $(patsubst %.c,$(B)/%.o,$(wildcard agent/lib/client/*.c))
