# SPDX-License-Identifier: Apache-2.0
# the control and health services of reducers and agents. The files of service_core do no I/O.
service_core   := events service service_pack
libservice     := $(B)/common/host/service/libservice.a
$(libservice): $(service_core:%=$(B)/common/host/service/%.o)
# what connects them to the gRPC module
libservice_uv  := $(B)/common/host/service/libservice_uv.a
$(libservice_uv): $(patsubst %.c,$(B)/%.o,$(filter-out $(service_core:%=common/host/service/%.c),$(wildcard common/host/service/*.c)))
