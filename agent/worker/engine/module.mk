# SPDX-License-Identifier: Apache-2.0
# what moves the core's bytes, for the library and the daemon
engine_src := $(filter-out %/uv_static.c,$(wildcard agent/worker/engine/*.c))
$(eval $(call archive,libworker_engine,agent/worker/engine,$(engine_src)))

# The shared libraries bring their own libuv where a static one can be in a shared
# library: a program may export functions of the same names, which would take their place,
# and the allocator of a shared libuv belongs to the program.
uv_own_obj  := $(if $(libuv_static),$(B)/agent/worker/engine/uv_static.o)
uv_own_libs := $(if $(libuv_static),$(addprefix -Wl$(COMMA)--wrap=,$(libuv_wrap)) $(libuv_static) -ldl $(filter-out -luv,$(LIBS)),$(LIBS))

# addresses are tested over a loop of the test's
$(B)/tests/unit/agent/worker/engine/test_engine_address: $(patsubst %,$(B)/agent/worker/engine/%.o,address lookup)
# and which sockets are ready over descriptors of the test's
$(B)/tests/unit/agent/worker/engine/test_engine_poll: $(B)/agent/worker/engine/poll.o
# and whose turn it is to send over connections of the test's
$(B)/tests/unit/agent/worker/engine/test_engine_serve: $(B)/agent/worker/engine/serve.o
# the whole engine
$(B)/tests/unit/agent/worker/engine/test_engine_trace: $(engine_src:%.c=$(B)/%.o)
# and which machine fills which slot of a name over reducers of the test's
$(B)/tests/unit/agent/worker/engine/test_name_slots: $(B)/agent/worker/engine/name_slots.o
