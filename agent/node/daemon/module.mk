# SPDX-License-Identifier: Apache-2.0
# the agent on a loop of its own: the daemon, and a thread of a training process
libagent_daemon := $(B)/agent/node/daemon/libagent_daemon.a
$(libagent_daemon): $(patsubst %.c,$(B)/%.o,$(filter-out agent/node/daemon/main.c,$(wildcard agent/node/daemon/*.c)))

bin += $(B)/bin/reduction-agent
$(B)/bin/reduction-agent: $(B)/agent/node/daemon/main.o $(libagent_daemon) $(libagent) $(libhost) $(libhttp_port) $(libhttp) $(libservice_uv) $(libservice) $(librpc) $(libconfig) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS) $(HTTP_LIBS)
