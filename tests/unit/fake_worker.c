/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_worker.h"

#include "server/core/check.h"
#include "tests/unit/oracle.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fake_reducers[FAKE_REDUCERS] = {"r0", "r1", "r2"};

unsigned fw_places(const struct fw_world *fw)
{
	return fw->params.world_size + fw->params.uplinks;
}

static int fake_random(void *ctx, void *buf, size_t n, struct rs_err *e)
{
	(void)ctx;
	(void)e;
	memset(buf, 0x5a, n);
	return RS_OK;
}

static void on_event(void *ctx, const struct lane_event *ev)
{
	struct fw_world *fw = ctx;

	must(ev->job == FAKE_JOB);
	if (ev->type == LANE_FAILED) {
		fw->failed++;
		fw->why = ev->why;
		return;
	}
	if (ev->type == LANE_LOST || ev->type == LANE_STOPPED || ev->type == LANE_LATE) {
		*(ev->type == LANE_LOST ? &fw->lost : ev->type == LANE_STOPPED ? &fw->stopped : &fw->late) += 1;
		fw->event = *ev;
		return;
	}
	if (ev->type == LANE_NONFINITE) {
		fw->nonfinite++;
		fw->event = *ev;
		return;
	}
	if (ev->type == LANE_UNLINKED) {
		fw->unlinked++;
		return;
	}
	if (ev->type == LANE_PROVEN) {
		fw->proven++;
		return;
	}
	if (ev->type == LANE_ANSWERED) {
		fw->answered++;
		fw->event = *ev;
		return;
	}
	*(ev->uplink ? &fw->uplinks_gone : &fw->gone) += 1;
	fw->clean += ev->clean && !ev->uplink;
	/* as the registry may do from now on: the sanitizer finds any later access */
	for (unsigned r = 0; r < fw_places(fw); r++)
		if (fw->w[r].session)
			return;
	free(fw->params.memory);
	fw->params.memory = NULL;
}

void fw_init(struct fw_world *fw, const struct fw_options *opt)
{
	struct lane_options lo = {.kernels = opt->kernels,
				  .detect_ms = opt->detect_ms ? opt->detect_ms : FAKE_DETECT_MS,
				  .stopped_ms = opt->stopped_ms,
				  .event = on_event,
				  .secret = opt->secret,
				  .random = fake_random,
				  .peers = {.ids = fake_reducers, .n = FAKE_REDUCERS},
				  .ctx = fw};
	struct rs_err e;

	*fw = (struct fw_world){
	    .now_ms = 1000000, .out_piece = SIZE_MAX, .random = 1, .probe = opt->probe, .direct = opt->direct};
	fw->peer_detect_ms = opt->peer_detect_ms ? opt->peer_detect_ms : FAKE_DETECT_MS;
	fw->params = (struct stripe_params){
	    .job = FAKE_JOB,
	    .generation = FAKE_GENERATION,
	    .lane = 1,
	    .world_size = opt->world ? opt->world : 2,
	    .chunk_bytes = opt->chunk_bytes ? opt->chunk_bytes : 64,
	    .decoded_bytes = opt->decoded_bytes,
	    .window = opt->window ? opt->window : 4,
	    .priorities = opt->priorities ? opt->priorities : 1,
	    .deterministic = opt->deterministic,
	    .checksum = opt->checksum,
	    .retain = opt->retain,
	    .groups = opt->groups,
	    .uplinks = opt->uplinks,
	};
	fw->group_of = opt->group_of;
	must(fw->params.uplinks <= FAKE_UPLINKS_MAX);
	if (!lo.kernels)
		must(rs_kernels_select("auto", &lo.kernels, &e) == RS_OK);
	must(lane_new(&fw->lane, &lo, &e) == RS_OK);
	for (unsigned r = 0; r < fw_places(fw); r++)
		fw->w[r] = (struct fw_worker){.fw = fw, .rank = r, .room = SIZE_MAX};
}

/* Attaches w with these parameters, and queues WELCOME. */
static void attach(struct fw_world *fw, struct fw_worker *w, const struct session_params *sp)
{
	uint8_t payload[FRAME_CONTROL_MAX], frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	size_t bytes = stripe_memory(&fw->params);
	struct rs_err e;

	if (!fw->params.memory) {
		fw->params.memory = aligned_alloc(64, bytes);
		memset(fw->params.memory, 0xa5, bytes);
	}
	must(!w->session);
	must(lane_attach(fw->lane, &w->session, &fw->params, sp, w, fw->now_ms, &e) == RS_OK);
	must(session_queue(
	    w->session, frame,
	    control_frame(frame, FRAME_WELCOME, FAKE_GENERATION, 0, payload,
			  control_pack_welcome(payload, &(struct control_welcome){.detect_ms = FAKE_DETECT_MS}))));
	w->shut = w->write_wait = false;
	w->out.off = w->out.len = w->in.off = w->in.len = 0;
	fw_flush(fw);
}

