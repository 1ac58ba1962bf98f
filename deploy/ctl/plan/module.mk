# SPDX-License-Identifier: Apache-2.0
# the planner of shard maps
plan_obj := $(patsubst %.c,$(B)/%.o,$(wildcard deploy/ctl/plan/*.c))
libplan  := $(B)/deploy/ctl/plan/libplan.a
$(libplan): $(plan_obj)

$(B)/tests/unit/test_plan $(B)/tests/unit/test_plan_shares: $(plan_obj)
