# SPDX-License-Identifier: Apache-2.0
# Every test_*.c below tests/unit is one Check program over the core archives, every one
# below tests/e2e a program over libreduction. Their folders are the rooms that they test;
# the other files of tests/unit and tests/e2e are shared.
include tests/nccl/module.mk tests/gpu/module.mk tests/cuda/module.mk tests/mpi/module.mk
unit_bin  := $(patsubst %.c,$(B)/%,$(wildcard $(addsuffix test_*.c,tests/unit/ tests/unit/*/ tests/unit/*/*/ tests/unit/*/*/*/)))
e2e_bin   := $(patsubst %.c,$(B)/%,$(wildcard tests/e2e/test_*.c tests/e2e/*/test_*.c))
# workers of end-to-end tests, and libraries to preload, some of which need the C
# library's own allocator
e2e_shims := $(patsubst %.c,$(B)/%.so,$(wildcard tests/e2e/shim_*.c))
e2e_workers := $(patsubst %.c,$(B)/%,$(wildcard tests/e2e/worker_*.c))
e2e_help  := $(e2e_workers) $(if $(SAN),,$(mpi_table)) $(nccl_exercise) $(nccl_rank) $(nccl_nvml) $(fake_cuda) $(gpu_bin) $(if $(SAN),,$(gpu_fakes)) $(if $(SAN),,$(e2e_shims))
core_libs := $(server_cores) $(agent_cores) $(libservice) $(libconfig) $(libproto) $(libcommon)
RUN       := $(PYTHON) tests/run.py $(if $(MATCH),--match $(MATCH))
nproc     := $(shell nproc)
par        = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(nproc))

$(eval $(call archive,libhelp,tests/unit,$(filter-out tests/unit/test_%,$(wildcard tests/unit/*.c))))
$(unit_bin): $(B)/%: $(B)/%.o $(libhelp) $(librpc) $(core_libs)
	$(if $(CHECK_LIBS),,$(call missing,check))$(LINK) $(WRAP) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS) $(unit_libs) $(CHECK_LIBS)
# what has to do with sockets of the system
$(B)/tests/unit/proto/rpc/test_unauthenticated: $(B)/server/join/listener_posix.o
# a lane's thread, without an accept loop
$(B)/tests/unit/server/run/test_lane_uv: $(patsubst %,$(B)/server/run/%.o,lane_uv lane_conn lane_tcp tcp_path lane_grpc lane_command lane_load_posix lane_uplink mailbox_uv) $(B)/server/join/secrets.o
# the host of a daemon
host_libs := $(libhost) $(libhttp_port) $(libhttp) $(libservice_uv) $(libservice) $(librpc) $(libconfig) $(libproto) $(libcommon)
$(B)/tests/unit/common/host/test_host: $(host_libs)
$(B)/tests/unit/common/host/test_host: private unit_libs := -Wl,--start-group $(host_libs) -Wl,--end-group $(LIBS) $(HTTP_LIBS)
# answers of the HTTP port, without the port
$(B)/tests/unit/common/host/test_metrics: $(B)/common/host/http/answer.o $(libhttp)
# the records of jobs on disk
$(B)/tests/unit/common/host/test_record_file: $(B)/common/host/record_file.o
# the plugin's communicator, with an engine of the test
$(B)/tests/unit/agent/nccl/test_coll: $(patsubst %,$(B)/agent/nccl/%.o,coll coll_open coll_close plugin device slice tuner)
$(B)/tests/unit/agent/nccl/test_coll: private WRAP := -Wl,--wrap=pthread_mutex_lock
$(B)/tests/unit/agent/nccl/test_tuner: $(B)/agent/nccl/tuner.o
$(B)/tests/unit/agent/nccl/test_slice: $(B)/agent/nccl/slice.o
# the variables of MPI programs
$(B)/tests/unit/agent/mpi/test_settings: $(patsubst %,$(B)/agent/mpi/%.o,settings report)
# rules of reductionctl
$(addprefix $(B)/tests/unit/deploy/ctl/,test_doctor test_doctor_watch test_doctor_past test_doctor_far test_doctor_relays): $(patsubst %,$(B)/deploy/ctl/%.o,doctor_findings doctor_rules doctor_relays doctor_watch doctor_past doctor_far)
$(B)/tests/unit/deploy/ctl/test_archive: $(B)/deploy/ctl/archive.o $(gzip_obj)
$(B)/tests/unit/deploy/ctl/test_archive: private unit_libs := $(ZLIB_LIBS)
$(B)/tests/unit/deploy/ctl/test_gzip: $(B)/deploy/ctl/gzip_stored.o
$(B)/tests/unit/deploy/ctl/test_bundle_redact: $(B)/deploy/ctl/bundle_redact.o
$(B)/tests/unit/deploy/ctl/test_query: $(patsubst %,$(B)/deploy/ctl/%.o,query shared file) $(libhttp)
$(B)/tests/unit/deploy/ctl/test_notice: $(patsubst %,$(B)/deploy/ctl/%.o,notice_http notice_provider) $(libconfig)
$(B)/tests/unit/deploy/ctl/test_timeline: $(patsubst %,$(B)/deploy/ctl/%.o,timeline timeline_clock timeline_json) $(libhttp)
# loads the module
$(B)/tests/unit/proto/rpc/test_rpc $(B)/tests/unit/proto/rpc/test_rpc_query: | $(filter %-grpc.so,$(lib))
# where this program stands between the code and what allocates
$(B)/tests/unit/common/test_oom: private WRAP := $(addprefix -Wl$(COMMA)--wrap=,malloc calloc realloc strdup posix_memalign \
                                            XXH3_createState yaml_parser_initialize yaml_parser_parse)
$(B)/tests/unit/server/run/test_lane_uv: private WRAP := $(addprefix -Wl$(COMMA)--wrap=,malloc calloc realloc posix_memalign lane_check)
# where the lock is held
$(B)/tests/unit/common/test_loop_uv: private WRAP := -Wl,--wrap=uv_loop_init
$(B)/tests/unit/common/test_tcp_conn: private WRAP := -Wl,--wrap=ERR_clear_error
# and the name servers
$(B)/tests/unit/agent/worker/engine/test_engine_address: private WRAP := -Wl,--wrap=getaddrinfo
$(e2e_bin) $(e2e_workers): $(B)/%: $(B)/%.o $(B)/lib/libreduction.so
	$(LINK) -o $@ $(filter %.o,$^) -L$(B)/lib -lreduction -Wl,-rpath,'$$ORIGIN/../../lib:$$ORIGIN/../../../lib' $(e2e_libs) -pthread -lm
$(addprefix $(B)/tests/e2e/,$(addprefix lib/test_,abort capi capi_arguments capi_ends closed wait) gpu/test_device gpu/test_device_sharded): $(B)/tests/e2e/ranks.o
$(B)/tests/e2e/worker_encode: $(patsubst %.c,$(B)/%.o,$(wildcard common/kernels/*.c) common/dtype.c common/error.c common/wire.c)
# libreduction finds the driver library that the program has loaded
$(addprefix $(B)/tests/e2e/gpu/,test_device test_device_sharded): private e2e_libs := -L$(B)/tests/cuda -l:libcuda.so.1 -Wl,-rpath,'$$ORIGIN/../../cuda'
$(addprefix $(B)/tests/e2e/gpu/,test_device test_device_sharded): $(fake_cuda)
$(e2e_shims): $(B)/tests/e2e/%.so: $(B)/tests/e2e/%.o
	$(LINK_SO) -o $@ $<

# the simulator: every other file of its folder belongs to tests/sim/test_sim.c
sim_bin := $(B)/tests/sim/test_sim
$(sim_bin): $(patsubst %.c,$(B)/%.o,$(wildcard tests/sim/*.c)) $(core_libs)
	$(LINK) -o $@ $^ $(LIBS)
$(sim_bin): private LDFLAGS += -Wl,--wrap=rs_fail

sim: $(sim_bin) ## simulate SEEDS=N random schedules from SEED=first on; NAMESAKES=1: several trainings of one name; TRACE=1 tells the story of one
	$(sim_bin) $(if $(SEEDS),--seeds $(SEEDS),$(if $(TRACE),--seeds 1)) $(if $(SEED),--first $(SEED)) $(if $(NAMESAKES),--namesakes) $(if $(GROUPED),--grouped) $(if $(TRACE),--trace)

# fuzz targets: with libFuzzer where the sanitizers say so, else programs that run files,
# for the tests
fuzz_bin := $(patsubst %.c,$(B)/%,$(wildcard tests/fuzz/fuzz_*.c))
libfuzz  := $(findstring fuzzer-no-link,$(SAN))
$(fuzz_bin): $(B)/%: $(B)/%.o $(B)/tests/fuzz/fuzz.o $(if $(libfuzz),,$(B)/tests/fuzz/replay.o) $(librender) $(core_libs)
	$(LINK) $(if $(libfuzz),-fsanitize=fuzzer) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS)
$(B)/tests/fuzz/fuzz_server: $(B)/tests/fuzz/server_world.o
fuzz-programs: $(fuzz_bin)
fuzz: ## list the fuzz targets; fuzz TARGET=name for SECONDS=N (60), see tests/fuzz/README.md
	BUILD=$(BUILD) tests/fuzz/fuzz.sh $(if $(TARGET),run $(TARGET) $(or $(SECONDS),60),list)
fuzz-merge: ## take over into tests/fuzz/corpus what fuzzing TARGET has learnt
	BUILD=$(BUILD) tests/fuzz/fuzz.sh merge $(TARGET)
fuzz-coverage: ## say how much of the parsers and cores the inputs in tests/fuzz/corpus reach
	BUILD=$(BUILD) tests/fuzz/fuzz.sh coverage

# faults on real processes, and for a long time
FAULT := REDUCTION_BUILD=$(B) REDUCTION_SAN=$(SAN) $(PYTHON) tests/fault
fault: all ## train while reducers, agents, workers and links fail: ROUNDS=N (20) from SEED=first on; as root links too
	$(FAULT)/fault.py --out $(BUILD)/fault $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)
mix: all ## start two trainings that look alike: ROUNDS=N (20) of each kind in each mode; is a sum ever that of both
	$(FAULT)/mix.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)
soak: all ## jobs and faults for MINUTES=N (5): is every result right, does memory stay flat
	$(FAULT)/soak.py --out $(BUILD)/soak/soak.jsonl $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

unit: $(unit_bin) ## run the unit tests of one build; MATCH=text: only those with text in their name
	$(RUN) --only unit $(B)=$(SAN)
e2e: all $(e2e_bin) $(e2e_help) ## run the end-to-end tests of one build
	$(RUN) --only e2e $(B)=$(SAN)

fault-table: all ## make each fault: after how many seconds do alert, doctor, event, metric, page and jobs show it
	FAULT_TABLE=$(abspath $(BUILD))/faults.jsonl $(PYTHON) tests/run.py --only e2e --match server/test_alerts $(B)=$(SAN)
	cat $(BUILD)/faults.jsonl

versions: all ## test the backend of torch.distributed with many versions of torch from PyPI, two hours, then trainers; ARGS="2.15.0 --own"
	$(PYTHON) tests/versions.py $(ARGS)
	$(if $(ARGS),,$(MAKE) trainers)

versions-jax: all ## test JAX on CPUs with two versions of jax from PyPI, 12 minutes; ARGS="0.12.0.1"
	$(PYTHON) tests/versions_jax.py $(ARGS)

versions-ci: all ## the same with the newest and the oldest version of torch, some of our own tests only
	$(PYTHON) tests/versions.py --short 2.15.0 1.13.1

conformance: ## check the answers of the reducer at ADDRESS=host:port to bad frames; TRANSPORT=grpc; SECRET=file: to bad proofs; RELAYS=1
	$(PYTHON) tests/e2e/conformance.py $(or $(ADDRESS),$(error ADDRESS=host:port of a reducer is missing)) \
		$(filter grpc,$(TRANSPORT)) $(if $(RELAYS),relays) $(SECRET)

core-programs: $(unit_bin) $(sim_bin) $(fuzz_bin)
test-programs: all core-programs $(e2e_bin) $(e2e_help)

# Two parts, of which tests/run.py --help says what is in them: 'make test' for every
# change, 'make test-all' for both. With WERROR, as in continuous integration, test-all
# also checks the format and compiles everything with clang, whose warnings do not depend
# on optimization. REST=1 leaves out what 'make test' has run, TURN=I/N most end-to-end
# tests under sanitizers, BUILT=1 the builds, which 'make test-all-build' has made.
test_builds := $(BUILD)/default $(BUILD)/address-undefined=address,undefined $(BUILD)/thread=thread
layering    := --check '$(MAKE) BUILD=$(BUILD) CC="$(CC)" layering'
checks      := $(if $(WERROR),--check '$(MAKE) BUILD=$(BUILD) lint' \
                 --check '$(MAKE) -j$(nproc) BUILD=$(BUILD)/clang CC=clang CFLAGS=-O0 test-programs')
test-build: ## install what is missing and build all that 'make test' runs
	deploy/install-deps.sh build test
	$(MAKE) $(par) test-programs
	$(MAKE) $(par) core-programs SAN=address,undefined
	$(MAKE) $(par) core-programs SAN=thread
test-all-build: test-build ## the same for 'make test-all'
	deploy/install-deps.sh build test test-all $(if $(WERROR),lint)
	$(MAKE) $(par) test-programs SAN=address,undefined
	$(MAKE) $(par) test-programs SAN=thread
	if command -v dh >/dev/null; then $(MAKE) deb; fi
	$(MAKE) rpm || echo "no archive and no rpm here: their tests are skipped"
test: test-build ## install what is missing, build, and run the tests that every change needs: about 10 minutes
	$(RUN) --part test --again 3 $(layering) $(test_builds)
test-all: $(if $(BUILT),,test-all-build) ## all tests: also Slurm, Kubernetes, packages, end to end under sanitizers; REST=1: without those of make test
	$(RUN) $(if $(REST),--part rest) $(if $(TURN),--turn $(TURN)) --again 3 $(if $(REST),,$(layering)) $(checks) $(test_builds)

# the newest tag, or before the first one a commit: with the whole history only
compat: all ## let workers and reducers of the release before this one meet those of this one; builds the old ones first
	tests/compat.sh $(BUILD)/compat $(MAKE) $(par) || [ $$? = 77 ]
	$(PYTHON) tests/run.py --only e2e --match compat $(B)

TORCH ?= torch
torch-cuda: all ## check PyTorch's CUDA tensors on a fake CUDA, without a GPU; installs TORCH=torch==X from PyPI into VENVS=build/venvs
	$(PYTHON) tests/venv.py torch-cuda $(TORCH) numpy || [ $$? = 77 ]
	$(PYTHON) tests/run.py --only e2e --match torch_cuda $(B)

TRAINERS_TORCH ?= torch==2.13.0
TRAINERS := numpy transformers accelerate trl peft datasets lightning timm deepspeed "ray[train]" torchft==0.2.0 \
  parameterized setuptools
trainers: all ## train with packages of PyPI, with gloo and with our backend; into VENVS=build/venvs
	$(PYTHON) tests/venv.py trainers $(TRAINERS_TORCH) $(TRAINERS) || [ $$? = 77 ]
	$(PYTHON) tests/venv.py trainers-4.46 $(TRAINERS_TORCH) "numpy<2" transformers==4.46.3 "accelerate<1.2" setuptools || [ $$? = 77 ]
	$(PYTHON) tests/run.py --only e2e --match trainers $(B)

OTHERS := numpy grpcio torch==2.14.1 cryptography tensorflow-cpu ray auditwheel
wheel-others: all ## the wheel beside packages of PyPI, and in Pythons 3.9 to 3.14; into VENVS=build/venvs, 6 GB
	$(PYTHON) tests/venv.py others $(OTHERS) || [ $$? = 77 ]
	for python in 3.9 3.10 3.11 3.12 3.13 3.14; do $(PYTHON) tests/venv.py $$python numpy pip || [ $$? = 77 ] || exit 1; done
	$(PYTHON) tests/run.py --only e2e --match wheel_others $(B)

fresh: ## do what the README says in bare roots of Debian 12 and 13, as root; ARGS=--help lists options
	deploy/install-deps.sh fresh
	$(PYTHON) tests/fresh/fresh.py --cache $(BUILD)/fresh $(ARGS) || [ $$? = 77 ]

# Objects with a section for each function show which functions use which. Files of
# optional libraries are not compiled everywhere.
layering_cflags := -O0 -ffunction-sections -fdata-sections -fno-jump-tables
layering_obj     = $(patsubst %.c,$(B)/%.o,$(shell find common proto config server agent deploy -name '*.c' \
                     -not -path '*/examples/*' -not -name 'grpc_*' $(if $(filter on,$(HTTP)),,-not -name port_mhd.c) \
                     $(if $(filter on,$(ZLIB)),,-not -name gzip_zlib.c)))
layering: ## check that cores do no I/O, the includes between folders, and for circles of files
	$(MAKE) $(par) BUILD=$(BUILD)/layering SAN= CFLAGS='$(layering_cflags)' layering-check
layering-check: $(core_libs) $(layering_obj)
	$(PYTHON) tests/layering.py --objects $(B) $(addprefix --core ,$(server_cores) $(agent_cores) $(libservice)) \
		$(addprefix --library ,$(libconfig) $(libproto) $(libcommon))

lint: $(gen_h) ## check format, scripts, common mistakes, and names in comments and documents
	tests/lint.sh $(B)/gen
format: ## format all C files
	clang-format -i $$(tests/lint.sh --list-c)
.PHONY: unit sim fault fault-table soak versions versions-jax versions-ci conformance fuzz fuzz-programs fuzz-merge fuzz-coverage e2e core-programs test-programs test-build test-all-build test test-all compat torch-cuda trainers wheel-others fresh layering layering-check lint format
