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
# where it looks for the library; packagers set it to nothing
RPATH ?= $$ORIGIN/../lib
$(B)/bin/reduction-bench: $(bench_obj) $(libcommon) $(B)/lib/libreduction.so
	@mkdir -p $(@D)
	$(LINK) -o $@ $(bench_obj) $(libcommon) -L$(B)/lib -lreduction $(if $(RPATH),-Wl$(COMMA)-rpath$(COMMA)'$(RPATH)') -pthread

# its data and reports have a unit test
$(B)/tests/unit/bench/test_bench_data: $(patsubst %,$(B)/bench/%.o,bench_data bench_report bench_options)

# bench/peers: what others do, measured in the same way; built where the library and a C++
# compiler are found
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

# what assertions cost: this build beside one without them
without_assertions := $(BUILD)/without-assertions
bench-assertions: $(B)/bin/reduction-bench $(B)/bin/reduction-server ## processor time with and without assertions, 5 minutes
	+$(MAKE) BUILD=$(without_assertions) CPPFLAGS='$(CPPFLAGS) -DRS_WITHOUT_ASSERTIONS' \
	         $(without_assertions)/default/bin/reduction-bench $(without_assertions)/default/bin/reduction-server
	$(PYTHON) bench/assertions.py --build $(B) --without $(without_assertions)/default $(ARGS)
.PHONY: bench-assertions

# reduction-load: many ranks in one process, against one reducer; for developers, not
# installed
bench_load := $(B)/bench/reduction-load
$(bench_load): $(patsubst %,$(B)/bench/%.o,load load_options load_data load_proc load_rank load_run bench_data) \
               $(libhost) $(libconfig) $(libproto) $(libcommon)
	$(LINK) -o $@ $^ $(LIBS)
all: $(bench_load)
bench-load: $(bin) $(bench_load) ## one reducer with 8 to 1,024 workers, 2-3 minutes; ARGS='--help' lists options
	$(PYTHON) bench/load.py --build $(B) --out $(BUILD)/bench/load.jsonl $(ARGS)
.PHONY: bench-load
bench-drain: $(bin) ## from a notice that a reducer's machine ends until it has drained, with 64 jobs of 8 ranks, 1 minute
	/usr/bin/python3 bench/drain.py --build $(B) $(ARGS)
.PHONY: bench-drain
bench-abuse: $(bin) $(bench_load) ## what a job loses while unauthenticated peers flood its reducer or agent, 10 minutes; ARGS='--help' lists options
	$(PYTHON) bench/abuse.py --build $(B) --out $(BUILD)/bench/abuse.jsonl $(ARGS)
.PHONY: bench-abuse
bench-tenants: $(bin) ## how jobs share one lane of a reducer, by weight and by connection, 3 minutes; ARGS='--help' lists options
	$(PYTHON) bench/tenants.py --build $(B) --out $(BUILD)/bench/tenants.jsonl $(ARGS)
.PHONY: bench-tenants

# what updating parameters would cost a reducer; for developers, not installed
bench_adam := $(B)/bench/reduction-bench-adam
$(B)/bench/adam.o: ISA := -O3 -march=native -fno-math-errno -fno-trapping-math -fvect-cost-model=dynamic
$(bench_adam): $(B)/bench/adam.o
	$(LINK) -o $@ $^ -lm
bench-adam: $(bench_adam) ## how fast one core of this machine updates parameters with AdamW, a second
	$<
.PHONY: bench-adam

# what a scrape of metrics costs a lane; for developers, not installed
bench_scrape := $(B)/bench/reduction-bench-scrape
$(bench_scrape): $(B)/bench/scrape.o $(server_cores) $(libconfig) $(libproto) $(libcommon)
	$(LINK) -o $@ $^ $(LIBS)
all: $(bench_scrape)
bench-scrape: $(bench_scrape) ## what a scrape of metrics costs a lane of a reducer, with 64 jobs of 256 ranks
	$<
.PHONY: bench-scrape

# bench/net: the laboratory of shaped links and its delay line, plain TCP as its
# yardstick, and each MPI whose compiler is found
tcp_loop   := $(B)/bench/tcp-loop
delay_line := $(B)/bench/delay-line
mpi_obj  := $(filter-out %/reduction_bench.o,$(bench_obj))
mpi_bin  := $(mpis:%=$(B)/bench/mpi-allreduce-%)
$(tcp_loop): $(B)/bench/net/tcp_loop.o $(mpi_obj) $(libcommon)
	$(LINK) -o $@ $^
$(delay_line): $(B)/bench/net/delay_line.o
	$(LINK) -o $@ $^
$(mpi_bin): $(B)/bench/mpi-allreduce-%: bench/peers/mpi_allreduce.c bench/bench.h $(mpi_obj) $(libcommon)
	$(if $(SAN),,mpicc.$* $(CFLAGS) $(OWN) -MF $@.d -o $@ $< $(mpi_obj) $(libcommon) -pthread -lm)
mpi_sharded := $(mpis:%=$(B)/bench/mpi-sharded-%)
$(mpi_sharded): $(B)/bench/mpi-sharded-%: bench/peers/mpi_sharded.c
	$(if $(SAN),,mpicc.$* $(CFLAGS) $(OWN) -MF $@.d -o $@ $<)
$(if $(SAN),,$(eval all: $(tcp_loop) $(delay_line) $(mpi_bin) $(mpi_sharded)))

bench-net: $(bin) $(tcp_loop) $(delay_line) $(bench_kernels) $(if $(gloo_found),$(gloo_ring)) $(mpi_bin) ## all-reduce on shaped links beside its peers; under 10 minutes, needs root; ARGS=--full: all rows, under 35; ARGS=--help
	$(PYTHON) bench/net/bench.py --build $(B) --out $(BUILD)/bench $(ARGS)
