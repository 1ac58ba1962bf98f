# SPDX-License-Identifier: Apache-2.0
# checks on a machine with a GPU; see tests/gpu/README.md
gpu_bundle := $(BUILD)/gpu
gpu_bin    := $(addprefix $(B)/tests/gpu/,check-gpu gpu-cpu gpu-nccl gpu-device gpu-links)
gpu_obj     = $(patsubst %,$(B)/tests/gpu/%.o,$(1))
$(B)/tests/gpu/check-gpu: $(call gpu_obj,check_gpu found cuda nccl_api links proc row)
$(B)/tests/gpu/gpu-cpu: $(call gpu_obj,cpu reducers links proc row)
$(B)/tests/gpu/gpu-nccl: $(call gpu_obj,nccl nccl_rank nccl_log nccl_api cuda values reducers links proc row)
$(B)/tests/gpu/gpu-links: $(call gpu_obj,links_main links proc)
$(B)/tests/gpu/gpu-device: $(call gpu_obj,device device_rank cuda values reducers links proc row) $(B)/lib/libreduction.so
# in the bundle and in the folder of the build
$(B)/tests/gpu/gpu-device: private gpu_libs := -L$(B)/lib -lreduction -Wl,-rpath,'$$ORIGIN/../lib:$$ORIGIN/../../lib'
$(gpu_bin):
	$(LINK) -o $@ $(filter %.o,$^) $(gpu_libs) -ldl -lm

# libraries in place of the driver's and NCCL's, for tests without a GPU
gpu_fakes := $(addprefix $(B)/tests/gpu/fake/,libcuda.so.1 libnccl.so.2)
$(B)/tests/gpu/fake/libcuda.so.1: $(call gpu_obj,fake/fake_cuda)
$(B)/tests/gpu/fake/libnccl.so.2: $(call gpu_obj,fake/fake_nccl) $(B)/tests/nccl/tables.o
$(gpu_fakes):
	$(LINK_SO) -o $@ $^ -ldl -pthread

gpu-bundle: all $(gpu_bin) $(nccl_exercise) ## make build/gpu: what check-gpu needs on a machine without packages
	tests/gpu/bundle.sh $(B) $(gpu_bundle)
check-gpu: ## run the checks with a GPU, at most 9 minutes; ARGS='cpu device': only these parts; says so if there is no GPU
	[ -x $(gpu_bundle)/bin/check-gpu ] || $(MAKE) gpu-bundle
	$(gpu_bundle)/bin/check-gpu $(ARGS) || [ $$? = 77 ]
.PHONY: gpu-bundle check-gpu
