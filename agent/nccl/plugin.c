/* SPDX-License-Identifier: Apache-2.0 */
/* The happy path: NCCL's first communicator calls plugin_init, which reads the
 * configuration and finds the device; later communicators find them. Failure modes: a
 * setting is wrong. Then NCCL reads one warning, and uses its own network, or with
 * REDUCTION_REQUIRED=1 every call fails. */
#include "agent/nccl/plugin.h"
#include "common/descriptors.h"
#include "config/cluster.h"
#include "config/identity.h"
#include "config/launch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *plugin_variable(const char *name)
{
	return rs_launch_look_up(NULL, NULL, name);
}

/* Appends " key=value". */
static size_t plugin_put(char *text, size_t room, size_t n, const struct rs_kv *kv)
{
	int more = kv->kind == RS_KV_STR   ? snprintf(text + n, room - n, " %s=%s", kv->key, kv->s)
		   : kv->kind == RS_KV_INT ? snprintf(text + n, room - n, " %s=%lld", kv->key, (long long)kv->i)
		   : kv->kind == RS_KV_UINT
		       ? snprintf(text + n, room - n, " %s=%llu", kv->key, (unsigned long long)kv->u)
		       : snprintf(text + n, room - n, " %s=%g", kv->key, kv->d);

	return more > 0 && (size_t)more < room - n ? n + (size_t)more : n;
}

/* Passes a log line of the engine to NCCL. */
static void plugin_on_line(void *ctx, enum rs_log_level level, const char *event, const struct rs_kv *kv, unsigned n)
{
	struct plugin *p = ctx;
	char text[1024];
	size_t len = (size_t)snprintf(text, sizeof text, "%s", event);

	for (unsigned i = 0; i < n; i++)
		len = plugin_put(text, sizeof text, len, &kv[i]);
	if (level <= RS_LOG_WARN)
		atomic_load (&p->logger)(NCCL_WARN, ~0UL, event, 0, "reduction: %s", text);
	else
		plugin_info(p, "%s", text);
}

void plugin_info(struct plugin *p, const char *format, ...)
{
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	atomic_load (&p->logger)(NCCL_INFO, NCCL_LOG_INIT | NCCL_LOG_NET, "reduction", 0, "NET/reduction: %s", text);
}

int plugin_result(int code)
{
	switch (code) {
	case RS_EPEER:
	case RS_EABORTED:
	case RS_EMISMATCH:
	case RS_ECUT:
	case RS_EREFUSED:
	case RS_ETIMEOUT:
		return NCCL_REMOTE_ERROR;
	case RS_EINVAL:
		return NCCL_INVALID_ARGUMENT;
	case RS_EINTERNAL:
		return NCCL_INTERNAL_ERROR;
	default:
		return NCCL_SYSTEM_ERROR;
	}
}

int plugin_fail(struct plugin *p, const struct rs_err *e)
{
	atomic_load (&p->logger)(NCCL_WARN, ~0UL, "reduction", 0, "reduction: %s", e->msg);
	return plugin_result(e->code);
}

void plugin_refuse(struct plugin *p, const struct rs_err *e)
{
	struct rs_err why;

	if (!p->required || atomic_exchange(&p->refusing, true))
		return;
	rs_fail(&why, RS_ECONFIG, "REDUCTION_REQUIRED is 1, and all-reduces cannot go through the reducers: %s",
		e->msg);
	plugin_fail(p, &why);
}

/* Finds the name of the job. It must leave room for the digits of a communicator. */
static int plugin_find_job(struct plugin *p, const struct rs_cluster *cluster, struct rs_err *e)
{
	struct rs_launch launch;
	struct rs_identity id;

	/* NCCL knows the ranks itself: what a launcher says of them may be incomplete */
	if (rs_launch_detect(&launch, NULL, NULL, e))
		launch = (struct rs_launch){.source = "none"};
	if (rs_identity_find(&id, NULL, NULL, &p->cfg, &launch, cluster, e))
		return e->code;
	if (strlen(id.job) >= PLUGIN_JOB_MAX)
		return rs_fail(
		    e, RS_ECONFIG,
		    "the job's name is \"%s\": with NCCL it has at most %d letters, digits, '.', '_' and '-'", id.job,
		    PLUGIN_JOB_MAX - 1);
	memcpy(p->job, id.job, strlen(id.job) + 1);
	return RS_OK;
}

