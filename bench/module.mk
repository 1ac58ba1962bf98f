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
ifneq ($(filter %/libreduction.so,$(lib)),)
bin += $(B)/bin/reduction-bench
endif
$(B)/bin/reduction-bench: $(bench_obj) $(libcommon) $(B)/lib/libreduction.so
	@mkdir -p $(@D)
	$(LINK) -o $@ $(bench_obj) $(libcommon) -L$(B)/lib -lreduction -Wl,-rpath,'$$ORIGIN/../lib' -pthread -lm

# bench/peers: what others do, measured in the same way; built where the library and a C++ compiler are found
gloo_found := $(shell command -v $(CXX) >/dev/null && printf '#include <gloo/allreduce.h>\nint main() { return 0; }' | \
                $(CXX) -std=c++17 -x c++ - -o /dev/null -lgloo 2>/dev/null && echo yes)
gloo_ring  := $(B)/bench/gloo-ring
$(B)/bench/peers/gloo_ring.o: bench/peers/gloo_ring.cc
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -O2 -g -std=c++17 -D_GNU_SOURCE -Wall -Wextra -MMD -MP -I. -c -o $@ $<
$(gloo_ring): $(B)/bench/peers/gloo_ring.o $(filter-out %/reduction_bench.o,$(bench_obj)) $(libcommon)
	$(CXX) $(LDFLAGS) $(if $(SAN),-fsanitize=$(SAN)) -o $@ $^ -lgloo -pthread -lm
$(if $(gloo_found),$(eval all: $(gloo_ring)))
