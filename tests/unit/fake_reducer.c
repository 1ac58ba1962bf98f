/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_reducer.h"

#include "agent/worker/core/check.h"
#include "common/dtype.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static uint32_t next_random(struct reducers *f)
{
	f->random ^= f->random << 13;
	f->random ^= f->random >> 17;
	f->random ^= f->random << 5;
	return f->random;
}

static size_t piece(struct reducers *f)
{
	return f->random ? next_random(f) % 200 + 1 : f->piece;
}

static void put(struct reducer_bytes *b, const void *from, size_t n)
{
	if (b->len + n > b->size) {
		b->size = (b->len + n) * 2;
		b->at = realloc(b->at, b->size);
		ck_assert_ptr_nonnull(b->at);
	}
	if (n > 0)
		memcpy(b->at + b->len, from, n);
	b->len += n;
}

static void on_late(void *user, const char *sentence)
{
	struct reducers *f = user;

	f->lates++;
	snprintf(f->late, sizeof f->late, "%s", sentence);
}

static void on_waiting(void *user, const char *sentence)
{
	struct reducers *f = user;

	f->waits++;
	snprintf(f->wait, sizeof f->wait, "%s", sentence);
}

static void on_degraded(void *user, const char *sentence)
{
	struct reducers *f = user;

	f->reminders++;
	snprintf(f->reminder, sizeof f->reminder, "%s", sentence);
}

static void on_no_feedback(void *user, const char *sentence)
{
	struct reducers *f = user;

	f->excuses++;
	snprintf(f->excuse, sizeof f->excuse, "%s", sentence);
}

static void on_is_reducer(void *user, unsigned reducer, const char *id)
{
	struct reducers *f = user;
	size_t len = strlen(f->is_reducer);

	snprintf(f->is_reducer + len, sizeof f->is_reducer - len, "%s%u=%s", len ? " " : "", reducer, id);
}

static void on_changed(void *user, const struct rs_reducer *r, enum exchange_change how, const char *why)
{
	struct reducers *f = user;

	(void)r;
	if (how == EXCHANGE_BACK || how == EXCHANGE_TAKEN) {
		f->back++;
		f->taken += how == EXCHANGE_TAKEN;
		return;
	}
	f->empty += how == EXCHANGE_EMPTY;
	f->lost++;
	f->left += how == EXCHANGE_LEFT;
	strcpy(f->why, why);
}

static void on_shares(void *user, uint32_t epoch, const uint32_t *shares)
{
	struct reducers *f = user;

	f->epoch = epoch;
	memcpy(f->shares, shares, f->cfg.reducers_n * sizeof *shares);
}

static void on_balance(void *user, enum balance_kind kind, bool did, const char *sentence)
{
	struct reducers *f = user;

	(void)kind;
	(void)did;
	f->verdicts++;
	snprintf(f->verdict, sizeof f->verdict, "%s", sentence);
}

/* how: what the tests choose of the options. */
static void open_exchange(struct reducers *f, const char *yaml, const struct exchange_options *how)
{
	struct exchange_options opt = {.job = "unit",
				       .label = "pid 7 on here",
				       .generation = 5,
				       .rank = how->rank,
				       .world_size = how->world_size,
				       .processes = how->single_worker ? 2 : 1,
				       .incarnation = 99,
				       .connect_ms = how->connect_ms,
				       .single_worker = how->single_worker,
				       .features = how->features,
				       .kernels = rs_kernels_usable(0),
				       .late = on_late,
				       .waiting = on_waiting,
				       .degraded = on_degraded,
				       .no_feedback = on_no_feedback,
				       .reducer_changed = on_changed,
				       .is_reducer = on_is_reducer,
				       .shares_changed = on_shares,
				       .balance = on_balance,
				       .user = f};
	struct rs_err e = {0};

	*f = (struct reducers){
	    .now_ms = 1000, .generation = 5, .piece = SIZE_MAX, .welcome = true, .start = true, .answer = true};
	ck_assert_msg(rs_config_parse(&f->cfg, "test", yaml, strlen(yaml), &e) == 0, "%s", e.msg);
	opt.params = rs_config_exchange(&f->cfg);
	if (f->cfg.groups_n) {
		opt.params.group = how->params.group;
		opt.params.relay_above = how->params.relay_above;
	}
	ck_assert_msg(exchange_new(&f->x, &opt, f->now_ms, &e) == 0, "%s", e.msg);
	f->links_n = exchange_links(f->x);
	ck_assert_uint_le(f->links_n, REDUCERS_LINKS_MAX);
}

