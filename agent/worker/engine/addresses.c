/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/engine/addresses.h"

#include "agent/worker/engine/engine_uv.h"

#include <stdlib.h>
#include <string.h>

int engine_addresses_init(struct engine_addresses *a, const struct rs_config *cfg, struct rs_err *e)
{
	*a = (struct engine_addresses){.reducers = malloc(cfg->reducers_n * sizeof *a->reducers),
				       .reducers_n = cfg->reducers_n,
				       .slots = rs_config_has_slots(cfg),
				       .source = cfg->source};
	if (!a->reducers)
		return rs_oom(e, cfg->reducers_n * sizeof *a->reducers, "the addresses of the reducers");
	memcpy(a->reducers, cfg->reducers, cfg->reducers_n * sizeof *a->reducers);
	return engine_names_init(a, cfg->job.grpc, e);
}

void engine_addresses_close(struct engine_addresses *a)
{
	engine_names_close(a);
	free(a->reducers);
	*a = (struct engine_addresses){.reducers = NULL};
}

/* Returns whether the file has changed since it was last read. */
static bool addresses_changed(struct engine_addresses *a, uint64_t now_ms)
{
	struct rs_config_source found;

	if (!a->source.file[0] || (a->checked_ms && now_ms - a->checked_ms < ADDRESSES_CHECK_MS))
		return false;
	a->checked_ms = now_ms ? now_ms : 1;
	rs_config_source(&found, a->source.file); /* before it is read: a later change is seen the next time */
	if (!found.file[0] || memcmp(&found.stamp, &a->source.stamp, sizeof found.stamp) == 0)
		return false; /* while it is replaced, it may be missing */
	a->source.stamp = found.stamp;
	return true;
}

static void addresses_take(struct engine *en, unsigned reducer, const struct rs_config *fresh)
{
	struct rs_reducer *r = &en->addresses.reducers[reducer];
	const struct rs_config *cfg = en->opt.cfg;
	const struct rs_reducer from = *r;

	if (r->shared || !rs_config_take_addresses(r, fresh))
		return;
	engine_tls_rename(&en->tls, reducer);
	rs_log(en->opt.log, RS_LOG_INFO, "reducer-address", rs_kv_s("reducer", r->id),
	       rs_kv_s("from", rs_config_address(cfg, &from)), rs_kv_s("to", rs_config_address(cfg, r)),
	       rs_kv_s("job", en->opt.job), rs_kv_u("rank", en->opt.rank), rs_kv_s("file", en->addresses.source.file));
}

/* Slots share a name from the start of a job, or not at all. */
static void addresses_refuse_shared(struct engine *en, const struct rs_config *fresh)
{
	bool shared = false, before = false;

	for (unsigned i = 0; i < fresh->reducers_n; i++)
		shared |= fresh->reducers[i].shared;
	for (unsigned i = 0; i < en->addresses.reducers_n; i++)
		before |= en->addresses.reducers[i].shared;
	if (shared && !before)
		rs_log(en->opt.log, RS_LOG_WARN, "reducer-address", rs_kv_s("result", "kept the previous addresses"),
		       rs_kv_s("job", en->opt.job), rs_kv_u("rank", en->opt.rank),
		       rs_kv_s("reason", "in the changed file several slots share a name, which a job does from its "
					 "start or not at all"));
}

void engine_refresh_addresses(struct engine *en)
{
	struct engine_addresses *a = &en->addresses;
	struct rs_config fresh;
	struct rs_err e;

	if (!addresses_changed(a, uv_now(&en->loop)))
		return;
	if (rs_config_load(&fresh, a->source.file, &e)) {
		rs_log(en->opt.log, RS_LOG_WARN, "reducer-address", rs_kv_s("result", "kept the previous addresses"),
		       rs_kv_s("job", en->opt.job), rs_kv_u("rank", en->opt.rank), rs_kv_s("reason", e.msg));
		return;
	}
	for (unsigned i = 0; i < a->reducers_n; i++)
		addresses_take(en, i, &fresh);
	addresses_refuse_shared(en, &fresh);
	rs_config_close(&fresh);
}

uint32_t engine_patience_ms(const struct engine *en)
{
	return en->addresses.slots ? UINT32_MAX : rs_config_resolve_ms(en->opt.cfg);
}
