/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences about failures that need more than one fact: which ranks are missing, which
 * chunks have no result. */
#include "agent/worker/core/exchange_text.h"
#include "agent/worker/core/text.h"
#include "common/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
	TEXT_PACKET_BYTES = 1200, /* a message of this size fits into one packet of every path */
	TEXT_LOSS_BYTES = 160,    /* of the loss of a rank; other facts follow */
};

/* Returns the separator before the i-th of n items. */
static const char *text_separator(unsigned i, unsigned n)
{
	if (i == 0)
		return "";
	return i + 1 == n ? " and " : ", ";
}

static void text_add_duration(struct text *t, uint32_t ms)
{
	if (ms % 1000 == 0)
		text_add(t, "%u s", ms / 1000);
	else
		text_add(t, "%u ms", ms);
}

const char *op_text(const struct exchange_op *op, char *buf, size_t size)
{
	const char *kind = operation_is_gather(&op->of)      ? "all-gather"
			   : operation_is_scatter(&op->of)   ? "reduce-scatter"
			   : op->of.op == FRAME_OP_BROADCAST ? "broadcast"
							     : "all-reduce";

	if (op->of.tensors)
		snprintf(buf, size, "%s %" PRIu64 " (group of %u tensors)", kind, op->of.seq, op->of.tensors);
	else if (op->name && *op->name)
		snprintf(buf, size, "%s %" PRIu64 " (%s)", kind, op->of.seq, op->name);
	else
		snprintf(buf, size, "%s %" PRIu64, kind, op->of.seq);
	return buf;
}

/* Adds the living reducers that this worker has not joined on all lanes, each with the
 * result of its last attempt. Returns how many there are. */
static unsigned text_add_unreached(struct text *t, const struct exchange *x)
{
	unsigned n = 0;
	int last = -1;

	for (unsigned i = 0; i < x->links_n; i++) {
		const struct link *l = &x->links[i];
		const struct rs_reducer *r = link_reducer(l);

		if (l->state == LINK_JOINED || l->state == LINK_RUNNING || (int)l->reducer == last || !link_lives(l))
			continue;
		last = (int)l->reducer;
		text_add(t, "%sreducer %s at %s: %s (tried %u time%s)", n++ ? "; " : "", r->id, link_address(l),
			 *l->reason ? l->reason : "no answer", l->tries, l->tries == 1 ? "" : "s");
	}
	return n;
}

/* Adds the ranks that a reducer named as missing. */
static void text_add_missing(struct text *t, const struct exchange *x, const struct link *l)
{
	const struct control_waiting *w = &l->waiting;
	unsigned world = x->opt.world_size;
	unsigned all = w->joined < world ? world - w->joined : w->missing_n; /* WAITING names only the first ones */
	unsigned more = all > w->missing_n ? all - w->missing_n : 0;
	unsigned n = w->missing_n + (more > 0);

	text_add(t, "reducer %s: rank%s ", link_reducer(l)->id, all == 1 ? "" : "s");
	for (unsigned i = 0; i < w->missing_n; i++)
		text_add(t, "%s%u", text_separator(i, n), w->missing[i]);
	if (more > 0)
		text_add(t, "%s%u more", text_separator(n - 1, n), more);
	text_add(t, " of %u %s not joined job %s", world, all == 1 ? "has" : "have", x->job);
	if (w->refused[0])
		text_add(t, "; it says: %s", w->refused);
}

/* Adds the first reducer that waits for ranks, or the first that has refused one. Returns
 * its link, or NULL. */
static const struct link *text_add_gathering(struct text *t, const struct exchange *x)
{
	const struct link *first = NULL;

	for (unsigned i = 0; i < x->links_n; i++) {
		const struct link *l = &x->links[i];

		if (l->state == LINK_JOINED && l->waiting.missing_n > 0 &&
		    (!first || (l->waiting.refused[0] && !first->waiting.refused[0])))
			first = l;
	}
	if (first)
		text_add_missing(t, x, first);
	return first;
}

