# SPDX-License-Identifier: Apache-2.0
# what both daemons share: their command line; the control and health services, and the HTTP port with metrics and the
# status page
libhost := $(B)/common/host/libhost.a
$(libhost): $(patsubst %.c,$(B)/%.o,$(wildcard common/host/*.c))
include common/host/service/module.mk common/host/http/module.mk
