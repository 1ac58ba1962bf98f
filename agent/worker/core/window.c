/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/core/window.h"
#include "common/assert.h"

void window_init(struct window *w, uint32_t unit, uint32_t most, bool adaptive, bool far)
{
	rs_assert(unit > 0 && most > 0);
	*w = (struct window){.unit = unit,
			     .limit = adaptive && !far ? 1 : most,
			     .most = most,
			     .least = 1,
			     .far = far,
			     .starting = true,
			     .hold_ms = WINDOW_HOLD_MIN_MS};
}

void window_narrow(struct window *w, uint32_t most)
{
	w->most = most;
	w->limit = w->far || w->limit > most ? most : w->limit;
}

void window_widen(struct window *w, uint32_t most)
{
	rs_assert(most >= w->most);
	if (w->limit == w->most)
		w->limit = most;
	w->most = most;
}

static uint32_t window_larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

void window_keep(struct window *w, uint32_t least)
{
	rs_assert(least > 0);
	w->least = least;
}

bool window_open(struct window *w, uint32_t chunks, uint64_t bytes_in_flight, uint32_t bytes)
{
	if (chunks == 0)
		return true;
	if (chunks < w->most && bytes_in_flight + bytes <= (uint64_t)w->limit * w->unit)
		return true;
	w->limited = true;
	return false;
}

bool window_result(struct window *w, uint32_t bytes)
{
	rs_assert(w->limit > 0 && w->limit <= w->most);
	w->results += bytes;
	w->span_bytes += bytes;
	if (w->local || w->results < (uint64_t)w->limit * w->unit)
		return false;
	w->results = 0;
	return true;
}

static void window_grow(struct window *w)
{
	uint32_t by = w->starting ? w->limit : 1;

	w->limit = by < w->most - w->limit ? w->limit + by : w->most;
}

static void window_on_loss(struct window *w, uint64_t now_ms)
{
	w->starting = false;
	if (w->limit <= 2)
		w->single_until_ms = now_ms + WINDOW_SINGLE_MS;
	w->limit = w->limit / 2 > 0 ? w->limit / 2 : 1;
	w->hold_until_ms = now_ms + w->hold_ms;
	w->hold_ms = w->hold_ms < WINDOW_HOLD_MAX_MS / 2 ? w->hold_ms * 2 : WINDOW_HOLD_MAX_MS;
}

/* Returns the queueing delay above which the window shrinks. On a long link a fixed time
 * is noise; ports have queues for about a round trip there, so half of it is the
 * limit. */
static uint32_t window_full_us(const struct window_signal *s)
{
	return s->min_rtt_us / 2 > WINDOW_FULL_US ? s->min_rtt_us / 2 : WINDOW_FULL_US;
}

static void window_measure_rate(struct window *w, uint32_t min_rtt_us, uint64_t now_ms)
{
	uint64_t ms = now_ms - w->span_from_ms, rate;

	if (ms < WINDOW_SPAN_MS || ms * 1000 < (uint64_t)WINDOW_SPAN_RTTS * min_rtt_us)
		return;
	rate = w->span_bytes * 1000 / ms;
	w->rate -= w->rate / WINDOW_RATE_FADES;
	if (w->rate < rate)
		w->rate = rate;
	w->span_bytes = 0;
	w->span_from_ms = now_ms;
}

/* Raises the window to what keeps the link busy, whatever queues and losses say. */
static void window_keep_busy(struct window *w, uint32_t min_rtt_us)
{
	uint64_t least = (2 * (w->rate / 1000) * min_rtt_us / 1000 + w->unit - 1) / w->unit;

	if (w->limit < least)
		w->limit = least < w->most ? (uint32_t)least : w->most;
}

/* Sets the window by delay and loss alone. */
static void window_follow(struct window *w, const struct window_signal *s, uint64_t now_ms)
{
	uint32_t queued_us = s->rtt_us > s->min_rtt_us ? s->rtt_us - s->min_rtt_us : 0;
	/* of what is in flight, queued_us / rtt_us waits in queues: less than a quarter
	 * of a chunk */
	bool little = (uint64_t)w->limit * queued_us * 4 < s->rtt_us;
	bool limited = w->limited;

	w->limited = false;
	if (s->lost != w->lost) {
		/* one overflow is repaired over several rounds, and each of them would
		 * halve the window again */
		w->lost = s->lost;
		if (now_ms >= w->ignore_loss_until_ms)
			window_on_loss(w, now_ms);
		w->ignore_loss_until_ms = now_ms + 2 * s->rtt_us / 1000 + 1;
	} else if (queued_us > window_full_us(s) && !little) {
		w->starting = false;
		if (w->limit > w->least)
			w->limit = window_larger(w->limit - 1 - w->limit / 8, w->least);
	} else if ((queued_us < WINDOW_ROOM_US || little) && limited && now_ms >= w->hold_until_ms) {
		window_grow(w);
	}
	if (w->limit < w->least && now_ms >= w->hold_until_ms)
		w->limit = w->least < w->most ? w->least : w->most;
	if (w->limit < 2 && w->most > 1 && !s->single_chunk && queued_us <= WINDOW_PAIR_US &&
	    now_ms >= w->single_until_ms)
		w->limit = 2;
}

void window_signal(struct window *w, const struct window_signal *s, uint64_t now_ms)
{
	if (s->local_bytes) {
		w->local = true;
		w->limit = s->local_bytes / w->unit;
		w->limit = w->limit < 1 ? 1 : w->limit > w->most ? w->most : w->limit;
		return;
	}
	w->far = s->paced && s->min_rtt_us >= RS_LONG_US;
	if (w->far) {
		w->limit = w->most;
		return;
	}
	window_measure_rate(w, s->min_rtt_us, now_ms);
	window_follow(w, s, now_ms);
	window_keep_busy(w, s->min_rtt_us);
	rs_assert(w->limit > 0 && w->limit <= w->most);
}