void fw_attach(struct fw_world *fw, unsigned rank)
{
	struct session_params sp = {.rank = rank,
				    .peer_detect_ms = fw->peer_detect_ms,
				    .probe = fw->probe,
				    .direct = fw->direct,
				    .group = fw->group_of ? fw->group_of[rank] : 0};

	snprintf(sp.label, sizeof sp.label, "host-%u", rank);
	attach(fw, &fw->w[rank], &sp);
}

unsigned fw_attach_uplink(struct fw_world *fw, unsigned group, unsigned reducer)
{
	struct session_params sp = {.peer_detect_ms = fw->peer_detect_ms, .group = group, .relay = reducer + 1};
	unsigned at = fw->params.world_size;

	while (fw->w[at].session)
		at++;
	must(at < fw_places(fw));
	snprintf(sp.label, sizeof sp.label, "relay %s", fake_reducers[reducer]);
	attach(fw, &fw->w[at], &sp);
	fw_expect(fw, at, FRAME_WELCOME);
	return at;
}

void fw_attached(struct fw_world *fw, const struct fw_options *opt)
{
	fw_init(fw, opt);
	for (unsigned r = 0; r < fw->params.world_size; r++) {
		fw_attach(fw, r);
		fw_expect(fw, r, FRAME_WELCOME);
	}
}

void fw_abort(struct fw_world *fw, int code, const char *message)
{
	struct rs_err why;

	rs_fail(&why, code, "%s", message);
	lane_abort(fw->lane, FAKE_JOB, &why, NULL);
}

void fw_running(struct fw_world *fw, const struct fw_options *opt)
{
	struct control_hello hello = {.job = "train",
				      .reducer = "r0",
				      .generation = FAKE_GENERATION,
				      .world_size = opt->world,
				      .window = opt->window ? opt->window : 4,
				      .groups = opt->groups,
				      .uplinks = opt->uplinks};

	fw_attached(fw, opt);
	lane_start(fw->lane, FAKE_JOB,
		   &(struct lane_begin){.processes = fw->params.world_size,
					.agreed = {.features = opt->features, .start = FAKE_START},
					.hello = &hello});
	fw_flush(fw);
	for (unsigned r = 0; r < fw->params.world_size; r++)
		fw_expect(fw, r, FRAME_START);
}

void fw_close(struct fw_world *fw)
{
	for (unsigned r = 0; r < fw_places(fw); r++)
		fw_close_peer(fw, r);
	for (unsigned r = 0; r < fw_places(fw); r++) {
		must(!fw->w[r].session);
		free(fw->w[r].out.at);
		free(fw->w[r].in.at);
	}
	must(!fw->params.memory);
	must(!fw->lane->stripes);
	must(!fw->lane->ready_head);
	lane_free(fw->lane);
}

void fw_append(struct fw_buffer *b, const void *bytes, size_t len)
{
	if (b->off == b->len)
		b->off = b->len = 0;
	if (b->len + len > b->size) {
		b->size = 2 * (b->len + len);
		b->at = realloc(b->at, b->size);
	}
	if (len)
		memcpy(b->at + b->len, bytes, len);
	b->len += len;
}

void fw_send_bytes(struct fw_world *fw, unsigned rank, const void *bytes, size_t len)
{
	fw_append(&fw->w[rank].out, bytes, len);
}

void fw_send(struct fw_world *fw, unsigned rank, struct frame f, const void *payload)
{
	uint8_t head[FRAME_HEADER];

	frame_encode(&f, head);
	fw_send_bytes(fw, rank, head, sizeof head);
	fw_send_bytes(fw, rank, payload, f.payload_len);
}

void fw_send_type(struct fw_world *fw, unsigned rank, unsigned type)
{
	fw_send(fw, rank, (struct frame){.type = (uint8_t)type, .generation = FAKE_GENERATION}, NULL);
}

struct frame fw_data(const struct fw_world *fw, unsigned op, unsigned dtype, uint64_t seq, uint64_t count,
		     uint32_t chunk)
{
	return (struct frame){
	    .type = FRAME_DATA,
	    .of.dtype = (uint8_t)dtype,
	    .of.op = (uint8_t)op,
	    .chunk = chunk,
	    .of.seq = seq,
	    .of.count = count,
	    .generation = FAKE_GENERATION,
	    .chunk_elems = fw->params.chunk_bytes / (uint32_t)rs_dtype_size(dtype),
	};
}