/* Adds a reducer that has all ranks and has not started the job. */
static void text_add_not_started(struct text *t, const struct exchange *x)
{
	const char *id = "?";

	for (unsigned i = x->links_n; i > 0; i--)
		if (x->links[i - 1].state == LINK_JOINED)
			id = link_reducer(&x->links[i - 1])->id;
	text_add(t, "reducer %s has not started job %s", id, x->job);
}

/* Returns how many reducers this worker has joined on a connection or, with `started`, on
 * all of them with START. */
static unsigned text_count_joined(const struct exchange *x, bool started)
{
	unsigned n = 0;

	for (unsigned r = 0; r < x->params->reducers_n; r++) {
		bool one = false, all = true;

		for (unsigned i = 0; i < x->links_n; i++) {
			const struct link *l = &x->links[i];

			if (l->reducer != r)
				continue;
			one |= l->state == LINK_JOINED || l->state == LINK_RUNNING;
			all &= l->state == LINK_RUNNING;
		}
		n += started ? all : one;
	}
	return n;
}

/* Returns whether the job may start without the reducers that are not joined. */
static bool text_has_enough(const struct exchange *x, bool started)
{
	return x->params->min_reducers && text_count_joined(x, started) >= x->params->min_reducers;
}

bool waits_for_slots_only(const struct exchange *x)
{
	return text_has_enough(x, true) && text_count_joined(x, true) == text_count_joined(x, false);
}

/* Adds the reducers that are missing, if the job cannot start without them. Returns how
 * many there are. */
static unsigned text_add_needed(struct text *t, const struct exchange *x)
{
	if (text_has_enough(x, false))
		return 0;
	if (x->params->min_reducers && x->params->min_reducers < x->params->reducers_n)
		text_add(t,
			 "%u of %u reducers are there, expected %u (job.min_reducers): ", text_count_joined(x, false),
			 x->params->reducers_n, x->params->min_reducers);
	return text_add_unreached(t, x);
}

void waiting_text(const struct exchange *x, uint64_t now_ms, char *buf, size_t size)
{
	struct text t = {.len = 0};

	if (!text_add_needed(&t, x) && !text_add_gathering(&t, x))
		text_add_not_started(&t, x);
	text_add(&t, "; waiting for %" PRIu64 " s", (now_ms - x->opened_ms) / 1000);
	snprintf(buf, size, "%s", t.buf);
}

/* Adds why the last attempt to bring a lost reducer back failed, if that is not the
 * reason of the loss. */
static void text_add_not_back(struct text *t, const struct exchange *x, unsigned reducer)
{
	for (unsigned i = 0; i < x->links_n; i++) {
		const struct link *l = &x->links[i];

		if (l->reducer != reducer || !*l->reason || strcmp(l->reason, x->losses[reducer].why) == 0)
			continue;
		text_add(t, "; it cannot come back: %s", l->reason);
		return;
	}
}

bool degraded_text(const struct exchange *x, uint64_t now_ms, char *buf, size_t size)
{
	struct text t = {.len = 0};
	unsigned lost = 0, alive = exchange_alive(x);

	if (x->params->min_reducers && alive >= x->params->min_reducers)
		return false; /* the others are slots, which may be empty */
	text_add(&t, "%u of %u reducers have all shards", alive, x->params->reducers_n);
	for (unsigned r = 0; r < x->params->reducers_n; r++)
		if (!exchange_lives(x, r) && !x->losses[r].empty) {
			lost++;
			text_add(&t, "; %s is lost for %" PRIu64 " s: %s", x->params->reducers[r].id,
				 (now_ms - x->losses[r].at_ms) / 1000, x->losses[r].why);
			text_add_not_back(&t, x, r);
		}
	snprintf(buf, size, "%s", t.buf);
	return lost > 0;
}

