# SPDX-License-Identifier: Apache-2.0
# The cores, which do no I/O ('make layering' checks that), from the top down: the agent's
# side of the local protocol, the worker's side of the wire protocol, the pieces of
# operations on the memory of devices.
$(eval $(call archive,libnode_core,agent/node/core))
$(eval $(call archive,libworker_core,agent/worker/core))
$(eval $(call archive,libgpu_core,agent/gpu/core))
agent_cores := $(libnode_core) $(libworker_core) $(libgpu_core)

include agent/worker/engine/module.mk
libagent := $(libworker_engine) $(agent_cores)

# around them: the direct backend over the engine; libreduction's side of the local
# protocol; the agent on a loop of its own, for the daemon and for a thread of a training
# process; CUDA, whose driver is loaded when the first buffer of a GPU comes; operations
# on the memory of devices, over a backend
$(eval $(call archive,libagent_direct,agent/lib/direct))
$(eval $(call archive,libagent_client,agent/lib/client))
$(eval $(call archive,libagent_daemon,agent/node/daemon,$(filter-out %/main.c,$(wildcard agent/node/daemon/*.c))))
$(eval $(call archive,libagent_cuda,agent/gpu/cuda))
$(eval $(call archive,libagent_copier,agent/gpu/copier))

bin += $(B)/bin/reduction-agent
$(B)/bin/reduction-agent: $(B)/agent/node/daemon/main.o $(libagent_daemon) $(libagent) $(libhost) $(libhttp_port) $(libhttp) $(libservice_uv) $(libservice) $(librpc) $(libconfig) $(libproto) $(libcommon)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK) -o $@ $^ $(LIBS) $(HTTP_LIBS)

include agent/lib/api/module.mk agent/nccl/module.mk agent/jax/module.mk agent/mpi/module.mk
