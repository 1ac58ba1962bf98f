# SPDX-License-Identifier: Apache-2.0
# jobs of managed services, with reducers filled in
librender := $(B)/deploy/ctl/render/librender.a
$(librender): $(patsubst %.c,$(B)/%.o,$(wildcard deploy/ctl/render/*.c))
