/* SPDX-License-Identifier: Apache-2.0 */
/* A reducer process around the real registry and the real lanes. Messages between its
 * threads take a random time, like those of mailbox_uv.c, so every order of messages that
 * threads can produce occurs. */
#include "tests/sim/sim.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { REDUCER_IOVECS = 8 };

enum message_type {
	MESSAGE_ATTACH,
	MESSAGE_START,
	MESSAGE_TELL,
	MESSAGE_ASK,
	MESSAGE_ABORT,
	MESSAGE_EVENT,
	MESSAGE_PARTED
};

struct message {
	struct message *next;
	enum message_type type;
	uint64_t job;
	struct lane_begin begin;
	unsigned rank, lane;
	uint64_t question;
	struct conn *conn;
	struct registry_admit admit;
	struct control_welcome welcome;
	struct rs_err why;
	struct rs_cause cause;
	struct lane_event event;
	struct frame_rest rest;
	uint32_t frame_len;
	uint8_t frame[];
};

/* Boxes are numbered: 0 is the registry's, 1 + i that of thread i. */
static struct post *box_of(struct reducer *r, unsigned box)
{
	return box ? &r->threads[box - 1].in : &r->in;
}

static struct message *message_new(enum message_type type, uint64_t job, uint32_t frame_len)
{
	struct message *l = calloc(1, sizeof *l + frame_len);

	if (!l)
		abort();
	l->type = type;
	l->job = job;
	l->frame_len = frame_len;
	return l;
}

static void post(struct reducer *r, unsigned box, struct message *l)
{
	struct post *p = box_of(r, box);
	uint64_t at =
	    r->sim->now_us + sim_below(r->sim, sim_chance(r->sim, 10) ? 20 * r->sim->mail_us : r->sim->mail_us);

	p->last_at_us = at > p->last_at_us ? at : p->last_at_us + 1;
	*p->tail = l;
	p->tail = &l->next;
	sim_at(r->sim, p->last_at_us, EV_MAIL, r->index, r->life << 8 | box);
}

static void post_init(struct post *p)
{
	p->head = NULL;
	p->tail = &p->head;
	p->last_at_us = 0;
}

static struct message *post_take(struct post *p)
{
	struct message *l = p->head;

	p->head = l->next;
	if (!p->head)
		p->tail = &p->head;
	return l;
}

/* ---- callbacks of the cores ---- */

static void on_action(void *ctx, const struct registry_action *a)
{
	struct reducer *r = ctx;

	if (a->type == REGISTRY_ABORT)
		trace(r->sim, "r%u ends job %s, generation %u: %s", r->index, a->job.name, a->job.generation,
		      a->why.msg);
	if (r->state != REDUCER_UP || a->type == REGISTRY_OPENED || a->type == REGISTRY_MOVED ||
	    a->type == REGISTRY_CLOSED)
		return;
	if (a->type == REGISTRY_ASK) {
		struct message *l = message_new(MESSAGE_ASK, a->job.id, 0);

		fault_contested(r->sim, a->job.name, a->rank);
		l->rank = a->rank;
		l->lane = a->lane;
		l->question = a->question;
		post(r, 1 + a->thread, l);
		return;
	}
	for (unsigned i = 0; i < r->threads_n; i++) {
		struct message *l = message_new(a->type == REGISTRY_START   ? MESSAGE_START
						: a->type == REGISTRY_ABORT ? MESSAGE_ABORT
									    : MESSAGE_TELL,
						a->job.id, a->frame_len);

		l->begin = a->begin;
		l->why = a->why;
		l->cause = a->cause;
		if (a->frame_len)
			memcpy(l->frame, a->frame, a->frame_len);
		post(r, 1 + i, l);
	}
}

static void on_lane_event(void *ctx, const struct lane_event *ev)
{
	struct lane_thread_sim *t = ctx;
	struct message *l;

	if (t->reducer->state != REDUCER_UP)
		return;
	l = message_new(MESSAGE_EVENT, ev->job, 0);
	l->event = *ev;
	post(t->reducer, 0, l);
}

static void *on_alloc(void *ctx, uint64_t bytes)
{
	struct reducer *r = ctx;

	r->blocks++;
	return aligned_alloc(64, (bytes + 63) & ~UINT64_C(63));
}

static void on_free(void *ctx, void *memory, uint64_t bytes)
{
	struct reducer *r = ctx;

	(void)bytes;
	r->blocks--;
	free(memory);
}

/* ---- connections of the lanes ---- */

