libconfig := $(B)/config/libconfig.a
$(libconfig): $(patsubst %.c,$(B)/%.o,$(filter-out config/reductionctl%,$(wildcard config/*.c)))

bin += $(B)/bin/reductionctl
$(B)/bin/reductionctl: $(patsubst %.c,$(B)/%.o,$(wildcard config/reductionctl*.c)) $(libconfig) $(librpc) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIBS) $(CLP_LIBS)

# compiled again when the library has come or gone
$(B)/config/plan_lp.o: $(B)/config/clp-$(CLP)
$(B)/config/plan_lp.o: ISA := $(CLP_CFLAGS)
$(B)/config/clp-$(CLP):
	mkdir -p $(@D)
	rm -f $(@D)/clp-*
	touch $@
$(B)/tests/unit/test_plan: LIBS += $(CLP_LIBS)

docs: $(B)/bin/reductionctl ## write config/README.md from the table in config/schema.c
	$< reference >config/README.md.new && mv config/README.md.new config/README.md
.PHONY: docs
