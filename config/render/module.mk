# SPDX-License-Identifier: Apache-2.0
# jobs of managed services, with reducers filled in
librender := $(B)/config/render/librender.a
$(librender): $(patsubst %.c,$(B)/%.o,$(wildcard config/render/*.c))