static void conn_close(struct conn *c)
{
	check_last_session(c->session);
	session_free(c->session);
	c->session = NULL;
	c->phase = PHASE_NONE;
	net_close(c, REDUCER);
}

/* The connection goes back to the accept loop, behind the news that its session is
 * closed. */
static void conn_part(struct conn *c)
{
	struct message *l = message_new(MESSAGE_PARTED, 0, 0);

	l->conn = c;
	session_take_rest(c->session, &l->rest);
	check_last_session(c->session);
	session_free(c->session);
	c->session = NULL;
	c->phase = PHASE_HANDED;
	post(c->reducer, 0, l);
}

static bool receive_once(struct conn *c)
{
	struct iovec iov[2];
	unsigned n = session_recv_target(c->session, iov);
	ssize_t got;

	if (!n)
		return false;
	got = net_read(c, REDUCER, iov, n);
	if (got == NET_AGAIN)
		return false;
	if (got <= 0) {
		session_lost(c->session, got ? "connection reset by peer" : "it closed the connection");
		return false;
	}
	session_received(c->session, (size_t)got, sim_ms(c->sim));
	return true;
}

static void conn_flush(struct conn *c)
{
	struct iovec iov[REDUCER_IOVECS];
	unsigned n;

	c->write_wait = false;
	while ((n = session_send_target(c->session, iov, 3 + sim_below(c->sim, REDUCER_IOVECS - 2)))) {
		ssize_t sent = net_write(c, REDUCER, iov, n);

		if (sent == NET_AGAIN) {
			c->write_wait = true;
			break;
		}
		if (sent == NET_BROKEN) {
			/* the peer's earlier frame may be the reason, and all ranks
			 * should get it */
			while (receive_once(c))
				continue;
			session_lost(c->session, "broken pipe");
			return;
		}
		session_sent(c->session, (size_t)sent, sim_ms(c->sim));
	}
	if (session_parts(c->session))
		conn_part(c);
	else if (session_shut(c->session))
		net_shutdown(c, REDUCER);
}

/* As in lane_conn.c, some sessions that are ready may have to wait until others were
 * served. */
void reducer_flush(struct lane_thread_sim *t)
{
	struct sim *sim = t->reducer->sim;
	unsigned most = sim_chance(sim, 20) ? sim_below(sim, 4) : UINT_MAX;
	struct session *s;

	uplinks_serve(t);
	while (most-- > 0 && (s = lane_next_ready(t->core))) {
		struct conn *c = session_user(s);

		if (session_closed(s))
			conn_close(c);
		else if (!c->write_wait || session_shut(s))
			conn_flush(c);
	}
	uplinks_serve(t);
	if (lane_is_ready(t->core) && !t->serve_due) {
		t->serve_due = true;
		sim_in(sim, sim_below(sim, 300), EV_LANE_SERVE, t->reducer->index, t->reducer->life << 8 | t->index);
	}
	check_lane(t);
}

void reducer_readable(struct conn *c)
{
	if (c->phase != PHASE_LANE) {
		accept_readable(c);
		return;
	}
	for (unsigned i = 1 + sim_below(c->sim, 4); i > 0 && receive_once(c); i--)
		continue;
	reducer_flush(c->thread);
}

void reducer_writable(struct conn *c)
{
	if (c->phase != PHASE_LANE)
		return;
	conn_flush(c);
	reducer_flush(c->thread);
}

/* ---- messages ---- */

void reducer_hand_over(struct conn *c, const struct registry_admit *admit, const struct control_welcome *welcome)
{
	struct message *l = message_new(MESSAGE_ATTACH, admit->stripe.job, 0);

	c->phase = PHASE_HANDED;
	c->thread = &c->reducer->threads[admit->thread];
	l->conn = c;
	l->admit = *admit;
	l->admit.session.direct = c->reducer->sim->stopped_ms > 0;
	l->welcome = *welcome;
	l->welcome.detect_ms = c->reducer->detect_ms;
	l->welcome.features = admit->features;
	post(c->reducer, 1 + admit->thread, l);
}

/* Asks the kernels, of quiet ranks and of some others, as lane_tcp.c does. */
static void look_at_kernels(struct lane_thread_sim *t)
{
	struct sim *s = t->reducer->sim;

	for (unsigned i = 0; i < s->conns_n; i++) {
		struct conn *c = s->conns[i];

		if (c->thread != t || c->phase != PHASE_LANE || !c->session)
			continue;
		if (session_quiet(c->session) && net_acknowledges(c))
			session_acknowledged(c->session, sim_ms(s));
		if (sim_chance(s, 20))
			session_network(c->session, 100, c->far ? 20000 : 100, 0,
					c->busy_us[REDUCER] += sim_below(s, 600000));
	}
}