void fw_contribute(struct fw_world *fw, unsigned rank, struct frame f)
{
	bool wide = f.flags & FRAME_WIDE, silent = f.of.op == FRAME_OP_BROADCAST && !(f.flags & FRAME_ROOT);
	const struct operation_place at = operation_place(&f.of, f.chunk_elems, f.chunk);
	uint32_t n = silent ? 0 : at.elems;
	uint8_t *payload = malloc(n * sizeof(double) + 1);

	for (uint32_t i = 0; i < n; i++)
		oracle_fill(payload, i, f.of.dtype, wide, f.of.op, rank, f.of.seq, at.first + i);
	f.payload_len = n * (wide ? 4 : (uint32_t)rs_dtype_size(f.of.dtype));
	if (fw->params.checksum) {
		f.flags |= FRAME_CHECKED;
		f.payload_sum = frame_checksum(payload, f.payload_len);
	}
	fw_send(fw, rank, f, payload);
	free(payload);
}

void fw_contribute_all(struct fw_world *fw, unsigned rank, struct frame f)
{
	for (f.chunk = 0; f.chunk < operation_chunks(&f.of, f.chunk_elems); f.chunk++)
		fw_contribute(fw, rank, f);
}

void fw_have(struct fw_world *fw, unsigned rank, struct frame f)
{
	f.type = FRAME_HAVE;
	f.flags = 0;
	f.payload_len = f.payload_sum = 0;
	fw_send(fw, rank, f, NULL);
}

void fw_send_kept(struct fw_world *fw, unsigned rank, struct frame f, uint64_t processes)
{
	uint32_t n = frame_chunk_len(f.of.count, f.chunk_elems, f.chunk);
	uint8_t *payload = malloc(n * sizeof(double) + 1);

	for (uint32_t i = 0; i < n; i++)
		oracle_result(payload, i, f.of.dtype, f.of.op, fw->params.world_size, processes, f.of.seq,
			      (uint64_t)f.chunk * f.chunk_elems + i);
	f.type = FRAME_KEPT;
	f.flags = 0;
	f.payload_len = n * (uint32_t)rs_dtype_size(f.of.dtype);
	if (fw->params.checksum) {
		f.flags = FRAME_CHECKED;
		f.payload_sum = frame_checksum(payload, f.payload_len);
	}
	fw_send(fw, rank, f, payload);
	free(payload);
}

void fw_send_view(struct fw_world *fw, unsigned rank, const struct control_view *v)
{
	uint8_t frame[FRAME_HEADER + FRAME_CONTROL_MAX], payload[FRAME_CONTROL_MAX];

	fw_send_bytes(fw, rank, frame,
		      control_frame(frame, FRAME_VIEW, FAKE_GENERATION, 0, payload, control_pack_view(payload, v)));
}

void fw_check(const struct fw_world *fw)
{
	const char *broken = lane_check(fw->lane);

	if (broken)
		ck_abort_msg("the lane breaks an invariant: %s", broken);
}

unsigned fw_slots_alive(const struct fw_world *fw)
{
	const struct stripe *st = stripe_find(fw->lane, FAKE_JOB, fw->params.lane);
	unsigned alive = 0;

	for (unsigned i = 0; st && i <= st->mask; i++)
		for (const struct slot *s = st->chains[i]; s; s = s->next)
			alive++;
	return alive;
}

static void fw_write(struct fw_world *fw, struct fw_worker *w)
{
	struct iovec iov[SESSION_IOV];
	unsigned n;

	while ((n = session_send_target(w->session, iov, SESSION_IOV)) && w->room) {
		size_t left = fw->out_piece < w->room ? fw->out_piece : w->room, sent = 0;

		for (unsigned i = 0; i < n && left; i++) {
			size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;

			fw_append(&w->in, iov[i].iov_base, part);
			sent += part;
			left -= part;
		}
		if (w->room != SIZE_MAX)
			w->room -= sent;
		session_sent(w->session, sent, fw->now_ms);
		fw_check(fw);
	}
	w->write_wait = n;
	w->shut = session_shut(w->session);
}

