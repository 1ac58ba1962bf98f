# SPDX-License-Identifier: Apache-2.0
# the planner of shard maps
plan_obj := $(patsubst %.c,$(B)/%.o,$(wildcard config/plan/*.c))
libplan  := $(B)/config/plan/libplan.a
$(libplan): $(plan_obj)

# compiled again when the library has come or gone
$(B)/config/plan/lp.o: $(B)/config/plan/clp-$(CLP)
$(B)/config/plan/lp.o: ISA := $(CLP_CFLAGS)
$(B)/config/plan/clp-$(CLP):
	mkdir -p $(@D)
	rm -f $(@D)/clp-*
	touch $@

$(B)/tests/unit/test_plan: $(plan_obj)
$(B)/tests/unit/test_plan: LIBS += $(CLP_LIBS)