/* The job has ended before its uplink came. */
static void refuse_uplink(struct lane_thread_sim *t, const struct message *l)
{
	l->conn->phase = PHASE_NONE;
	net_close(l->conn, REDUCER);
	on_lane_event(t, &(struct lane_event){.type = LANE_CLOSED, .job = l->admit.stripe.job, .uplink = true});
}

static void attach(struct lane_thread_sim *t, const struct message *l)
{
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	struct conn *c = l->conn;
	struct rs_err e;

	if (lane_attach(t->core, &c->session, &l->admit.stripe, &l->admit.session, c, sim_ms(c->sim), &e)) {
		if (l->admit.session.relay) {
			refuse_uplink(t, l);
			return;
		}
		sim_fail(c->sim, "lane_attach: %s", e.msg);
		return;
	}
	c->phase = PHASE_LANE;
	/* as a reducer sees it, which follows from nothing here; it may find out late */
	c->far = l->admit.session.relay && sim_chance(c->sim, 50);
	if (c->far && sim_chance(c->sim, 50))
		session_network(c->session, 20000, 20000, 0, 0);
	session_queue(c->session, frame,
		      control_frame(frame, FRAME_WELCOME, l->admit.stripe.generation, 0, payload,
				    control_pack_welcome(payload, &l->welcome)));
	net_look_again(c, REDUCER);
}

static void lane_mail(struct lane_thread_sim *t, const struct message *l)
{
	switch (l->type) {
	case MESSAGE_ATTACH:
		attach(t, l);
		break;
	case MESSAGE_START:
		lane_start(t->core, l->job, &l->begin);
		break;
	case MESSAGE_TELL:
		lane_tell(t->core, l->job, l->frame, l->frame_len);
		break;
	case MESSAGE_ASK:
		lane_ask(t->core, l->job, l->lane, l->rank, l->question);
		break;
	case MESSAGE_ABORT:
		lane_abort(t->core, l->job, &l->why, &l->cause);
		break;
	case MESSAGE_EVENT:
	case MESSAGE_PARTED:
		break;
	}
	reducer_flush(t);
}

static void registry_mail(struct reducer *r, const struct message *l)
{
	const struct lane_event *ev = &l->event;

	if (l->type == MESSAGE_PARTED)
		accept_return(l->conn, &l->rest);
	else if (ev->type == LANE_FAILED)
		registry_failed(r->registry, ev->job, &ev->why, &ev->cause);
	else if (ev->type == LANE_CLOSED && ev->uplink)
		registry_uplink_closed(r->registry, ev->job);
	else if (ev->type == LANE_CLOSED)
		registry_session_closed(r->registry, ev->job, ev->rank, ev->lane, ev->clean);
	else if (ev->type == LANE_STOPPED)
		r->sim->stats->stopped++;
	else if (ev->type == LANE_UNLINKED || ev->type == LANE_ANSWERED || ev->type == LANE_PROVEN)
		registry_lane_event(r->registry, ev);
}

/* ---- the process ---- */

void reducer_event(struct reducer *r, const struct sim_event *ev)
{
	unsigned low = ev->b & 255;
	struct message *l;
	struct rs_err why;

	if (r->state != REDUCER_UP || ev->b >> 8 != r->life)
		return;
	switch (ev->type) {
	case EV_DRAINED:
		rs_fail(&why, RS_ECLOSED, "the reducer was stopped and the job did not end within its drain timeout");
		registry_abort_all(r->registry, &why);
		sim_in(r->sim, (LANE_LINGER_MS + 500) * 1000, EV_REDUCER_OFF, r->index, ev->b);
		break;
	case EV_REDUCER_OFF:
		reducer_off(r, false);
		if (r->comes_back)
			sim_in(r->sim, 1000, EV_REDUCER_ON, r->index, 0);
		break;
	case EV_MAIL:
		l = post_take(box_of(r, low));
		if (low)
			lane_mail(&r->threads[low - 1], l);
		else
			registry_mail(r, l);
		free(l);
		break;
	case EV_LANE_TICK:
		look_at_kernels(&r->threads[low]);
		lane_tick(r->threads[low].core, sim_ms(r->sim));
		reducer_flush(&r->threads[low]);
		sim_in(r->sim, LANE_TICK_MS * 1000, EV_LANE_TICK, r->index, ev->b);
		break;
	case EV_LANE_SERVE:
		r->threads[low].serve_due = false;
		reducer_flush(&r->threads[low]);
		break;
	case EV_REGISTRY_TICK:
		registry_set_time(r->registry, sim_ms(r->sim));
		registry_tick(r->registry);
		sim_in(r->sim, 1000000, EV_REGISTRY_TICK, r->index, ev->b);
		break;
	case EV_HANDSHAKE_TICK:
		accept_tick(r);
		sim_in(r->sim, 100000, EV_HANDSHAKE_TICK, r->index, ev->b);
		break;
	case EV_INTRUDER:
		accept_intruder(r);
		break;
	default:
		break;
	}
}