void reducers_open(struct reducers *f, const char *yaml, unsigned world, uint32_t connect_ms)
{
	open_exchange(f, yaml, &(struct exchange_options){.world_size = world, .connect_ms = connect_ms});
}

void reducers_open_offering(struct reducers *f, const char *yaml, unsigned world, uint32_t connect_ms,
			    uint64_t features)
{
	open_exchange(f, yaml,
		      &(struct exchange_options){.world_size = world, .connect_ms = connect_ms, .features = features});
}

void reducers_open_group(struct reducers *f, const char *yaml, unsigned group, uint64_t relay_above, uint64_t features)
{
	open_exchange(f, yaml,
		      &(struct exchange_options){.world_size = 2,
						 .connect_ms = 4000,
						 .features = features,
						 .params = {.group = group, .relay_above = relay_above}});
}

void reducers_open_rank(struct reducers *f, const char *yaml, unsigned rank, unsigned world, uint64_t features)
{
	open_exchange(
	    f, yaml,
	    &(struct exchange_options){.rank = rank, .world_size = world, .connect_ms = 4000, .features = features});
}

void reducers_open_single(struct reducers *f, const char *yaml)
{
	open_exchange(f, yaml, &(struct exchange_options){.world_size = 1, .connect_ms = 1000, .single_worker = true});
}

void reducers_close(struct reducers *f)
{
	exchange_free(f->x);
	for (unsigned i = 0; i < f->links_n; i++) {
		for (unsigned n = 0; n < f->l[i].data_n; n++)
			free(f->l[i].payload[n]);
		free(f->l[i].payload);
		free(f->l[i].data);
		free(f->l[i].in.at);
		free(f->l[i].out.at);
	}
	rs_config_close(&f->cfg);
}

void reducers_say(struct reducers *f, unsigned link, const struct frame *h, const void *payload)
{
	uint8_t raw[FRAME_HEADER];

	frame_encode(h, raw);
	put(&f->l[link].out, raw, sizeof raw);
	put(&f->l[link].out, payload, h->payload_len);
}

void reducers_say_control(struct reducers *f, unsigned link, unsigned type, const uint8_t *payload, uint32_t len)
{
	struct frame h = {.type = (uint8_t)type, .payload_len = len};

	reducers_say(f, link, &h, payload);
}

/* The tests say how a peer was lost in words. */
static enum rs_loss how_of(const char *reason)
{
	if (strstr(reason, "nothing was heard") || strstr(reason, "timed out"))
		return RS_LOSS_SILENT;
	return strstr(reason, "connection reset") ? RS_LOSS_RESET : RS_LOSS_OTHER;
}

void reducers_say_abort(struct reducers *f, unsigned link, int code, const char *message)
{
	uint8_t payload[FRAME_CONTROL_MAX];
	struct rs_err why;

	rs_fail(&why, code, "%s", message);
	reducers_say_control(f, link, FRAME_ABORT, payload, control_pack_abort(payload, &why, NULL));
}

void reducers_say_lost(struct reducers *f, unsigned link, unsigned rank, const char *message)
{
	struct rs_cause cause = {.code = RS_EPEER, .rank = 1 + rank, .loss = how_of(message)};
	uint8_t payload[FRAME_CONTROL_MAX];
	struct rs_err why;

	rs_fail(&why, RS_ECUT, "%s", message);
	reducers_say_control(f, link, FRAME_ABORT, payload, control_pack_abort(payload, &why, &cause));
}

void reducers_say_waiting(struct reducers *f, unsigned link, unsigned joined, unsigned world, const uint32_t *missing,
			  unsigned n)
{
	struct control_waiting w = {.joined = joined, .world_size = world, .missing_n = n};
	uint8_t payload[FRAME_CONTROL_MAX];

	memcpy(w.missing, missing, n * sizeof *missing);
	snprintf(w.refused, sizeof w.refused, "%s", f->refuses);
	reducers_say_control(f, link, FRAME_WAITING, payload, control_pack_waiting(payload, &w));
}

void reducers_say_late(struct reducers *f, unsigned link, uint64_t seq, uint32_t waited_ms, unsigned a, unsigned b,
		       unsigned more)
{
	struct control_late l = {.seq = seq,
				 .waited_ms = waited_ms,
				 .missing = {a, b},
				 .missing_n = a == b ? 1 : 2,
				 .missing_all = (a == b ? 1 : 2) + more,
				 .label = "pid 9 on there"};
	uint8_t payload[FRAME_CONTROL_MAX];

	reducers_say_control(f, link, FRAME_LATE, payload, control_pack_late(payload, &l));
}

