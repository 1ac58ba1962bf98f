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
