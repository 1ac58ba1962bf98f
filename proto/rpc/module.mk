# SPDX-License-Identifier: Apache-2.0
# libreduction-grpc.so, all that knows gRPC: left out where libgrpc is missing
rpc_grpc_src := $(wildcard proto/rpc/grpc_*.c)
ifeq ($(GRPC),on)
lib += $(B)/lib/libreduction-grpc.so
$(rpc_grpc_src:%.c=$(B)/%.o): private ISA := $(GRPC_CFLAGS)
$(B)/lib/libreduction-grpc.so: $(rpc_grpc_src:%.c=$(B)/%.o) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(LINK_SO) -Wl,-soname,$(@F) -Wl,--exclude-libs,ALL -o $@ $^ $(GRPC_LIBS) -pthread -lm
endif

# what loads it
$(eval $(call archive,librpc,proto/rpc,$(filter-out $(rpc_grpc_src),$(wildcard proto/rpc/*.c))))
