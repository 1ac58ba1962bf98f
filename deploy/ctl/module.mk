# SPDX-License-Identifier: Apache-2.0
include deploy/ctl/plan/module.mk deploy/ctl/render/module.mk

bin += $(B)/bin/reductionctl
$(B)/bin/reductionctl: $(patsubst %.c,$(B)/%.o,$(wildcard deploy/ctl/*.c)) $(libplan) $(librender) $(libconfig) $(librpc) $(libhttp) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS)
