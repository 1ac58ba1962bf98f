# SPDX-License-Identifier: Apache-2.0
# what both daemons share: the control and health services, and the HTTP port with metrics and the status page
include common/host/service/module.mk common/host/http/module.mk
