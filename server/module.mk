# The core does no I/O: it is archived alone, so that the linker and `make layering` can hold it to that.
server_core_src := $(patsubst %,server/%.c,slot stripe stripe_known stripe_view stripe_late session session_tx lane report \
                     status events registry registry_status service service_pack handshake deadlines)
server_io_src   := $(filter-out $(server_core_src),$(wildcard server/*.c))
libserver_core  := $(B)/server/libserver_core.a
$(libserver_core): $(server_core_src:%.c=$(B)/%.o)

bin += $(B)/bin/reduction-server
$(B)/bin/reduction-server: $(server_io_src:%.c=$(B)/%.o) $(libserver_core) $(librpc) $(libconfig) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIBS)
