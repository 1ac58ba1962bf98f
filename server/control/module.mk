# SPDX-License-Identifier: Apache-2.0
# the control and health services. The files of control_core do no I/O.
control_core      := service service_pack
libserver_control := $(B)/server/control/libserver_control.a
$(libserver_control): $(control_core:%=$(B)/server/control/%.o)
server_io         += $(filter-out $(control_core:%=server/control/%.c),$(wildcard server/control/*.c))
