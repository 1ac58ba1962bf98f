# SPDX-License-Identifier: Apache-2.0
# libreduction: the C API over the engine of this process or the agent
soname := libreduction.so.$(firstword $(subst ., ,$(VERSION)))
lib    += $(B)/lib/libreduction.so
libreduction := $(patsubst %.c,$(B)/%.o,$(wildcard agent/lib/api/*.c)) $(uv_own_obj) $(libagent_copier) $(libagent_cuda) $(libagent_client) $(libagent_daemon) $(libagent_direct) $(libagent) \
                $(librpc) $(libconfig) $(libproto) $(libcommon)
$(B)/lib/libreduction.so.$(VERSION): $(libreduction)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK_SO) -Wl,-soname,$(soname) -Wl,--exclude-libs,ALL -o $@ $^ $(uv_own_libs)
$(B)/lib/$(soname): $(B)/lib/libreduction.so.$(VERSION)
	$(call say,LN,$@)ln -sf $(<F) $@
$(B)/lib/libreduction.so: $(B)/lib/$(soname)
	$(call say,LN,$@)ln -sf $(<F) $@

# requests and groups are tested over a backend of the test's
$(B)/tests/unit/agent/lib/test_group: $(patsubst %,$(B)/agent/lib/api/%.o,comm request group group_copy group_stage) $(patsubst %.c,$(B)/%.o,$(wildcard agent/gpu/copier/*.c agent/gpu/cuda/*.c))
# the arguments of calls, with all of the library
$(B)/tests/unit/agent/lib/test_sharded: $(libreduction)
$(B)/tests/unit/agent/lib/test_sharded: private unit_libs := -Wl,--start-group $(filter %.a,$(libreduction)) -Wl,--end-group $(uv_own_libs)
