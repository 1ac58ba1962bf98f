# SPDX-License-Identifier: Apache-2.0
# a program that calls the NCCL plugin as NCCL does; tests/e2e/nccl/test_nccl.py links it
# also into one in C++
nccl_exercise := $(B)/tests/nccl/exercise
$(nccl_exercise): $(patsubst %.c,$(B)/%.o,$(wildcard tests/nccl/*.c)) $(libcommon)
	$(LINK) -o $@ $^ -ldl

# NCCL itself, without a GPU: a rank, and the library that it takes for NVIDIA's
nccl_rank := $(B)/tests/nccl/real/rank
nccl_nvml := $(B)/tests/nccl/real/libnvidia-ml.so.1
$(nccl_rank): $(patsubst %.c,$(B)/%.o,$(filter-out %/nvml.c,$(wildcard tests/nccl/real/*.c)))
	$(LINK) -Wl,--export-dynamic-symbol=sched_yield,--export-dynamic-symbol=recv -o $@ $^ -ldl -pthread
# sanitizers see the plugin alone: they do not see how libnccl passes memory from thread
# to thread
$(B)/tests/nccl/real/%.o: private ISA := $(if $(SAN),-fno-sanitize=all)
$(nccl_nvml): $(B)/tests/nccl/real/nvml.o
	$(call say,LD,$@)$(LINK_SO) -Wl,-soname,$(@F) -o $@ $^
NCCL_REAL := REDUCTION_BUILD=$(B) REDUCTION_SAN=$(SAN) $(PYTHON) tests/nccl/real/versions.py
nccl-versions: all $(nccl_rank) $(nccl_nvml) ## run the NCCL plugin with NCCL 2.20 to 2.32 from PyPI, without a GPU; prints a table
	$(NCCL_REAL) $(ARGS)
nccl-versions-ci: all $(nccl_rank) $(nccl_nvml) # the versions that PyTorch pins, and the newest
	$(NCCL_REAL) --ci $(ARGS)
.PHONY: nccl-versions nccl-versions-ci
