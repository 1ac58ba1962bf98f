/* SPDX-License-Identifier: Apache-2.0 */
#include "config/check/check.h"

#include "common/kernels/kernels.h"
#include "common/tls.h"
#include "proto/rpc/rpc.h"

static void check_cpu(struct check *c, const char *section, const char *name)
{
	const struct rs_kernels *kernels;
	struct rs_err e;

	if (!c->elsewhere && rs_kernels_select(name, &kernels, &e))
		check_add(c, CHECK_ERROR, section, -1, "cpu", &e);
}

/* Checks that the module for gRPC can be loaded, which a key requires. */
static void check_module(struct check *c, const char *section, const char *key)
{
	const struct rpc_api *rpc;
	struct rs_err e;

	if (!c->elsewhere && rpc_load(&rpc, &e))
		check_add(c, CHECK_ERROR, section, -1, key, &e);
}

void check_server_start(struct check *c)
{
	check_cpu(c, "server", c->cfg->server.cpu);
	check_secrets(c, false);
	check_tls(c, RS_TLS_REDUCER);
	check_listens(c);
	if (c->cfg->server.grpc[0])
		check_module(c, "server", "grpc");
	if (c->cfg->server.grpc[0] || c->cfg->server.http[0])
		check_tokens(c);
}

void check_server(struct check *c)
{
	struct rs_err e;

	check_server_start(c);
	check_secrets(c, true);
	check_tokens(c);
	check_memory(c, "server", "memory", c->cfg->server.memory_bytes);
	if (c->cfg->security.tls != TLS_MUTUAL || c->cfg->access_n)
		return;
	rs_fail(&e, RS_ECONFIG, "mutual without a section access: this reducer refuses every worker");
	check_add(c, CHECK_WARNING, "security", -1, "tls", &e);
}

/* What each job of an agent or a worker needs. */
static void check_engine(struct check *c)
{
	check_secret(c);
	check_tls(c, RS_TLS_WORKER);
	if (c->cfg->job.grpc)
		check_module(c, "job", "transport");
	check_group(c);
	if (!c->elsewhere && !c->connects)
		check_names(c);
}

/* What the agent itself needs, without what its jobs need. */
static void check_agent_self(struct check *c)
{
	struct rs_err e;

	check_cpu(c, "agent", c->cfg->agent.cpu);
	if (!c->elsewhere && check_socket(c->cfg->agent.socket, &e))
		check_add(c, CHECK_ERROR, "agent", -1, "socket", &e);
	if (c->cfg->agent.http[0])
		check_http(c, &(struct check_http_port){.section = "agent",
							.address = c->cfg->agent.http,
							.tls = c->cfg->agent.http_tls,
							.insecure = c->cfg->agent.insecure});
}

/* The files of security.tls may come later, as those of its jobs; but without their names
 * no job can ever start. */
void check_agent_start(struct check *c)
{
	check_agent_self(c);
	check_tls_named(c, RS_TLS_WORKER);
}

void check_agent(struct check *c)
{
	check_agent_self(c);
	check_memory(c, "agent", "shm_bytes", c->cfg->agent.shm_bytes);
	check_engine(c);
}

void check_worker(struct check *c)
{
	check_engine(c);
}

unsigned check_roles_of(const struct check *c)
{
	/* workers show a certificate with mutual TLS only */
	bool reducer_tls = c->cfg->security.tls == TLS_ON && c->cfg->security.certificate[0];
	unsigned roles = 0;

	if (check_has(c, "server", NULL) || check_has(c, "access", NULL) || reducer_tls)
		roles |= CHECK_SERVER;
	if (check_has(c, "agent", NULL))
		roles |= CHECK_AGENT;
	if (!roles || check_has(c, "reducers", NULL) || check_has(c, "security", "secret"))
		roles |= CHECK_WORKER;
	return roles;
}
