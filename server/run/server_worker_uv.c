/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run/server_worker.h"

#include <stdio.h>

unsigned server_handshakes_count(const struct server *s)
{
	return tcp_handshakes_count(s->handshakes) + (s->streams ? grpc_handshakes_count(s->streams) : 0);
}

int server_admit(struct server *s, const struct handshake_result *who, const char *peer, const char *transport,
		 struct registry_admit *ret, struct control_refused *refused)
{
	const struct control_hello *h = &who->hello;
	int rc;

	registry_set_time(s->registry, uv_now(&s->loop));
	rc = registry_hello(s->registry, h, ret, refused);
	if (rc)
		return rc;
	s->sessions++;
	if (h->relay) {
		rs_log(s->log, RS_LOG_DEBUG, "relay-joined", rs_kv_s("job", h->job), rs_kv_s("label", h->label),
		       rs_kv_u("group", h->group), rs_kv_u("lane", h->lane));
		return RS_OK;
	}
	registry_set_peer(s->registry, ret->stripe.job, h->rank, peer, transport);
	rs_log(s->log, RS_LOG_DEBUG, "worker-joined", rs_kv_s("job", h->job), rs_kv_u("rank", h->rank),
	       rs_kv_u("lane", h->lane), rs_kv_s("label", h->label), rs_kv_s("transport", transport));
	return RS_OK;
}

int server_unadmit(struct server *s, const struct registry_admit *admit, const struct rs_err *why,
		   struct control_refused *refused)
{
	s->sessions--;
	if (admit->session.relay)
		registry_uplink_closed(s->registry, admit->stripe.job);
	else
		registry_session_closed(s->registry, admit->stripe.job, admit->session.rank, admit->stripe.lane, false);
	*refused = (struct control_refused){.code = why->code, .retry = true};
	snprintf(refused->message, sizeof refused->message, "%s", why->msg);
	return why->code;
}

bool server_may_log(struct server *s, enum limited which)
{
	return rs_log_limit_pass(&s->limits[which], uv_now(&s->loop));
}

void server_log_refused(struct server *s, const char *peer, const char *transport, const char *job,
			const struct rs_err *why)
{
	s->refused[status_refusal_of(why->code)]++;
	if (!server_may_log(s, LIMITED_REFUSED))
		return;
	if (job[0])
		rs_log(s->log, RS_LOG_WARN, "connection-refused", rs_kv_s("peer", peer),
		       rs_kv_s("transport", transport), rs_kv_s("job", job), rs_kv_s("reason", why->msg));
	else
		rs_log(s->log, RS_LOG_WARN, "connection-refused", rs_kv_s("peer", peer),
		       rs_kv_s("transport", transport), rs_kv_s("reason", why->msg));
}
