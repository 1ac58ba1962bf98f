# the worker's core, without any I/O: the linker keeps it so
agent_core_src := $(patsubst %,agent/%.c,exchange exchange_clock exchange_text link link_control nonfinite solo stream view retain window) $(filter-out %_uv.c,$(wildcard agent/local*.c))
libagent_core  := $(B)/agent/libagent_core.a
$(libagent_core): $(agent_core_src:%.c=$(B)/%.o)

# what moves its bytes, for the library and the daemon
agent_drv_src := $(wildcard agent/engine*.c) $(wildcard agent/local*_uv.c)
libagent      := $(B)/agent/libagent.a
$(libagent): $(agent_drv_src:%.c=$(B)/%.o)

# libreduction: the C API over the engine of this process or the agent
reduction_src := $(patsubst %,agent/%.c,reduction open comm request group direct node_agent) $(wildcard agent/client*.c) $(wildcard agent/agentd_*.c)
soname        := libreduction.so.$(firstword $(subst ., ,$(VERSION)))
lib           += $(B)/lib/libreduction.so
$(B)/lib/libreduction.so.$(VERSION): $(reduction_src:%.c=$(B)/%.o) $(libagent) $(libagent_core) $(librpc) $(libconfig) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK_SO) -Wl,-soname,$(soname) -Wl,--exclude-libs,ALL -o $@ $^ $(LIBS)
$(B)/lib/$(soname): $(B)/lib/libreduction.so.$(VERSION)
	$(call say,LN,$@)ln -sf $(<F) $@
$(B)/lib/libreduction.so: $(B)/lib/$(soname)
	$(call say,LN,$@)ln -sf $(<F) $@

# the daemon
agentd_src := $(wildcard agent/agentd*.c)
ifneq ($(agentd_src),)
bin += $(B)/bin/reduction-agent
$(B)/bin/reduction-agent: $(agentd_src:%.c=$(B)/%.o) $(libagent) $(libagent_core) $(librpc) $(libconfig) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS)
endif

# requests and groups are tested over a backend of the test's
$(B)/tests/unit/test_group: $(patsubst %,$(B)/agent/%.o,comm request group)
# and addresses over a loop of the test's
$(B)/tests/unit/test_engine_address: $(patsubst %,$(B)/agent/%.o,engine_address engine_lookup)
# and which sockets are ready over descriptors of the test's
$(B)/tests/unit/test_engine_poll: $(B)/agent/engine_poll.o
# and whose turn it is to send over connections of the test's
$(B)/tests/unit/test_engine_serve: $(B)/agent/engine_serve.o
