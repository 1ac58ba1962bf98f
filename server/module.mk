# SPDX-License-Identifier: Apache-2.0
# the reducer. server_io: its files that do I/O
server_io :=
include server/run/module.mk server/join/module.mk server/jobs/module.mk server/core/module.mk

# the cores, which do no I/O, each above those that it uses
server_cores := $(libserver_join) $(libserver_jobs) $(libserver_core)

bin += $(B)/bin/reduction-server
$(B)/bin/reduction-server: $(server_io:%.c=$(B)/%.o) $(server_cores) $(libhost) $(libhttp_port) $(libhttp) $(libservice_uv) $(libservice) $(librpc) $(libconfig) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS) $(HTTP_LIBS)
