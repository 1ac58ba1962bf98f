# speed of the reduction kernels on this machine; for developers, not installed
bench_kernels := $(B)/bench/reduction-bench-kernels
$(B)/bench/kernels.o: ISA := -O3
$(bench_kernels): $(B)/bench/kernels.o $(libcommon)
	$(LINK) -o $@ $^ -lm
all: $(bench_kernels)
bench-kernels: $(bench_kernels)
	$<
.PHONY: bench-kernels

# reduction-bench
bench_obj := $(patsubst %,$(B)/bench/%.o,reduction_bench bench_options bench_data bench_local bench_report)
bin += $(B)/bin/reduction-bench
$(B)/bin/reduction-bench: $(bench_obj) $(libcommon) $(B)/lib/libreduction.so
	@mkdir -p $(@D)
	$(LINK) -o $@ $(bench_obj) $(libcommon) -L$(B)/lib -lreduction -Wl,-rpath,'$$ORIGIN/../lib' -pthread

# bench/peers: what others do, measured in the same way; built where the library and a C++ compiler are found
gloo_found := $(shell echo '\#include <gloo/config.h>' | $(CXX) -E -x c++ - >/dev/null 2>&1 && echo yes)
gloo_ring  := $(B)/bench/gloo-ring
$(B)/bench/peers/gloo_ring.o: bench/peers/gloo_ring.cc
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -O2 -g -std=c++17 -D_GNU_SOURCE -Wall -Wextra -MMD -MP -I. -c -o $@ $<
$(gloo_ring): $(B)/bench/peers/gloo_ring.o $(filter-out %/reduction_bench.o,$(bench_obj)) $(libcommon)
	$(CXX) $(LDFLAGS) $(if $(SAN),-fsanitize=$(SAN)) -o $@ $^ -lgloo -pthread -lm
$(if $(gloo_found),$(eval all: $(gloo_ring)))

bench: $(B)/bin/reduction-bench $(bin) $(if $(gloo_found),$(gloo_ring)) ## all-reduce on loopback beside gloo's ring, 1-2 minutes
	$(PYTHON) bench/compare.py --build $(B) --out $(BUILD)/bench/loopback.jsonl
.PHONY: bench
