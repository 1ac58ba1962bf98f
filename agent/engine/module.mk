# SPDX-License-Identifier: Apache-2.0
# what moves the core's bytes, for the library and the daemon
libagent_engine := $(B)/agent/engine/libagent_engine.a
$(libagent_engine): $(patsubst %.c,$(B)/%.o,$(wildcard agent/engine/*.c))

# addresses are tested over a loop of the test's
$(B)/tests/unit/test_engine_address: $(patsubst %,$(B)/agent/engine/%.o,address lookup)
# and which sockets are ready over descriptors of the test's
$(B)/tests/unit/test_engine_poll: $(B)/agent/engine/poll.o
# and whose turn it is to send over connections of the test's
$(B)/tests/unit/test_engine_serve: $(B)/agent/engine/serve.o
# the whole engine
$(B)/tests/unit/test_engine_trace: $(patsubst %.c,$(B)/%.o,$(wildcard agent/engine/*.c))