static int plugin_find_sockets(struct plugin *p, struct rs_err *e)
{
	const char *text = plugin_variable("REDUCTION_NET_SOCKETS");
	char *end;
	long n;

	p->sockets = PLUGIN_SOCKETS;
	if (!text)
		return RS_OK;
	n = strtol(text, &end, 10);
	if (*end || n < 1 || n > PLUGIN_SOCKETS_MAX)
		return rs_fail(e, RS_ECONFIG, "REDUCTION_NET_SOCKETS is \"%s\", a number from 1 to %d was expected",
			       text, PLUGIN_SOCKETS_MAX);
	p->sockets = (unsigned)n;
	return RS_OK;
}

static int plugin_load(struct plugin *p, struct rs_err *e)
{
	struct rs_cluster cluster;
	int rc = rs_cluster_load_or_file(&cluster, &p->cfg, NULL, e);

	if (rc)
		return rc;
	rc = rs_config_take_log_level(&p->cfg, e);
	if (!rc)
		rc = plugin_find_job(p, &cluster, e);
	if (!rc)
		rc = plugin_find_sockets(p, e);
	if (!rc)
		rc = device_find(&p->device, plugin_variable("NCCL_SOCKET_IFNAME"),
				 rs_config_address(&p->cfg, &p->cfg.reducers[0]), e);
	if (rc) {
		rs_config_close(&p->cfg);
		return rc;
	}
	p->log = (struct rs_log){.level = p->cfg.logging.level,
				 .fd = -1,
				 .tap = plugin_on_line,
				 .tap_ctx = p,
				 .tap_level = p->cfg.logging.level};
	p->loaded = true;
	plugin_info(p, "job %s, %u reducers, interface %s with %d Mbit/s, %u sockets for each connection%s", p->job,
		    p->cfg.reducers_n, p->device.interface, p->device.speed, p->sockets,
		    p->required ? ", REDUCTION_REQUIRED" : "");
	return RS_OK;
}

/* NCCL asks for a collective network only if this variable says so. Who sets it to 0
 * knows that, unless `required`. */
static int plugin_check_enabled(const struct plugin *p, struct rs_err *e)
{
	const char *enabled = plugin_variable("NCCL_COLLNET_ENABLE");

	if (!enabled)
		return rs_fail(
		    e, RS_ECONFIG,
		    "NCCL_COLLNET_ENABLE is not set, so no all-reduce goes through the reducers: set it to 1, or "
		    "let NCCL 2.28 and later find libnccl-env.so of this plugin");
	return atoi(enabled) == 1 || !p->required
		   ? RS_OK
		   : rs_fail(e, RS_ECONFIG, "NCCL_COLLNET_ENABLE is %s, 1 was expected", enabled);
}

int plugin_init(struct plugin *p, nccl_logger logger)
{
	const char *required = plugin_variable("REDUCTION_REQUIRED");
	struct rs_err e = {.code = RS_OK};
	int rc = NCCL_SUCCESS;

	atomic_store(&p->logger, logger);
	pthread_mutex_lock(&p->lock);
	if (!p->loaded) {
		rs_descriptors_hold_standard();
		p->device.speed = 10000; /* should there be no other: NCCL looks at it before it makes connections */
		p->required = required && strcmp(required, "1") == 0;
		if (required && !p->required && strcmp(required, "0") != 0)
			rs_fail(&e, RS_ECONFIG, "REDUCTION_REQUIRED is \"%s\", 0 or 1 was expected", required);
		if (!e.code)
			plugin_load(p, &e);
		if (e.code && !p->required)
			rc = plugin_fail(p, &e);
		if (!e.code && plugin_check_enabled(p, &e) && !p->required)
			plugin_fail(p, &e);
		if (e.code)
			plugin_refuse(p, &e);
	}
	pthread_mutex_unlock(&p->lock);
	return rc;
}

void plugin_tune(struct plugin *p, size_t nodes, struct tuner *ret)
{
	struct rs_err e;

	*ret = (struct tuner){.from = SIZE_MAX};
	if (!p->loaded || nodes < 2)
		return;
	tuner_init(ret, &p->cfg, p->device.speed * 1e6, nodes, p->required);
	if (ret->from < SIZE_MAX) {
		plugin_info(p, "all-reduces of %zu bytes or more go through the reducers, if NCCL can do that",
			    ret->from);
		return;
	}
	rs_fail(
	    &e, RS_ECONFIG,
	    "the reducers take %.2f times as long for an all-reduce of %zu nodes as its bytes take on one link, a ring "
	    "takes %.2f times: NCCL takes a ring, unless NCCL_ALGO or REDUCTION_REQUIRED=1 says otherwise (more "
	    "reducers help, or their bandwidth in the configuration, if it is missing)",
	    ret->reducers, nodes, ret->ring);
	plugin_fail(p, &e);
}
