# SPDX-License-Identifier: Apache-2.0
# What both daemons share: what surrounds their loops; the control and health services of
# reducers and agents (the files of service_core do no I/O, the others connect them to the
# gRPC module), and the HTTP port with metrics and the status page.
$(eval $(call archive,libhost,common/host))
service_core := $(addprefix common/host/service/,events.c history.c service.c service_pack.c status_reply.c)
$(eval $(call archive,libservice,common/host/service,$(service_core)))
$(eval $(call archive,libservice_uv,common/host/service,$(filter-out $(service_core),$(wildcard common/host/service/*.c))))
include common/host/http/module.mk
