# SPDX-License-Identifier: Apache-2.0
# libnccl-net-reduction.so: NCCL's network and collective network
nccl_plugin := $(B)/lib/libnccl-net-reduction.so
nccl_obj    := $(patsubst %.c,$(B)/%.o,$(filter-out %/env.c,$(wildcard agent/nccl/*.c))) $(uv_own_obj)
# libnccl-env.so: what NCCL asks for variables before it opens the other
nccl_env    := $(B)/lib/libnccl-env.so
lib         += $(nccl_plugin) $(nccl_env)
$(nccl_plugin): $(nccl_obj) $(libagent) $(librpc) $(libconfig) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK_SO) -Wl,-soname,$(@F) -Wl,--exclude-libs,ALL -Wl,-z,nodelete -o $@ $^ $(uv_own_libs)
$(nccl_env): $(B)/agent/nccl/env.o
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK_SO) -Wl,-soname,$(@F) -o $@ $^
