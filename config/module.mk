libconfig := $(B)/config/libconfig.a
$(libconfig): $(patsubst %.c,$(B)/%.o,$(filter-out config/reductionctl%.c,$(wildcard config/*.c)))
