# SPDX-License-Identifier: Apache-2.0
bin += $(B)/bin/reductionctl
$(B)/bin/reductionctl: $(patsubst %.c,$(B)/%.o,$(wildcard config/ctl/*.c)) $(libplan) $(librender) $(libconfig) $(librpc) $(libhttp) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS)
