# SPDX-License-Identifier: Apache-2.0
# a driver library of GPUs for tests on machines without any
fake_cuda := $(B)/tests/cuda/libcuda.so.1
$(fake_cuda): $(patsubst %.c,$(B)/%.o,$(wildcard tests/cuda/*.c))
	$(call say,LD,$@)$(LINK_SO) -Wl,-soname,$(@F) -o $@ $^ -pthread
