# The core does no I/O: it is archived alone, so that the linker and `make layering` can hold it to that.
server_core_src := server/slot.c server/stripe.c server/stripe_known.c server/stripe_view.c server/stripe_late.c server/session.c server/session_tx.c server/lane.c server/registry.c server/handshake.c
server_io_src   := $(filter-out $(server_core_src),$(wildcard server/*.c))
libserver_core  := $(B)/server/libserver_core.a
$(libserver_core): $(server_core_src:%.c=$(B)/%.o)

bin += $(B)/bin/reduction-server
$(B)/bin/reduction-server: $(server_io_src:%.c=$(B)/%.o) $(libserver_core) $(libconfig) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(LINK) -o $@ $^ $(LIBS)
