# SPDX-License-Identifier: Apache-2.0
# a program that calls the NCCL plugin as NCCL does; tests/e2e/nccl/test_nccl.py links it also into one in C++
nccl_exercise := $(B)/tests/nccl/exercise
$(nccl_exercise): $(patsubst %.c,$(B)/%.o,$(wildcard tests/nccl/*.c)) $(libcommon)
	$(LINK) -o $@ $^ -ldl