void fw_flush(struct fw_world *fw)
{
	struct session *s;
	unsigned alive;

	while ((s = lane_next_ready(fw->lane))) {
		struct fw_worker *w = session_user(s);

		must(w->session == s);
		if (session_closed(s)) {
			w->session = NULL;
			session_free(s);
		} else if (!w->write_wait || session_shut(s)) {
			fw_write(fw, w);
		}
	}
	if (fw->serve_uplinks)
		fw->serve_uplinks(fw->homes);
	fw_check(fw);
	alive = fw_slots_alive(fw);
	if (alive > fw->slots_seen_max)
		fw->slots_seen_max = alive;
}

void fw_grant(struct fw_world *fw, unsigned rank, size_t room)
{
	struct fw_worker *w = &fw->w[rank];

	w->room = room;
	if (w->session)
		fw_write(fw, w);
	fw_flush(fw);
}

size_t fw_feed(struct fw_world *fw, unsigned rank, size_t max)
{
	struct fw_worker *w = &fw->w[rank];
	struct iovec iov[2];
	size_t left = w->out.len - w->out.off, done = 0;
	unsigned n;

	if (left > max)
		left = max;
	if (!w->session || !left)
		return 0;
	n = session_recv_target(w->session, iov);
	for (unsigned i = 0; i < n && done < left; i++) {
		size_t part = iov[i].iov_len < left - done ? iov[i].iov_len : left - done;

		memcpy(iov[i].iov_base, w->out.at + w->out.off + done, part);
		done += part;
	}
	must(done > 0);
	w->out.off += done;
	session_received(w->session, done, fw->now_ms);
	fw_check(fw);
	fw_flush(fw);
	return done;
}

void fw_feed_all(struct fw_world *fw, size_t piece)
{
	bool more = true;

	while (more) {
		more = false;
		for (unsigned r = 0; r < fw_places(fw); r++)
			if (fw_feed(fw, r, piece))
				more = true;
	}
}

uint32_t fw_random(struct fw_world *fw, uint32_t below)
{
	fw->random = fw->random * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)fw->random * below) >> 32);
}

void fw_feed_shuffled(struct fw_world *fw, size_t piece_max)
{
	for (;;) {
		unsigned world = fw_places(fw), first = fw_random(fw, world), r = 0;
		size_t piece = 1 + fw_random(fw, (uint32_t)piece_max);

		while (r < world && !fw_feed(fw, (first + r) % world, piece))
			r++;
		if (r == world)
			return;
	}
}

void fw_close_peer(struct fw_world *fw, unsigned rank)
{
	if (fw->w[rank].session)
		session_lost(fw->w[rank].session, "it closed the connection");
	fw_flush(fw);
}

void fw_tick(struct fw_world *fw, uint64_t ms)
{
	fw->now_ms += ms;
	lane_tick(fw->lane, fw->now_ms);
	fw_flush(fw);
}

bool fw_take(struct fw_world *fw, unsigned rank, struct frame *f, const uint8_t **payload)
{
	return fw_take_from(&fw->w[rank].in, f, payload);
}

bool fw_take_from(struct fw_buffer *in, struct frame *f, const uint8_t **payload)
{
	struct rs_err e;

	if (in->len - in->off < FRAME_HEADER)
		return false;
	must(frame_decode(in->at + in->off, f, &e) == RS_OK);
	if (in->len - in->off - FRAME_HEADER < f->payload_len)
		return false;
	*payload = in->at + in->off + FRAME_HEADER;
	in->off += FRAME_HEADER + f->payload_len;
	return true;
}

static struct frame expect(struct fw_world *fw, unsigned rank, unsigned type, const uint8_t **payload)
{
	struct frame f;

	if (!fw_take(fw, rank, &f, payload))
		ck_abort_msg("rank %u got nothing instead of %s (lane says: %s)", rank, frame_type_name(type),
			     fw->why.msg);
	if (f.type != type)
		ck_abort_msg("rank %u got %s instead of %s (lane says: %s)", rank, frame_type_name(f.type),
			     frame_type_name(type), fw->why.msg);
	must(f.generation == FAKE_GENERATION);
	return f;
}

struct frame fw_expect(struct fw_world *fw, unsigned rank, unsigned type)
{
	const uint8_t *payload;

	return expect(fw, rank, type, &payload);
}

void fw_expect_abort(struct fw_world *fw, unsigned rank, int code, const char *a, const char *b)
{
	const uint8_t *payload;
	struct frame f = expect(fw, rank, FRAME_ABORT, &payload);
	struct rs_cause cause;
	struct rs_err why, e;

	must(control_unpack_abort(payload, f.payload_len, &why, &cause, &e) == RS_OK);
	if (why.code != code || !strstr(why.msg, a) || !strstr(why.msg, b))
		ck_abort_msg("rank %u: code %d, \"%s\" instead of code %d with \"%s\" and \"%s\"", rank, why.code,
			     why.msg, code, a, b);
}

