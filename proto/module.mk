gen_h    := $(B)/gen/proto/reduction.pb-c.h
libproto := $(B)/proto/libproto.a
$(libproto): $(patsubst %.c,$(B)/%.o,$(wildcard proto/*.c)) $(B)/gen/proto/reduction.pb-c.o
$(B)/gen/proto/reduction.pb-c.c $(B)/gen/proto/reduction.pb-c.h &: proto/reduction.proto
	@mkdir -p $(B)/gen
	protoc-c --c_out=$(B)/gen $<