void reducer_drain(struct reducer *r, uint32_t drain_ms, bool comes_back)
{
	trace(r->sim, "r%u drains for %u ms", r->index, drain_ms);
	r->comes_back = comes_back;
	registry_drain(r->registry);
	sim_in(r->sim, (uint64_t)drain_ms * 1000, EV_DRAINED, r->index, r->life << 8);
}

static void start_thread(struct reducer *r, unsigned i)
{
	static const char *const ids[SIM_REDUCERS] = {"r0", "r1", "r2"};
	struct lane_thread_sim *t = &r->threads[i];
	struct lane_options lo = {
	    .kernels = r->sim->kernels,
	    .detect_ms = r->detect_ms,
	    .stopped_ms = r->sim->stopped_ms,
	    .event = on_lane_event,
	    .secret = r->sim->guarded ? guard_secret : NULL,
	    .random = guard_random,
	    .peers = {.ids = ids, .n = r->sim->reducers_n},
	    .ctx = t,
	};
	struct rs_err e;

	*t = (struct lane_thread_sim){.reducer = r, .index = i};
	post_init(&t->in);
	if (lane_new(&t->core, &lo, &e))
		sim_fail(r->sim, "lane_new: %s", e.msg);
	sim_in(r->sim, sim_below(r->sim, 100000), EV_LANE_TICK, r->index, r->life << 8 | i);
}

void reducer_on(struct reducer *r)
{
	struct registry_options ro = {
	    .limits = {.jobs = r->sim->jobs_most, .workers = RS_WORLD_MAX, .memory_bytes = UINT64_C(1) << 32},
	    .threads = r->threads_n,
	    .features = r->features,
	    .reducers_digest = rs_config_reducers_digest(&r->sim->teams[0].cfg),
	    .alloc = on_alloc,
	    .free = on_free,
	    .action = on_action,
	    .ctx = r,
	};
	struct rs_err e;

	trace(r->sim, "r%u starts", r->index);
	r->life++;
	r->state = REDUCER_UP;
	r->intruder.rank = NULL;
	guard_policy(r);
	post_init(&r->in);
	if (registry_new(&r->registry, &ro, &e))
		sim_fail(r->sim, "registry_new: %s", e.msg);
	for (unsigned i = 0; i < r->threads_n; i++)
		start_thread(r, i);
	sim_in(r->sim, sim_below(r->sim, 1000000), EV_REGISTRY_TICK, r->index, r->life << 8);
	sim_in(r->sim, sim_below(r->sim, 100000), EV_HANDSHAKE_TICK, r->index, r->life << 8);
}

static void post_drop(struct post *p)
{
	while (p->head)
		free(post_take(p));
}

void reducer_off(struct reducer *r, bool silent)
{
	if (r->state != REDUCER_UP)
		return;
	r->state = REDUCER_GONE;
	r->silent = silent;
	for (unsigned i = 0; i < r->sim->conns_n; i++) {
		struct conn *c = r->sim->conns[i];

		if (c->reducer != r || !c->end[REDUCER].open)
			continue;
		if (silent)
			c->dark[WORKER] = c->dark[REDUCER] = true;
		else if (sim_chance(r->sim, 30))
			net_cut(c);
		net_close(c, REDUCER);
		c->session = NULL;
		c->phase = PHASE_NONE;
	}
	uplinks_off(r, silent);
	for (unsigned i = 0; i < r->threads_n; i++) {
		lane_free(r->threads[i].core);
		post_drop(&r->threads[i].in);
	}
	post_drop(&r->in);
	registry_free(r->registry);
	if (r->blocks)
		sim_fail(r->sim, "r%u: %u blocks of slots are left", r->index, r->blocks);
}
