# SPDX-License-Identifier: Apache-2.0
# libreduction: the C API over the engine of this process or the agent
soname := libreduction.so.$(firstword $(subst ., ,$(VERSION)))
lib    += $(B)/lib/libreduction.so
$(B)/lib/libreduction.so.$(VERSION): $(patsubst %.c,$(B)/%.o,$(wildcard agent/api/*.c)) $(libagent_client) $(libagent_daemon) $(libagent_backend) $(libagent) \
                                     $(librpc) $(libconfig) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK_SO) -Wl,-soname,$(soname) -Wl,--exclude-libs,ALL -o $@ $^ $(LIBS)
$(B)/lib/$(soname): $(B)/lib/libreduction.so.$(VERSION)
	$(call say,LN,$@)ln -sf $(<F) $@
$(B)/lib/libreduction.so: $(B)/lib/$(soname)
	$(call say,LN,$@)ln -sf $(<F) $@

# requests and groups are tested over a backend of the test's
$(B)/tests/unit/test_group: $(patsubst %,$(B)/agent/api/%.o,comm request group group_stage)
