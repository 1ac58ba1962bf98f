libconfig := $(B)/config/libconfig.a
$(libconfig): $(patsubst %.c,$(B)/%.o,$(filter-out config/reductionctl.c,$(wildcard config/*.c)))

bin += $(B)/bin/reductionctl
$(B)/bin/reductionctl: $(B)/config/reductionctl.o $(libconfig) $(libcommon)
	@mkdir -p $(@D)
	$(LINK) -o $@ $^ $(shell $(PKG_CONFIG) --libs yaml-0.1 libxxhash)

# the reference of all keys, from the table in config/schema.c
docs: $(B)/bin/reductionctl
	$< reference >config/README.md.new && mv config/README.md.new config/README.md
.PHONY: docs

# for libFuzzer, which comes with clang: see tests/fuzz/fuzz_config.c
$(B)/tests/fuzz/fuzz_config: $(B)/tests/fuzz/fuzz_config.o $(libconfig) $(libcommon)
	$(LINK) -fsanitize=fuzzer -o $@ $^ $(shell $(PKG_CONFIG) --libs yaml-0.1 libxxhash)
fuzz-config: $(B)/tests/fuzz/fuzz_config
.PHONY: fuzz-config
