# SPDX-License-Identifier: Apache-2.0
gen_proto := reduction health
gen_h     := $(gen_proto:%=$(B)/gen/proto/%.pb-c.h)
$(eval $(call archive,libproto,proto))
$(libproto): $(gen_proto:%=$(B)/gen/proto/%.pb-c.o)
$(B)/gen/proto/%.pb-c.c $(B)/gen/proto/%.pb-c.h: proto/%.proto
	@mkdir -p $(B)/gen
	protoc --c_out=$(B)/gen $<
# make must not delete a file that no rule names, and then generate it again
.SECONDARY: $(filter %.pb-c.c,$(gen_h:.h=.c))
include proto/rpc/module.mk
