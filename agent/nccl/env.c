/* SPDX-License-Identifier: Apache-2.0 */
/* libnccl-env.so. NCCL 2.28 and later open a library of this name, and ask it for their
 * variables, before they open the network plugin: NCCL_COLLNET_ENABLE is read that early.
 * Programs whose NCCL_NET_PLUGIN does not name our plugin get the environment as it
 * is. */
#include "agent/nccl/abi.h"

#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* NCCL calls it once, before it reads a variable; it sets variables of its files
 * (nccl.conf) right before it. Variables that are set stay. Without the second one NCCL
 * 2.28 and 2.29 close the network plugin with the last communicator, and do not find it
 * again. */
static int env_init_v1(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix)
{
	const char *plugins = getenv("NCCL_NET_PLUGIN");

	(void)major, (void)minor, (void)patch, (void)suffix;
	if (plugins && strstr(plugins, "reduction")) {
		setenv("NCCL_COLLNET_ENABLE", "1", 0);
		setenv("NCCL_NET_PLUGIN_REF_COUNT", "1", 0);
	}
	return NCCL_SUCCESS;
}

static int env_init_v2(uint8_t major, uint8_t minor, uint8_t patch, const char *suffix, nccl_logger log)
{
	(void)log;
	return env_init_v1(major, minor, patch, suffix);
}

static int env_finalize(void)
{
	return NCCL_SUCCESS;
}

static const char *env_get(const char *name)
{
	return getenv(name);
}

EXPORT extern const struct nccl_env_v1 ncclEnvPlugin_v1;
EXPORT extern const struct nccl_env_v2 ncclEnvPlugin_v2;

const struct nccl_env_v1 ncclEnvPlugin_v1 = {"reduction", env_init_v1, env_finalize, env_get};
const struct nccl_env_v2 ncclEnvPlugin_v2 = {"reduction", env_init_v2, env_finalize, env_get};
