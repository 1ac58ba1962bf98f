# SPDX-License-Identifier: Apache-2.0
# The reducer: first the cores, which do no I/O ('make layering' checks that), each above
# those that it uses; then the process: its loops, threads and memory. The core files of
# server/join are listed here.
$(eval $(call archive,libserver_core,server/core))
$(eval $(call archive,libserver_jobs,server/jobs))
join_core := $(addprefix server/join/,handshake.c deadlines.c)
$(eval $(call archive,libserver_join,server/join,$(join_core)))
server_cores := $(libserver_join) $(libserver_jobs) $(libserver_core)
server_io    := $(wildcard server/run/*.c) $(filter-out $(join_core),$(wildcard server/join/*.c))

bin += $(B)/bin/reduction-server
$(B)/bin/reduction-server: $(server_io:%.c=$(B)/%.o) $(server_cores) $(libhost) $(libhttp_port) $(libhttp) $(libservice_uv) $(libservice) $(librpc) $(libconfig) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS) $(HTTP_LIBS)
