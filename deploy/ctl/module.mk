# SPDX-License-Identifier: Apache-2.0
# the operator's tool, with the planner of shard maps, and jobs of managed services with
# reducers filled in
$(eval $(call archive,libplan,deploy/ctl/plan))
$(eval $(call archive,librender,deploy/ctl/render))
plan_obj := $(patsubst %.c,$(B)/%.o,$(wildcard deploy/ctl/plan/*.c))
$(addprefix $(B)/tests/unit/deploy/ctl/,test_plan test_plan_shares test_plan_far test_plan_lp test_plan_relays): $(plan_obj)

# archives are compressed with zlib, or else not compressed
gzip_src := deploy/ctl/gzip_$(if $(filter on,$(ZLIB)),zlib,stored).c
gzip_obj := $(gzip_src:%.c=$(B)/%.o)
$(B)/deploy/ctl/gzip_zlib.o: private ISA := $(ZLIB_CFLAGS)
ctl_src  := $(filter-out deploy/ctl/gzip_%,$(wildcard deploy/ctl/*.c)) $(gzip_src)

bin += $(B)/bin/reductionctl
$(B)/bin/reductionctl: $(ctl_src:%.c=$(B)/%.o) $(libplan) $(librender) $(libconfig) $(librpc) $(libhttp) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS) $(ZLIB_LIBS)
