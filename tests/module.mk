# every tests/unit/test_*.c is one Check program over the core archives
unit_src := $(wildcard tests/unit/test_*.c)
unit_bin := $(unit_src:%.c=$(B)/%)
core_libs := $(libserver_core) $(libagent_core) $(libconfig) $(libproto) $(libcommon)
$(unit_bin): $(B)/%: $(B)/%.o $(core_libs)
	$(LINK) -o $@ $^ $(LIBS) $(shell $(PKG_CONFIG) --libs check)
unit: $(unit_bin)
	@set -e; for t in $(unit_bin); do echo "== $$t"; $$t; done
.PHONY: unit
