# SPDX-License-Identifier: Apache-2.0
# the handshake: from an accepted connection to an identified worker. The files of join_core do no I/O.
join_core      := handshake deadlines
libserver_join := $(B)/server/join/libserver_join.a
$(libserver_join): $(join_core:%=$(B)/server/join/%.o)
server_io      += $(filter-out $(join_core:%=server/join/%.c),$(wildcard server/join/*.c))
