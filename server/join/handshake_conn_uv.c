/* SPDX-License-Identifier: Apache-2.0 */
#include "server/join/handshake_conn.h"

#include <string.h>

void handshake_conn_init(struct handshake_conn *c, struct handshake_conns *all)
{
	c->all = all;
	c->job[0] = '\0';
	handshake_init(&c->handshake, &all->policy);
	deadlines_add(&all->deadlines, &c->deadline, uv_now(all->loop));
}

/* Frees a connection whose transport is closed or moved away. */
static void handshake_conn_free(struct handshake_conn *c)
{
	deadlines_remove(&c->all->deadlines, &c->deadline);
	handshake_close(&c->handshake);
	c->all->transport->free(c);
}

void handshake_conn_close(struct handshake_conn *c, enum handshake_close how, const struct control_refused *why)
{
	c->all->transport->close(c, how, why);
	handshake_conn_free(c);
}

void handshake_conn_log(struct handshake_conn *c, const struct control_refused *refused)
{
	struct rs_err why;

	rs_fail(&why, refused->code, "%s", refused->message);
	c->all->transport->log_refused(c, &why);
}

static const char *handshake_conn_missing(const struct handshake_conn *c)
{
	const char *missing = c->all->transport->missing ? c->all->transport->missing(c) : NULL;

	return missing ? missing : handshake_missing(&c->handshake);
}

/* Ends the sending side and waits for the peer to close. Closing with unread bytes would
 * make the kernel reset the connection, and the peer would lose the reason. */
static bool handshake_conn_leave(struct handshake_conn *c)
{
	c->all->transport->finish(c);
	deadlines_leave(&c->all->deadlines, &c->deadline, uv_now(c->all->loop));
	return true;
}

bool handshake_conn_refuse(struct handshake_conn *c, const struct control_refused *refused)
{
	uint8_t frame[HANDSHAKE_FRAME_MAX];

	handshake_conn_log(c, refused);
	if (c->all->transport->send(c, frame, handshake_pack_refused(frame, refused)))
		return handshake_conn_leave(c);
	handshake_conn_close(c, CLOSE_DONE, refused);
	return false;
}

/* The peer has closed (rc 0), or the transport broke. A peer that connects and closes,
 * such as a load balancer, asks whether the port is open: no worker was refused. */
static bool handshake_conn_lost(struct handshake_conn *c, ssize_t rc)
{
	const struct handshake_transport *t = c->all->transport;
	struct control_refused lost = handshake_refusal_closed(handshake_conn_missing(c));

	if (t->explain)
		t->explain(c, rc, &lost);
	if (!c->deadline.kept && (rc > 0 || !t->silent || !t->silent(c)))
		handshake_conn_log(c, &lost);
	handshake_conn_close(c, CLOSE_LOST, &lost);
	return false;
}

static bool handshake_conn_admit(struct handshake_conn *c, const struct handshake_result *who)
{
	struct control_refused refused = {0};

	if (c->all->transport->admit(c, who, &refused))
		return handshake_conn_refuse(c, &refused);
	handshake_conn_free(c);
	return false;
}

/* Prepares the transport. Returns true if frames can be received; else *ret says whether
 * the connection still exists.
 */
static bool handshake_conn_prepare(struct handshake_conn *c, bool *ret)
{
	const struct handshake_transport *t = c->all->transport;
	struct control_refused refused;

	switch (t->prepare ? t->prepare(c, &refused) : TRANSPORT_READY) {
	case TRANSPORT_READY:
		return true;
	case TRANSPORT_WAIT:
		*ret = true;
		break;
	case TRANSPORT_LOST:
		*ret = handshake_conn_lost(c, 0);
		break;
	case TRANSPORT_REFUSE:
		*ret = handshake_conn_refuse(c, &refused);
		break;
	case TRANSPORT_FAILED:
		handshake_conn_log(c, &refused);
		*ret = handshake_conn_leave(c);
		break;
	}
	return false;
}

/* Processes n bytes at the target. Returns true if more can be received; else *ret says
 * whether the connection still exists. */
