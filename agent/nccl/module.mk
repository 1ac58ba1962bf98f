# SPDX-License-Identifier: Apache-2.0
# libnccl-net-reduction.so: NCCL's network and collective network. It brings its own libuv where a static one can be in a
# shared library: a program may export functions of the same names, which would take their place.
nccl_plugin := $(B)/lib/libnccl-net-reduction.so
nccl_uv     := $(if $(libuv_static),$(addprefix -Wl$(COMMA)--wrap=,$(libuv_wrap)) $(libuv_static) -ldl $(filter-out -luv,$(LIBS)),$(LIBS))
nccl_obj    := $(patsubst %.c,$(B)/%.o,$(filter-out $(if $(libuv_static),,%/uv_variables.c),$(wildcard agent/nccl/*.c)))
lib         += $(nccl_plugin)
$(nccl_plugin): $(nccl_obj) $(libagent) $(librpc) $(libconfig) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK_SO) -Wl,-soname,$(@F) -Wl,--exclude-libs,ALL -Wl,-z,nodelete -o $@ $^ $(nccl_uv)
