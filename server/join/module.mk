# SPDX-License-Identifier: Apache-2.0
# from accepting a connection to knowing whose it is. These files do no I/O and are an archive of their own.
join_core      := handshake deadlines
libserver_join := $(B)/server/join/libserver_join.a
$(libserver_join): $(join_core:%=$(B)/server/join/%.o)
server_io      += $(filter-out $(join_core:%=server/join/%.c),$(wildcard server/join/*.c))