void reducers_say_view(struct reducers *f, unsigned link, unsigned type, const struct control_view *v)
{
	uint8_t payload[FRAME_CONTROL_MAX];

	reducers_say_control(f, link, type, payload, control_pack_view(payload, v));
}

void reducers_resume(struct reducers *f, unsigned link)
{
	reducers_say_view(f, link, FRAME_RESUME, &f->l[link].view);
}

void reducers_fetch(struct reducers *f, unsigned link, unsigned n)
{
	struct frame h = f->l[link].data[n];

	h.type = FRAME_FETCH;
	h.flags = 0;
	h.payload_len = h.payload_sum = 0;
	reducers_say(f, link, &h, NULL);
}

void reducers_say_refused(struct reducers *f, unsigned link, int code, const char *message, bool retry)
{
	struct control_refused r = {.code = code, .retry = retry};
	uint8_t payload[FRAME_CONTROL_MAX];

	strcpy(r.message, message);
	reducers_say_control(f, link, FRAME_REFUSED, payload, control_pack_refused(payload, &r));
}

static void triple(const struct frame *h, const void *in, void *out, uint32_t elems)
{
	for (uint32_t i = 0; i < elems; i++) {
		if (h->of.dtype == RS_FLOAT32)
			((float *)out)[i] = 3 * ((const float *)in)[i];
		else if (h->flags & FRAME_WIDE)
			((uint16_t *)out)[i] = (uint16_t)(3 * ((const float *)in)[i]); /* any value will do */
		else if (rs_dtype_size(h->of.dtype) == 8)
			((uint64_t *)out)[i] = 3 * ((const uint64_t *)in)[i];
		else
			((uint8_t *)out)[i] = (uint8_t)(3 * ((const uint8_t *)in)[i]);
	}
}

uint32_t reducers_result(struct reducers *f, unsigned link, unsigned n, struct frame *h, void **payload)
{
	static uint64_t out[RS_CHUNK_MAX / 8];
	const struct frame *d = &f->l[link].data[n];
	uint32_t elems = operation_place(&d->of, d->chunk_elems, d->chunk).elems;
	uint32_t len = operation_down_bytes(&d->of, elems);
	bool root = d->flags & FRAME_ROOT, scatter = operation_is_scatter(&d->of);

	if (d->type == FRAME_HAVE || (scatter ? !root : root))
		len = 0;
	if (!len)
		; /* it has the result already, or does not get it */
	else if (d->of.op == FRAME_OP_BROADCAST || operation_is_encoded(&d->of))
		memset(out, (int)d->chunk + 1, len);
	else
		triple(d, f->l[link].payload[n], out, elems);
	*h = *d;
	h->type = FRAME_RESULT;
	h->generation = f->generation;
	h->ack = 0;
	h->payload_len = len;
	h->flags = f->cfg.job.checksum && len ? FRAME_CHECKED : 0;
	h->payload_sum = h->flags ? frame_checksum(out, len) : 0;
	*payload = out;
	return len;
}

void reducers_answer(struct reducers *f, unsigned link)
{
	struct frame h;
	void *payload;

	reducers_result(f, link, f->l[link].answered++, &h, &payload);
	reducers_say(f, link, &h, payload);
}

void reducers_cut(struct reducers *f, unsigned link, const char *reason)
{
	struct reducer_link *l = &f->l[link];

	l->up = l->greeted = l->started = false;
	l->in.len = l->in.off = l->out.len = l->out.off = 0;
	exchange_disconnected(f->x, link, reason, how_of(reason), f->now_ms);
}

static void start_when_complete(struct reducers *f)
{
	unsigned first = 0, end;

	for (unsigned r = 0; f->start && r < f->cfg.reducers_n; r++, first = end) {
		bool complete = true;

		end = first + f->cfg.reducers[r].lanes;
		for (unsigned i = first; i < end; i++)
			complete = complete && f->l[i].greeted && !f->l[i].started;
		for (unsigned i = first; complete && i < end; i++) {
			f->l[i].started = true;
			reducers_say_control(f, i, FRAME_START, NULL, 0);
		}
	}
}

static void on_hello(struct reducers *f, unsigned link, const uint8_t *payload, uint32_t len)
{
	uint8_t welcome[FRAME_CONTROL_MAX];
	struct rs_err e;

	ck_assert(!f->l[link].greeted);
	ck_assert_int_eq(control_unpack_hello(payload, len, &f->l[link].hello, &e), 0);
	f->l[link].greeted = true;
	if (f->l[link].refuses) {
		reducers_say_control(f, link, FRAME_REFUSED, welcome,
				     control_pack_refused(welcome, f->l[link].refuses));
		return;
	}
	if (!f->welcome)
		return;
	reducers_say_control(f, link, FRAME_WELCOME, welcome,
			     control_pack_welcome(welcome, &(struct control_welcome){.detect_ms = 8000}));
	start_when_complete(f);
}