.PHONY: bench-net
bench-mpi: $(bin) $(lib) $(mpi_bin) $(mpi_table) ## MPI_Allreduce through reducers beside Open MPI's own, on shaped links, and what a call that is passed on costs; needs root; ARGS=--help
	$(PYTHON) bench/mpi.py --build $(B) $(ARGS)
.PHONY: bench-mpi
bench-sharded: $(bin) $(lib) $(mpi_sharded) $(tcp_loop) ## reduce-scatter and all-gather on shaped links, alone and at once, beside gloo and Open MPI; needs root; ARGS='--python PYTHON' with torch
	$(PYTHON) bench/sharded/bench.py --build $(B) $(ARGS)
.PHONY: bench-sharded
bench-uneven: $(bin) $(lib) $(tcp_loop) ## steps with sequences of uneven lengths on shaped links, with decoupled ranks and without; needs root; ARGS=--help
	$(PYTHON) bench/uneven/bench.py --build $(B) $(ARGS)
.PHONY: bench-uneven
bench-nccl: $(bin) $(nccl_plugin) $(B)/tests/nccl/exercise $(tcp_loop) ## the NCCL plugin without NCCL, on loopback and (as root) on shaped links; ARGS=--help
	$(PYTHON) bench/nccl.py --build $(B) $(ARGS)
.PHONY: bench-nccl
bench-call: $(bin) $(lib) ## what a small call of PyTorch's process group costs over the C API's, 1 minute; ARGS=--help
	$(PYTHON) bench/call.py --build $(B) $(ARGS)
.PHONY: bench-call
bench-step: $(bin) $(lib) ## whole training steps of PyTorch on shaped links, gloo beside reducers, needs root; ARGS=--help
	$(PYTHON) bench/step/step.py --build $(B) $(ARGS)
bench-overlap: $(bin) $(lib) ## draws how all-reduces run under backward, needs root; ARGS='--out FILE.svg'
	$(PYTHON) bench/step/overlap.py --build $(B) $(ARGS)
bench-jax: $(bin) $(lib) ## whole training steps of JAX on shaped links, gloo beside reducers, needs root; ARGS='--python venv/bin/python'
	$(PYTHON) bench/step/step_jax.py --build $(B) $(ARGS)
bench-fsdp: $(bin) $(lib) ## whole training steps of FSDP2, HSDP or ZeRO on CPUs on shaped links, gloo beside reducers, needs root; ARGS='--python PYTHON' with torch 2.9 or later
	$(PYTHON) bench/step/step_fsdp.py --build $(B) $(ARGS)
.PHONY: bench-step bench-overlap bench-jax bench-fsdp

# bench/wire: how exact sums of encoded gradients are, and trainings with them, in one
# process with the kernels of the product; for developers, not installed
wire_codec := $(B)/bench/wire-codec.so
$(wire_codec): $(B)/bench/wire/codec.o $(libcommon)
	$(LINK_SO) -o $@ $^ $(LIBS)
all: $(wire_codec)
bench-wire: $(wire_codec) ## errors of encoded sums, 1 minute; ARGS=--help lists options
	$(PYTHON) bench/wire/error.py --build $(B) $(ARGS)
bench-wire-train: $(wire_codec) ## small trainings with each encoding, 30 minutes of one core, needs torch; ARGS=--help lists options
	$(PYTHON) bench/wire/train.py --build $(B) $(ARGS)
.PHONY: bench-wire bench-wire-train

# bench/reconfigure: the next generation on connections that stay; for developers, not
# installed
bench_reconfigure := $(B)/bench/reduction-bench-reconfigure
$(bench_reconfigure): $(B)/bench/reconfigure/reconfigure.o $(filter-out %/reduction_bench.o,$(bench_obj)) $(libcommon) \
                      $(B)/lib/libreduction.so
	$(LINK) -o $@ $(filter %.o %.a,$^) -L$(B)/lib -lreduction -Wl$(COMMA)-rpath$(COMMA)'$$ORIGIN/../lib' -pthread -lm
all: $(bench_reconfigure)
bench-reconfigure: $(bin) $(bench_reconfigure) ## 64 ranks go on in the next generation, beside close and open, 1 minute; ARGS=--help
	$(bench_reconfigure) $(ARGS)
.PHONY: bench-reconfigure

bench-rebalance: $(bin) ## shares of reducers follow a link that becomes slow, beside a fixed map, needs root; ARGS=--help
	$(PYTHON) bench/rebalance/bench.py --build $(B) $(ARGS)
bench-noise: $(bin) ## shares of reducers keep still under random cross traffic for an hour, needs root; ARGS=--help
	$(PYTHON) bench/rebalance/noise.py --build $(B) $(ARGS)
bench-come-and-go: $(bin) ## all bars of reducers that come and go in one table, 2 hours, needs root; ARGS='--parts half,drain'
	$(PYTHON) bench/come_and_go.py --build $(B) $(ARGS)
.PHONY: bench-rebalance bench-noise bench-come-and-go
bench-elastic: $(bin) ## reducers come and go in a running job on shaped links, beside the plan, 3 minutes, needs root; ARGS=--help
	$(PYTHON) bench/elastic/bench.py --build $(B) $(ARGS)
.PHONY: bench-elastic

# bench/sites: outer steps between sites; the example that it runs is installed
bench-sites: $(bin) $(delay_line) ## outer steps between four sites of shaped links beside DDP, needs root and torch 2; ARGS=--help
	$(PYTHON) bench/sites/bench.py --build $(B) --plots $(BUILD)/bench $(ARGS)
.PHONY: bench-sites
