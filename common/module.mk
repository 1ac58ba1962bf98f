common_src := $(wildcard common/*.c)
libcommon  := $(B)/common/libcommon.a
$(libcommon): $(common_src:%.c=$(B)/%.o)
$(B)/common/kernels_avx2.o:   ISA := $(if $(filter x86_64,$(shell uname -m)),-mavx2 -mf16c -mfma)
$(B)/common/kernels_avx512.o: ISA := $(if $(filter x86_64,$(shell uname -m)),-mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mf16c -mfma)