void fw_expect_result(struct fw_world *fw, unsigned rank, struct frame f, uint64_t processes)
{
	const uint8_t *payload;
	struct frame got = expect(fw, rank, FRAME_RESULT, &payload);
	const struct operation_place at = operation_place(&f.of, f.chunk_elems, f.chunk);
	bool broadcast = f.of.op == FRAME_OP_BROADCAST, root = broadcast && f.flags & FRAME_ROOT;
	uint32_t n = root ? 0 : at.elems;
	size_t size = rs_dtype_size(f.of.dtype);
	uint8_t want[sizeof(double)];

	must(got.of.priority == f.of.priority);
	must(got.of.seq == f.of.seq);
	must(got.chunk == f.chunk);
	must(got.of.count == f.of.count);
	must(got.chunk_elems == f.chunk_elems);
	must(got.of.dtype == f.of.dtype);
	must(got.of.op == f.of.op && got.of.sharded == f.of.sharded);
	must(got.payload_len == n * size);
	if (fw->params.checksum && !root)
		must(got.payload_sum == frame_checksum(payload, got.payload_len));
	must(got.flags == (fw->params.checksum && !root ? FRAME_CHECKED : 0));
	for (uint32_t i = 0; i < n; i++) {
		/* the root of the tests' broadcasts is the last rank, the owner of a part
		 * the rank with its number */
		oracle_result(want, 0, f.of.dtype, f.of.op, fw->params.world_size, processes, f.of.seq, at.first + i);
		if (broadcast)
			oracle_fill(want, 0, f.of.dtype, false, f.of.op,
				    f.of.sharded ? at.part : fw->params.world_size - 1, f.of.seq, at.first + i);
		if (memcmp(payload + i * size, want, size) != 0)
			ck_abort_msg("%s %s: element %u of chunk %u of operation %lu is wrong at rank %u",
				     rs_op_name(f.of.op), rs_dtype_name(f.of.dtype), i, f.chunk,
				     (unsigned long)f.of.seq, rank);
	}
}

void fw_expect_head(struct fw_world *fw, unsigned rank, struct frame f)
{
	struct frame got = fw_expect(fw, rank, FRAME_RESULT);

	must(got.of.seq == f.of.seq && got.chunk == f.chunk && got.of.count == f.of.count &&
	     got.chunk_elems == f.chunk_elems);
	must(got.of.priority == f.of.priority && got.of.dtype == f.of.dtype && got.of.op == f.of.op);
	must(got.of.sharded == f.of.sharded && (!f.of.sharded || got.of.parts == f.of.parts));
	must(got.payload_len == 0 && got.flags == 0);
}

struct control_view fw_expect_view(struct fw_world *fw, unsigned rank, unsigned type)
{
	const uint8_t *payload;
	struct frame f = expect(fw, rank, type, &payload);
	struct control_view v;
	struct rs_err e;

	must(control_unpack_view(payload, f.payload_len, &v, &e) == RS_OK);
	return v;
}

void fw_expect_nothing(struct fw_world *fw, unsigned rank)
{
	const struct fw_buffer *in = &fw->w[rank].in;

	must(in->len == in->off);
}

void fw_expect_end(struct fw_world *fw, int code, const char *a, const char *b)
{
	for (unsigned r = 0; r < fw->params.world_size; r++) {
		if (!fw->w[r].session)
			continue;
		fw_expect_abort(fw, r, code, a, b);
		fw_expect_nothing(fw, r);
		ck_assert(fw->w[r].shut);
	}
	ck_assert_uint_eq(fw->failed, 1);
	ck_assert_int_eq(fw->why.code, code);
	fw_close(fw);
	ck_assert_uint_eq(fw->gone, fw->params.world_size);
}

void fw_say_goodbye(struct fw_world *fw)
{
	unsigned world = fw->params.world_size;

	ck_assert_uint_eq(fw_slots_alive(fw), 0);
	for (unsigned r = 0; r < world; r++)
		fw_send_type(fw, r, FRAME_GOODBYE);
	fw_feed_all(fw, SIZE_MAX);
	for (unsigned r = 0; r < world; r++) {
		ck_assert(fw->w[r].shut);
		fw_expect_nothing(fw, r);
	}
	fw_close(fw);
	ck_assert_uint_eq(fw->failed, 0);
	ck_assert_uint_eq(fw->gone, world);
	ck_assert_uint_eq(fw->clean, world);
}
