/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run/server_lifecycle.h"

#include "server/run/server_descriptors.h"
#include "server/run/server_ports.h"

enum { ABORT_GRACE_MS = LANE_LINGER_MS + 500 }; /* in which the last ABORT frames are read */

void server_on_drain(void *ctx, uint64_t deadline_ms)
{
	struct server *s = ctx;

	if (!s->aborted) {
		s->deadline_ms = deadline_ms;
		s->drain_ms = s->host.drain_limit_ms;
	}
	if (s->draining)
		return;
	s->draining = true; /* first: jobs that only gather end in registry_drain() */
	s->drained_ms = uv_now(&s->loop);
	registry_drain(s->registry);
}

/* What became of the jobs: `handed_over` ones go on with their other reducers, `finished`
 * ones had none and ended in time, `cut` ones did not. */
static void server_log_drained(const struct server *s)
{
	const unsigned *n = s->drained;
	unsigned jobs = registry_jobs(s->registry); /* whose ranks have not read that it ends */

	for (unsigned i = 0; i < STATUS_ENDS; i++)
		jobs += n[i];
	rs_log(s->log, RS_LOG_INFO, "drained", rs_kv_s("because", s->host.because), rs_kv_u("jobs", jobs),
	       rs_kv_u("handed_over", n[STATUS_ENDED_LEFT]), rs_kv_u("finished", n[STATUS_ENDED_FINISHED]),
	       rs_kv_u("cut", jobs - n[STATUS_ENDED_LEFT] - n[STATUS_ENDED_FINISHED]),
	       rs_kv_u("took_ms", uv_now(&s->loop) - s->drained_ms));
}

/* Stops the lanes first, because they post to the mailbox. */
void server_stop(struct server *s)
{
	if (s->stopped)
		return;
	s->stopped = true;
	if (s->draining)
		server_log_drained(s);
	server_ports_stop(s);
	for (unsigned i = 0; i < s->lanes_n; i++)
		lane_thread_stop(s->lanes[i]);
	s->lanes_n = 0;
	tcp_handshakes_close(s->handshakes);
	arenas_stop(s->arenas);
	rs_pool_stop(&s->pool);
	server_ports_close(s); /* no other thread logs any more */
	wakeup_close(&s->pool_ended);
	for (int i = 0; i < s->listening_n; i++)
		uv_close((uv_handle_t *)&s->listening[i].poll, NULL);
	mailbox_close(&s->in);
	wakeups_close(&s->wakeups);
}

static void server_check_drain(struct server *s)
{
	uint64_t now = uv_now(&s->loop);
	struct rs_err why;

	if (registry_jobs(s->registry) == 0 || (s->aborted && now >= s->deadline_ms)) {
		server_stop(s);
		return;
	}
	if (s->aborted || now < s->deadline_ms)
		return;
	s->aborted = true;
	s->deadline_ms = now + ABORT_GRACE_MS;
	rs_fail(&why, RS_ECLOSED, "the reducer was stopped and the job did not end within its drain timeout of %.1f s",
		(double)s->drain_ms / 1000);
	registry_abort_all(s->registry, &why);
}

void server_on_tick(void *ctx)
{
	struct server *s = ctx;
	uint64_t now = uv_now(&s->loop);

	registry_set_time(s->registry, now);
	registry_tick(s->registry);
	for (unsigned i = 0; i < LIMITED_NR; i++)
		rs_log_limit_report(&s->limits[i], s->log, RS_LOG_WARN, now);
	admission_tick(&s->admission, now);
	if (s->draining)
		server_check_drain(s);
}

/* New connections get the certificates that were loaded; the context before is freed. */
static void server_use_certificates(struct server *s)
{
	tcp_handshakes_set_tls(s->handshakes, s->admission.certificates.ctx);
	certificates_log(&s->admission.certificates, s->log, "tls");
}

int server_on_renew(void *ctx, const struct rs_config *cfg, struct rs_err *e)
{
	struct server *s = ctx;
	int rc;

	if (cfg->security.tls == TLS_OFF || cfg->security.tls != s->cfg->security.tls)
		return RS_OK;
	rc = certificates_renew(&s->admission.certificates, cfg, e);
	if (!rc)
		server_use_certificates(s);
	return rc;
}

/* Only a restart can switch TLS on or off. */
static int server_reload_certificates(struct server *s, const struct rs_config *fresh, struct rs_err *e)
{
	int rc;

	if (fresh->security.tls != s->cfg->security.tls)
		return RS_OK;
	rc = admission_reload(&s->admission, fresh, e);
	if (!rc)
		server_use_certificates(s);
	return rc;
}

int server_on_reload(void *ctx, struct rs_config *fresh, struct rs_err *e)
{
	struct server *s = ctx;
	int rc = server_reload_certificates(s, fresh, e);

	if (rc)
		return rc;
	s->max_connections = fresh->server.max_connections;
	server_bound_descriptors(s);
	registry_set_limits(s->registry, &(struct registry_limits){.jobs = fresh->server.max_jobs,
								   .workers = fresh->server.max_workers,
								   .memory_bytes = fresh->server.memory_bytes});
	rs_config_close(fresh);
	return RS_OK;
}
