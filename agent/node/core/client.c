/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/core/client.h"
#include "common/assert.h"

void local_client_unlink(struct local_client *c)
{
	rs_assert(*c->at == c);
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	else if (c->state == CLIENT_NEW)
		c->hub->unjoined_end = c->at;
}

void local_client_set_state(struct local_client *c, int state)
{
	struct local_hub *h = c->hub;

	if (c->state == CLIENT_NEW) {
		local_client_unlink(c);
		c->next = h->clients;
		c->at = &h->clients;
		if (c->next)
			c->next->at = &c->next;
		h->clients = c;
	}
	c->state = state;
}

bool local_may_log(struct local_hub *h, enum local_limited which)
{
	return rs_log_limit_pass(&h->limits[which], h->now_ms);
}

void local_client_send_failure(struct local_client *c, enum local_type type, const struct rs_err *err, bool retry)
{
	union local_message m;

	local_init(&m, type);
	m.failure.code = err->code;
	m.failure.retry = retry;
	local_put_text(m.failure.message, err->msg);
	c->hub->ports.send(c->hub->ctx, c, &m, -1);
}

void local_client_leave(struct local_client *c, enum local_type type, const struct rs_err *why, bool retry)
{
	local_client_set_state(c, CLIENT_LEAVING);
	if (c->awaits) {
		if (why)
			c->dismissed = *why;
		return;
	}
	if (why)
		local_client_send_failure(c, type, why, retry);
	c->hub->ports.drop(c->hub->ctx, c);
}

void local_clients_release(struct local_hub *h, const struct local_job *j)
{
	for (struct local_client *c = h->clients; c; c = c->next) {
		if (c->awaits != j)
			continue;
		c->awaits = NULL;
		if (c->dismissed.code)
			local_client_send_failure(c, LOCAL_ABORT, &c->dismissed, false);
		h->ports.drop(h->ctx, c);
	}
}

void local_client_start_pings(struct local_client *c, uint32_t detect_ms, uint64_t now_ms)
{
	uint32_t own_ms = c->hub->cfg->timeouts.detect_ms;

	if (!detect_ms || detect_ms > own_ms)
		detect_ms = own_ms;
	if (detect_ms < LOCAL_DETECT_MIN_MS)
		detect_ms = LOCAL_DETECT_MIN_MS;
	c->ping_interval_ms = detect_ms / LOCAL_PINGS_PER_DETECT;
	c->next_ping_ms = now_ms + c->ping_interval_ms;
	c->unanswered = 0;
}