/* Returns the bytes of the largest message that the reducer has not answered, if it is
 * larger than every result that has come since the reducer is there and needs more than
 * one packet. 0: there is none. */
static uint32_t unanswered_bytes(const struct exchange *x, unsigned reducer)
{
	uint32_t passed = x->losses[reducer].passed, largest = 0;

	for (unsigned i = 0; i < x->links_n; i++) {
		const struct link *l = &x->links[i];
		uint32_t had = 0; /* bytes of PROBE, or of HAVE frames, which are sent together */

		for (unsigned p = 0; l->reducer == reducer && p < x->params->priorities; p++)
			for (uint32_t at = l->streams[p].head; at != l->streams[p].tail; at++) {
				const struct outgoing *f = &l->streams[p].ring[at & l->streams[p].mask];

				had += f->op ? 0 : FRAME_HEADER;
				largest = f->op && f->bytes > largest ? f->bytes : largest;
			}
		if (l->reducer == reducer && l->probe == LINK_PROBE_SENT)
			had = x->params->chunk_bytes;
		largest = had > largest ? had : largest;
	}
	return passed < LOSS_PROOF_BYTES && largest > passed && largest >= TEXT_PACKET_BYTES ? largest : 0;
}

const char *loss_text(const struct link *l, const struct loss *loss, char *buf, size_t size)
{
	uint32_t stuck = loss->how == RS_LOSS_SILENT ? unanswered_bytes(l->x, l->reducer) : 0;

	if (!stuck)
		return loss->why;
	snprintf(buf, size,
		 "%s; if it runs, small messages pass and large ones do not (no answer to %u bytes): check the MTU and "
		 "the filters of the path",
		 loss->why, stuck);
	return buf;
}

bool is_own_loss(const struct exchange *x, const struct rs_cause *cause)
{
	return cause->code == RS_EPEER && cause->rank == 1 + x->opt.rank;
}

/* Returns the link of the reducer that has joined and was sent to last; NULL: there is
 * none. */
static const struct link *text_find_sending(const struct exchange *x, unsigned reducer)
{
	const struct link *last = NULL;

	for (unsigned i = 0; i < x->links_n; i++) {
		const struct link *l = &x->links[i];

		if (l->reducer == reducer && (l->state == LINK_JOINED || l->state == LINK_RUNNING) &&
		    (!last || l->last_tx_ms > last->last_tx_ms))
			last = l;
	}
	return last;
}

bool unheard_text(const struct exchange *x, unsigned reducer, const struct rs_cause *cause, uint64_t now_ms,
		  struct rs_err *e)
{
	uint32_t stuck = cause->loss == RS_LOSS_SILENT ? unanswered_bytes(x, reducer) : 0;
	const struct link *l = text_find_sending(x, reducer);

	/* a process that runs sends heartbeats, or finds that the connection takes
	 * none */
	if (!stuck || !l || now_ms - l->last_tx_ms >= l->peer_detect_ms / 2 ||
	    (x->woke_ms && now_ms - x->woke_ms < l->peer_detect_ms))
		return false;
	rs_fail(
	    e, RS_EPEER,
	    "reducer %s (%s) says that nothing was heard from rank %u, which hears the reducer: small messages pass "
	    "and large ones do not (no answer to %u bytes): check the MTU and the filters of the path",
	    link_reducer(l)->id, link_address(l), x->opt.rank, stuck);
	return true;
}

int connect_timeout_text(const struct exchange *x, struct rs_err *e)
{
	struct text t = {.len = 0};
	const struct link *waits;

	if (*x->rank_lost)
		text_add(&t, "while the job started, %.*s; then ", TEXT_LOSS_BYTES, x->rank_lost);
	if (text_add_needed(&t, x) > 0) {
		text_add(&t, "; gave up after ");
		text_add_duration(&t, x->opt.connect_ms);
		return rs_fail(e, RS_ETIMEOUT, "%s", t.buf);
	}
	waits = text_add_gathering(&t, x);
	if (!waits)
		text_add_not_started(&t, x);
	text_add(&t, waits && waits->waiting.refused[0] ? "; gave up after " : " within ");
	text_add_duration(&t, x->opt.connect_ms);
	return rs_fail(e, RS_ETIMEOUT, "%s", t.buf);
}