static void on_data(struct reducers *f, unsigned link, const struct frame *h, const uint8_t *payload)
{
	struct reducer_link *l = &f->l[link];

	if (l->data_n == l->data_size) {
		l->data_size = l->data_size * 2 + 64;
		l->data = realloc(l->data, l->data_size * sizeof *l->data);
		l->payload = realloc(l->payload, l->data_size * sizeof *l->payload);
	}
	l->data[l->data_n] = *h;
	l->payload[l->data_n] = malloc(h->payload_len + 1);
	memcpy(l->payload[l->data_n++], payload, h->payload_len);
	if (f->answer)
		reducers_answer(f, link);
}

static void on_view(struct reducers *f, unsigned link, const uint8_t *payload, uint32_t len)
{
	struct reducer_link *l = &f->l[link];
	struct rs_err e;

	ck_assert_int_eq(control_unpack_view(payload, len, &l->view, &e), 0);
	l->views++;
	l->answered = l->data_n;
	if (f->resume)
		reducers_resume(f, link);
}

static void on_kept(struct reducer_link *l, const struct frame *h, const uint8_t *payload)
{
	ck_assert_uint_le(h->payload_len, sizeof l->kept_payload);
	l->kept_n++;
	l->kept = *h;
	memcpy(l->kept_payload, payload, h->payload_len);
}

static void on_frame(struct reducers *f, unsigned link, const struct frame *h, const uint8_t *payload)
{
	struct reducer_link *l = &f->l[link];
	struct rs_err e;

	/* ABORT may be of the last one; a chunk for a relay has its home there */
	ck_assert(h->generation == f->generation || h->type == FRAME_ABORT ||
		  (h->type == FRAME_DATA && h->flags & FRAME_RELAY));
	switch (h->type) {
	case FRAME_HELLO:
		on_hello(f, link, payload, h->payload_len);
		break;
	case FRAME_VIEW:
		on_view(f, link, payload, h->payload_len);
		break;
	case FRAME_KEPT:
		on_kept(l, h, payload);
		break;
	case FRAME_SETTLE:
		l->settles++;
		break;
	case FRAME_DATA:
	case FRAME_HAVE:
		on_data(f, link, h, payload);
		break;
	case FRAME_PING:
		l->pings++;
		l->ping_count = h->of.count;
		break;
	case FRAME_NONFINITE:
		l->nonfinites++;
		ck_assert_int_eq(control_unpack_nonfinite(payload, h->payload_len, &l->nonfinite, &e), 0);
		break;
	case FRAME_LOAD:
		l->loads++;
		ck_assert_int_eq(control_unpack_load(payload, h->payload_len, &l->load, &e), 0);
		break;
	case FRAME_PROBE:
		l->probes++;
		l->probe_bytes = h->payload_len;
		break;
	case FRAME_GOODBYE:
		l->goodbyes++;
		break;
	case FRAME_ABORT:
		l->aborts++;
		ck_assert_int_eq(control_unpack_abort(payload, h->payload_len, &l->abort, &l->abort_cause, &e), 0);
		break;
	default:
		ck_abort_msg("the exchange sent a %s frame", frame_type_name(h->type));
	}
}

static void decode(struct reducers *f, unsigned link)
{
	struct reducer_bytes *b = &f->l[link].in;
	struct rs_err e = {0};
	struct frame h;

	while (b->len - b->off >= FRAME_HEADER) {
		if (frame_decode(b->at + b->off, &h, &e))
			ck_abort_msg("%s", e.msg);
		if (b->len - b->off < FRAME_HEADER + h.payload_len)
			return;
		b->off += FRAME_HEADER + h.payload_len;
		on_frame(f, link, &h, b->at + b->off - h.payload_len);
	}
}

static bool take_some(struct reducers *f, unsigned link)
{
	struct iovec iov[9];
	unsigned n = f->mute ? 0 : exchange_send_target(f->x, link, iov, 9);
	size_t left = piece(f), took = 0;

	for (unsigned i = 0; i < n && left > 0; i++) {
		size_t take = iov[i].iov_len < left ? iov[i].iov_len : left;

		if (iov[i].iov_len == 0)
			ck_abort_msg("an empty piece is to be sent");
		put(&f->l[link].in, iov[i].iov_base, take);
		left -= take;
		took += take;
	}
	if (took == 0)
		return false;
	exchange_sent(f->x, link, took, f->now_ms);
	decode(f, link);
	return true;
}

