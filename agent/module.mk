# SPDX-License-Identifier: Apache-2.0
# the cores, which do no I/O, from the top down; then what is around them
include agent/node/core/module.mk agent/worker/core/module.mk agent/gpu/core/module.mk
agent_cores := $(libnode_core) $(libworker_core) $(libgpu_core)

include agent/worker/engine/module.mk
libagent := $(libworker_engine) $(agent_cores)

include agent/lib/direct/module.mk agent/lib/client/module.mk agent/node/daemon/module.mk agent/gpu/cuda/module.mk agent/gpu/copier/module.mk agent/lib/api/module.mk agent/nccl/module.mk