static bool handshake_conn_take(struct handshake_conn *c, size_t n, bool *ret)
{
	const struct handshake_transport *t = c->all->transport;
	struct handshake_result res;
	enum handshake_step step = handshake_received(&c->handshake, n, &res);

	if (res.hello.job[0])
		memcpy(c->job, res.hello.job, sizeof c->job);
	switch (step) {
	case HANDSHAKE_MORE:
		return true;
	case HANDSHAKE_SEND:
		if (t->send(c, res.frame, res.frame_len))
			return true;
		*ret = handshake_conn_lost(c, 0);
		break;
	case HANDSHAKE_ADMIT:
		*ret = handshake_conn_admit(c, &res);
		break;
	case HANDSHAKE_PROBED:
		*ret = t->send(c, res.frame, res.frame_len) ? handshake_conn_leave(c) : handshake_conn_lost(c, 0);
		break;
	case HANDSHAKE_REFUSED:
		if (t->explain)
			t->explain(c, 1, &res.refused);
		*ret = handshake_conn_refuse(c, &res.refused);
		break;
	}
	return false;
}

bool handshake_conn_read(struct handshake_conn *c)
{
	const struct handshake_transport *t = c->all->transport;
	bool exists = true;

	if (c->deadline.leaves) {
		if (t->discard(c))
			return true;
		handshake_conn_close(c, CLOSE_DONE, NULL);
		return false;
	}
	if (!handshake_conn_prepare(c, &exists))
		return exists;
	for (;;) {
		uint8_t *at;
		size_t len = handshake_target(&c->handshake, &at);
		ssize_t got = t->recv(c, at, len);

		if (got == HANDSHAKE_AGAIN)
			return true;
		if (got <= 0)
			return handshake_conn_lost(c, got);
		if (!handshake_conn_take(c, (size_t)got, &exists))
			return exists;
	}
}

bool handshake_conn_return(struct handshake_conn *c, struct handshake_conns *all, const struct frame_rest *rest)
{
	bool exists = true;
	struct rs_err e;

	c->all = all;
	c->job[0] = '\0';
	deadlines_keep(&all->deadlines, &c->deadline, uv_now(all->loop));
	if (handshake_init_again(&c->handshake, &all->policy, rest->skip, &e)) {
		handshake_conn_close(c, CLOSE_DONE, NULL);
		return false;
	}
	if (!handshake_conn_prepare(c, &exists))
		return exists;
	for (uint32_t off = 0; off < rest->have;) {
		uint8_t *at;
		size_t len = handshake_target(&c->handshake, &at);

		len = len < rest->have - off ? len : rest->have - off;
		memcpy(at, rest->bytes + off, len);
		off += (uint32_t)len;
		if (!handshake_conn_take(c, len, &exists))
			return exists;
	}
	return handshake_conn_read(c);
}

static void on_tick(uv_timer_t *timer)
{
	struct handshake_conns *all = timer->data;
	struct control_refused late;
	struct deadline *d;

	while ((d = deadlines_due(&all->deadlines, uv_now(all->loop)))) {
		struct handshake_conn *c = (struct handshake_conn *)d;

		if (d->leaves || d->kept) {
			handshake_conn_close(c, CLOSE_DONE, NULL);
			continue;
		}
		late = handshake_refusal_timeout(handshake_conn_missing(c), all->timeout_ms);
		handshake_conn_refuse(c, &late);
	}
}

void handshake_conns_init(struct handshake_conns *all, uv_loop_t *loop, uint32_t timeout_ms,
			  const struct handshake_transport *transport, const struct handshake_policy *policy)
{
	all->loop = loop;
	all->timeout_ms = timeout_ms;
	all->transport = transport;
	all->policy = *policy;
	deadlines_init(&all->deadlines, timeout_ms);
	uv_timer_init(loop, &all->tick);
	all->tick.data = all;
	uv_timer_start(&all->tick, on_tick, DEADLINES_TICK_MS, DEADLINES_TICK_MS);
}

unsigned handshake_conns_count(const struct handshake_conns *all)
{
	return deadlines_count(&all->deadlines);
}

bool handshake_conns_make_room(struct handshake_conns *all, const char *why)
{
	struct handshake_conn *c = (struct handshake_conn *)deadlines_oldest(&all->deadlines);
	struct control_refused refused = {.message = ""};

	if (!c)
		return false;
	if (!c->deadline.leaves && !c->deadline.kept) {
		refused = handshake_refusal_displaced(handshake_conn_missing(c), why);
		handshake_conn_log(c, &refused);
	}
	handshake_conn_close(c, CLOSE_DISPLACED, &refused);
	return true;
}

void handshake_conns_clear(struct handshake_conns *all)
{
	struct deadline *d;

	while ((d = deadlines_oldest(&all->deadlines)))
		handshake_conn_close((struct handshake_conn *)d, CLOSE_DONE, NULL);
}

void handshake_conns_close(struct handshake_conns *all)
{
	uv_close((uv_handle_t *)&all->tick, NULL);
}