static void check_worker(const struct reducers *f)
{
	const char *broken = exchange_check_state(f->x);

	if (broken)
		ck_abort_msg("the worker breaks an invariant: %s", broken);
}

static bool feed_some(struct reducers *f, unsigned link)
{
	struct reducer_bytes *b = &f->l[link].out;
	struct iovec iov[2];
	unsigned n = b->off < b->len ? exchange_recv_target(f->x, link, iov) : 0;
	size_t left = piece(f), fed = 0;

	for (unsigned i = 0; i < n && left > 0; i++) {
		size_t take = iov[i].iov_len < left ? iov[i].iov_len : left;

		take = take < b->len - b->off ? take : b->len - b->off;
		if (take > 0) {
			memcpy(iov[i].iov_base, b->at + b->off, take);
			b->off += take;
			left -= take;
			fed += take;
		}
	}
	if (fed > 0)
		exchange_received(f->x, link, fed, f->now_ms);
	return fed > 0;
}

static bool serve_want(struct reducers *f, unsigned link)
{
	struct reducer_link *l = &f->l[link];

	switch (exchange_want(f->x, link, f->now_ms)) {
	case EXCHANGE_CONNECT:
		exchange_connecting(f->x, link, f->now_ms);
		l->tries++;
		if (l->dead) {
			exchange_disconnected(f->x, link, "connection refused", RS_LOSS_OTHER, f->now_ms);
			return true;
		}
		if (l->rejects) {
			exchange_rejected(f->x, link, l->rejects, f->now_ms);
			return true;
		}
		l->up = true;
		l->shut = false;
		exchange_connected(f->x, link, f->now_ms);
		return true;
	case EXCHANGE_SHUTDOWN:
		if (l->shut)
			return false;
		l->shut = true;
		return true;
	case EXCHANGE_CLOSE:
		reducers_cut(f, link, "");
		return true;
	default:
		return false;
	}
}

bool reducers_step(struct reducers *f, unsigned link)
{
	bool moved = serve_want(f, link);

	if (f->l[link].up && exchange_wants_load(f->x, link))
		exchange_load(f->x, link, f->l[link].busy_us, f->now_ms);
	if (f->l[link].up)
		moved = take_some(f, link) || moved;
	check_worker(f);
	if (f->l[link].up)
		moved = feed_some(f, link) || moved;
	check_worker(f);
	return moved;
}

void reducers_pump(struct reducers *f)
{
	bool moved = true;

	while (moved) {
		moved = false;
		for (unsigned i = 0; f->random && i < 3 * f->links_n; i++)
			moved = reducers_step(f, next_random(f) % f->links_n) || moved;
		for (unsigned i = 0; i < f->links_n; i++)
			moved = reducers_step(f, i) || moved;
	}
	exchange_links_changed(f->x);
}

void reducers_advance(struct reducers *f, uint32_t ms)
{
	uint64_t end = f->now_ms + ms;

	while (f->now_ms < end) {
		uint64_t next = exchange_next(f->x);

		if (next > f->now_ms)
			f->now_ms = next < end ? next : end;
		if (f->now_ms >= next)
			exchange_tick(f->x, f->now_ms);
		check_worker(f);
		reducers_pump(f);
	}
}

static void on_done(struct exchange_op *op, const struct rs_err *err)
{
	struct reducers_op *o = op->user;

	o->done++;
	if (err)
		o->err = *err;
}

int reducers_submit(struct reducers *f, struct reducers_op *o, uint64_t count, struct rs_err *e)
{
	memset(o, 0, sizeof *o);
	o->op = (struct exchange_op){.send = o->x,
				     .recv = o->x,
				     .of = {.count = count, .dtype = RS_FLOAT32, .size = 4},
				     .name = "grad",
				     .done = on_done,
				     .user = o};
	return exchange_submit(f->x, &o->op, f->now_ms, e);
}

void reducers_expect_error(const struct rs_err *e, int code, const char *says)
{
	ck_assert_msg(e->code == code, "code %d, not %d: %s", e->code, code, e->msg);
	ck_assert_msg(strstr(e->msg, says) != NULL, "\"%s\" instead of \"%s\"", e->msg, says);
}

void reducers_expect_end(const struct reducers *f, int code, const char *says)
{
	ck_assert_int_eq(exchange_state(f->x), EXCHANGE_ENDED);
	reducers_expect_error(exchange_error(f->x), code, says);
}
