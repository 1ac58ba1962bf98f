# SPDX-License-Identifier: Apache-2.0
# the cores, which do no I/O, from the top down; then what is around them
include agent/local/module.mk agent/core/module.mk agent/device/module.mk
agent_cores := $(libagent_local) $(libagent_core) $(libagent_device)

include agent/engine/module.mk
libagent := $(libagent_engine) $(agent_cores)

include agent/backend/module.mk agent/client/module.mk agent/daemon/module.mk agent/cuda/module.mk agent/copier/module.mk agent/api/module.mk agent/nccl/module.mk
