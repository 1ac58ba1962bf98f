# SPDX-License-Identifier: Apache-2.0
# checks on a machine with a GPU; see tests/gpu/README.md
gpu_bundle := $(BUILD)/gpu
gpu_bin    := $(addprefix $(B)/tests/gpu/,check-gpu gpu-cpu)
gpu_obj     = $(patsubst %,$(B)/tests/gpu/%.o,$(1))
$(B)/tests/gpu/check-gpu: $(call gpu_obj,check_gpu found cuda nccl_api links proc row)
$(B)/tests/gpu/gpu-cpu: $(call gpu_obj,cpu reducers links proc row)
$(gpu_bin):
	$(LINK) -o $@ $^ -ldl

gpu-bundle: all $(gpu_bin) $(nccl_exercise) ## make build/gpu: what check-gpu needs on a machine without packages
	tests/gpu/bundle.sh $(B) $(gpu_bundle)
check-gpu: ## run the checks with a GPU, at most 9 minutes; ARGS='cpu' ...: only these parts; without a GPU exit status 77
	[ -x $(gpu_bundle)/bin/check-gpu ] || $(MAKE) gpu-bundle
	$(gpu_bundle)/bin/check-gpu $(ARGS)
.PHONY: gpu-bundle check-gpu
