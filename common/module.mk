# SPDX-License-Identifier: Apache-2.0
include common/kernels/module.mk
libcommon := $(B)/common/libcommon.a
$(libcommon): $(patsubst %.c,$(B)/%.o,$(wildcard common/*.c) $(kernels_src))
