/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of one link: it tries again, its reducer counts as lost, or the exchange
 * ends. */
#include "agent/worker/core/link_fail.h"
#include "agent/worker/core/exchange_text.h"
#include "agent/worker/core/view.h"

#include <stdarg.h>
#include <stdio.h>

/* The link tries again. If the path has let no large message pass, it does so later each
 * time. */
static void link_not_back(struct link *l, const struct loss *loss, uint64_t now_ms)
{
	const struct rs_cause *reported = loss->reported;
	struct rs_err own;
	bool unheard =
	    reported && is_own_loss(l->x, reported) && unheard_text(l->x, l->reducer, reported, now_ms, &own);

	snprintf(l->reason, sizeof l->reason, "%s", unheard ? own.msg : loss->why);
	/* if the start fails in the end, that may be why */
	if (reported && reported->rank && l->x->state == EXCHANGE_JOINING)
		snprintf(l->x->rank_lost, sizeof l->x->rank_lost, "%s", l->reason);
	if (l->probe == LINK_PROBE_SENT && (unheard || loss->narrow))
		view_probe_failed(l->x, l->reducer, l->reason, sizeof l->reason, now_ms);
	link_retry(l, now_ms);
}

void link_lost(struct link *l, const struct loss *loss, uint64_t now_ms)
{
	struct exchange *x = l->x;
	const struct rs_reducer *r = link_reducer(l);
	struct loss full = *loss;
	char text[CONTROL_MESSAGE];
	struct rs_err e;

	/* whatever is wrong with the connection, the next generation must not have it */
	l->keeps &= loss->reported != NULL;
	if (!loss->reported)
		full.why = loss_text(l, loss, text, sizeof text);
	full.narrow = full.why != loss->why;
	if (!x->retaining) {
		rs_fail(&e, RS_EPEER, "reducer %s (%s) was lost: %s", r->id, link_address(l), full.why);
		/* one that is silent may still hear why this rank leaves, and tell it to
		 * the others */
		exchange_fail_because(
		    x, &e,
		    &(struct rs_cause){
			.code = RS_EPEER, .reducer = 1 + l->reducer, .loss = loss->how, .narrow = full.narrow},
		    true, l->open ? NULL : l, now_ms);
	} else if (!link_lives(l) || x->state == EXCHANGE_JOINING) {
		/* no operation has started there: it may come back */
		link_not_back(l, &full, now_ms);
	} else {
		view_lose_reducer(x, l->reducer, &full, l, now_ms);
	}
}

void link_join_failed(struct link *l, const char *reason, enum rs_loss how, uint64_t now_ms)
{
	if (l->x->retaining && l->x->state == EXCHANGE_RUNNING && link_lives(l)) {
		link_lost(l, &(struct loss){.why = reason, .how = how}, now_ms);
		return;
	}
	snprintf(l->reason, sizeof l->reason, "%s", reason);
	link_retry(l, now_ms);
}

/* The connection was at rest, for the next generation, which must not have it now. */
static void link_close_soon(struct link *l, uint64_t now_ms)
{
	struct exchange *x = l->x;

	x->links_changed = true;
	if (x->state < EXCHANGE_ENDING)
		return;
	x->flush_by_ms = now_ms + LINK_FLUSH_MS;
	x->next_ms = min64(x->next_ms, x->flush_by_ms);
}

void link_violation(struct link *l, uint64_t now_ms, const char *fmt, ...)
{
	const struct rs_reducer *r = link_reducer(l);
	char what[400];
	struct rs_err e;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	l->keeps = false;
	if (l->state >= LINK_LEAVING) {
		link_close_soon(l, now_ms);
		return;
	}
	if (l->state == LINK_HANDSHAKE && l->kept) {
		/* it may be of the last generation; another connection has nothing of
		 * that */
		link_join_failed(l, what, RS_LOSS_OTHER, now_ms);
		return;
	}
	if (l->x->retaining && (l->x->state == EXCHANGE_RUNNING || l->state >= LINK_JOINED)) {
		link_lost(l, &(struct loss){.why = what}, now_ms);
		return;
	}
	rs_fail(&e, RS_EPROTO, "reducer %s (%s): %s", r->id, link_address(l), what);
	exchange_fail(l->x, &e, true, NULL, now_ms);
}
