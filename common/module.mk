# SPDX-License-Identifier: Apache-2.0
include common/kernels/module.mk
$(eval $(call archive,libcommon,common,$(wildcard common/*.c common/kernels/*.c)))