/* "rank 3 (pid 77 on host b) and 2 others have not sent their part for 29 s" */
static void text_add_late(struct text *t, const struct link *l, uint64_t now_ms)
{
	const struct control_late *late = &l->late;

	text_add(t, "rank %u", late->missing[0]);
	if (late->label[0])
		text_add(t, " (%.*s)", CONTROL_LABEL, late->label);
	if (late->missing_all == 2 && late->missing_n == 2)
		text_add(t, " and rank %u", late->missing[1]);
	else if (late->missing_all > 1)
		text_add(t, " and %u others", late->missing_all - 1);
	text_add(t, " %s not sent %s part for %" PRIu64 " s", late->missing_all == 1 ? "has" : "have",
		 late->missing_all == 1 ? "its" : "their", (late->waited_ms + (now_ms - l->late_at_ms)) / 1000);
}

void late_text(const struct exchange *x, const struct link *l, uint64_t now_ms, char *buf, size_t size)
{
	const struct exchange_op *op = x->first;
	struct text t = {.len = 0};
	char name[160];

	while (op && op->of.seq != l->late.seq)
		op = op->next;
	if (op)
		text_add(&t, "%s waits: ", op_text(op, name, sizeof name));
	else
		text_add(&t, "operation %" PRIu64 " waits: ", l->late.seq);
	text_add_late(&t, l, now_ms);
	snprintf(buf, size, "%s", t.buf);
}

/* Returns the link on which a reducer has recently named the ranks that the operation
 * waits for; NULL: none has. */
static const struct link *text_find_late(const struct exchange *x, const struct exchange_op *op, uint64_t now_ms)
{
	for (unsigned i = 0; i < x->links_n; i++) {
		const struct link *l = &x->links[i];

		if (l->state == LINK_RUNNING && l->late_at_ms && now_ms - l->late_at_ms < LINK_LATE_MS &&
		    l->late.seq == op->of.seq)
			return l;
	}
	return NULL;
}

/* Adds which chunks are missing, when no reducer has named a rank. */
static void text_add_unanswered(struct text *t, const struct exchange *x, const struct exchange_op *op)
{
	const char *ids[4];
	unsigned n = 0, more = 0;
	int last = -1;

	text_add(t, "%" PRIu64 " of %" PRIu64 " chunks are without a result, of reducer", op->chunks_left, op->chunks);
	for (unsigned i = 0; i < x->links_n; i++) {
		const struct link *l = &x->links[i];

		if ((int)l->reducer == last || !link_has_op(l, op))
			continue;
		last = (int)l->reducer;
		if (n < 4)
			ids[n++] = link_reducer(l)->id;
		else
			more++;
	}
	for (unsigned i = 0; i < n; i++)
		text_add(t, "%s%s", i ? text_separator(i, n + (more > 0)) : n > 1 ? "s " : " ", ids[i]);
	if (more > 0)
		text_add(t, " and %u more", more);
}

int op_timeout_text(const struct exchange *x, const struct exchange_op *op, uint64_t now_ms, struct rs_err *e)
{
	const struct link *late = text_find_late(x, op, now_ms);
	struct text t = {.len = 0};
	char name[160];

	text_add(&t, "%s of %" PRIu64 " %s was not done within ", op_text(op, name, sizeof name), op->of.count,
		 rs_dtype_name(op->of.dtype));
	text_add_duration(&t, x->params->op_ms);
	text_add(&t, ": ");
	if (late)
		text_add_late(&t, late, now_ms);
	else
		text_add_unanswered(&t, x, op);
	return rs_fail(e, RS_EPEER, "%s", t.buf);
}
