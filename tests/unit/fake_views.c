/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_views.h"

#include <check.h>
#include <stdio.h>

const char views_three[] =
    "reducers: [{id: r0, address: \"127.0.0.1:1\", lanes: 2}, {id: r1, address: \"127.0.0.1:2\"},\n"
    "  {id: r2, address: \"127.0.0.1:3\"}]\n"
    "sharding: {chunk_bytes: 1024, window: 4, priorities: 1, map: {\"0,3\": r0, \"1,4\": r1, \"2,5\": r2}}\n"
    "timeouts: {detect: 4s}\n";
const char views_two[] =
    "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n"
    "sharding: {chunk_bytes: 1024, window: 4, priorities: 1, map: {0: r0, 1: r1}}\ntimeouts: {detect: 4s}\n";

void views_open(struct reducers *f, const char *yaml)
{
	reducers_open(f, yaml, 2, 4000);
	reducers_pump(f);
	ck_assert_int_eq(exchange_state(f->x), EXCHANGE_RUNNING);
}

void views_submit(struct reducers *f, struct reducers_op *o, unsigned chunks)
{
	struct rs_err e;

	ck_assert_int_eq(reducers_submit(f, o, (uint64_t)chunks * VIEWS_CHUNK, &e), 0);
	for (unsigned i = 0; i < chunks * VIEWS_CHUNK; i++)
		o->x[i] = (float)(o->op.of.seq * 10000 + i);
	reducers_pump(f);
}

void views_expect_done(const struct reducers_op *o)
{
	ck_assert_int_eq(o->done, 1);
	ck_assert_int_eq(o->err.code, 0);
	for (uint64_t i = 0; i < o->op.of.count; i++)
		if (o->x[i] != 3 * (float)(o->op.of.seq * 10000 + i))
			ck_abort_msg("element %u is %f", (unsigned)i, (double)o->x[i]);
}

void views_expect_lives(const struct reducers *f, unsigned link, unsigned views, uint32_t a, uint32_t b, uint32_t c)
{
	const struct control_view *v = &f->l[link].view;

	if (f->l[link].views != views || v->lives[0] != a || v->lives[1] != b || v->lives[2] != c)
		ck_abort_msg("link %u: %u views, the last is %u %u %u", link, f->l[link].views, v->lives[0],
			     v->lives[1], v->lives[2]);
}

void views_say_lives(struct reducers *f, unsigned link, uint32_t a, uint32_t b, uint32_t c)
{
	struct control_view v = {.n = f->cfg.reducers_n, .lives = {a, b, c}};

	reducers_say_view(f, link, FRAME_VIEW, &v);
	reducers_pump(f);
}

void views_say_resume(struct reducers *f, unsigned link, uint64_t start)
{
	struct control_view v = f->l[link].view;

	v.start[0] = start;
	reducers_say_view(f, link, FRAME_RESUME, &v);
	reducers_pump(f);
}

const char *views_said(const struct reducers *f, unsigned link, unsigned from)
{
	static char text[400];
	size_t len = 0;

	text[0] = '\0';
	for (unsigned i = from; i < f->l[link].data_n; i++) {
		const struct frame *h = &f->l[link].data[i];

		len += (size_t)snprintf(text + len, sizeof text - len, "%s%c", i > from ? " " : "",
					h->type == FRAME_HAVE ? 'H' : 'D');
		if (h->of.seq)
			len += (size_t)snprintf(text + len, sizeof text - len, "%llu.", (unsigned long long)h->of.seq);
		len += (size_t)snprintf(text + len, sizeof text - len, "%u", h->chunk);
	}
	return text;
}
