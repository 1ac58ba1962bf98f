# SPDX-License-Identifier: Apache-2.0
# each kernel file is compiled for its own instructions, where the compiler's target has
# them
$(B)/common/kernels/avx2.o:   ISA := $(if $(target_x86),-mavx2 -mf16c -mfma)
$(B)/common/kernels/avx512.o: ISA := $(if $(target_x86),-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mf16c -mfma)

# the kernels of 64-bit ARM, compiled where a cross compiler is installed (Debian:
# gcc-aarch64-linux-gnu)
NEON_CC := aarch64-linux-gnu-gcc
compile-neon:
	@command -v $(NEON_CC) >/dev/null || { echo "compile-neon: skipped, there is no $(NEON_CC)"; exit 0; }; \
	for f in kernels cpu scalar neon avx2; do \
		$(NEON_CC) $(CFLAGS) -std=c11 -Wall -Wextra -Werror -ffp-contract=off -I. -c -o /dev/null common/kernels/$$f.c || exit 1; \
	done; echo "compile-neon: ok"
.PHONY: compile-neon
