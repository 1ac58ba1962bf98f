/* SPDX-License-Identifier: Apache-2.0 */
/* The invariant checks find what they are for: each test breaks one field by hand,
 * expects the sentence, and repairs it. */
#include "agent/node/core/check.h"
#include "agent/node/core/client.h"
#include "agent/node/core/op_state.h"
#include "agent/worker/core/check.h"
#include "agent/worker/core/link.h"
#include "server/core/check.h"
#include "tests/unit/fake_agent.h"
#include "tests/unit/fake_ops.h"
#include "tests/unit/fake_worker.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static void expect_broken(const char *found, const char *words)
{
	if (!found || !strstr(found, words))
		ck_abort_msg("expected a sentence with \"%s\", found \"%s\"", words, found ? found : "none");
}

/* Changes an integer field, expects that `check` finds it, and changes the field back. */
#define expect_found(field, value, check, words)                                                                       \
	do {                                                                                                           \
		uint64_t old_ = (uint64_t)(field);                                                                     \
		ck_assert_ptr_null(check);                                                                             \
		(field) = (value);                                                                                     \
		expect_broken(check, words);                                                                           \
		(field) = old_;                                                                                        \
		ck_assert_ptr_null(check);                                                                             \
	} while (0)

/* A running lane of two ranks, one of which has sent its contribution to one chunk. */
START_TEST(a_lane)
{
	struct fw_world fw;
	struct stripe *st;
	struct session *s;
	struct slot *slot;

	fw_running(&fw, &(struct fw_options){.priorities = 2, .retain = true});
	fw_contribute(&fw, 0, fw_data(&fw, RS_SUM, RS_FLOAT32, 0, 16, 0));
	fw_feed_all(&fw, SIZE_MAX);
	st = fw.lane->stripes;
	s = st->sessions[0];
	slot = stripe_find_slot(st, 0, 0);

	expect_found(slot->filled, slot->elems + 1, lane_check(fw.lane), "more filled elements");
	expect_found(slot->contributed, 2, lane_check(fw.lane), "never started");
	expect_found(slot->combined, 2, lane_check(fw.lane), "combined more");
	expect_found(slot->have_n, 1, lane_check(fw.lane), "have_n");
	expect_found(slot->have[0], 2, lane_check(fw.lane), "have");
	expect_found(slot->complete[0], 2, lane_check(fw.lane), "`complete` has a rank");
	expect_found(slot->wide[0], 2, lane_check(fw.lane), "`wide` has a rank");
	expect_found(slot->roots, 2, lane_check(fw.lane), "two roots");
	expect_found(slot->first_rank, 1, lane_check(fw.lane), "first rank");
	expect_found(slot->unsent, 1, lane_check(fw.lane), "unsent results than the queues");
	expect_found(slot->waiting, true, lane_check(fw.lane), "no earlier chunk is fetched");
	expect_found(slot->fetching, true, lane_check(fw.lane), "`fetching` differs");
	expect_found(slot->header.of.priority, 1, lane_check(fw.lane), "another priority");
	expect_found(slot->header.chunk, 9, lane_check(fw.lane), "wrong chain");

	expect_found(st->attached, 1, lane_check(fw.lane), "`attached`");
	expect_found(st->fetching[1], 1, lane_check(fw.lane), "`fetching` differs");
	expect_found(st->ahead[1], 1, lane_check(fw.lane), "`ahead` differs");
	expect_found(slot->ahead, true, lane_check(fw.lane), "ahead does not wait");
	expect_found(st->stable, 1, lane_check(fw.lane), "fewer results than `stable`");
	expect_found(st->at_stable, 1, lane_check(fw.lane), "at_stable");
	expect_found(s->waits_stable, true, lane_check(fw.lane), "waits for what all ranks have");
	expect_found(s->rank, 1, lane_check(fw.lane), "place of another rank");

	expect_found(s->outstanding, 2, lane_check(fw.lane), "`outstanding` differs");
	expect_found(s->streams[0].outstanding, 99, lane_check(fw.lane), "more chunks than the window");
	expect_found(s->streams[0].credited, 1, lane_check(fw.lane), "told of more chunks");
	expect_found(s->streams[0].added, 99, lane_check(fw.lane), "added more than came");
	expect_found(s->results_n, 1, lane_check(fw.lane), "results_n differs");
	expect_found(s->streams[1].results_n, 999, lane_check(fw.lane), "more results than entries");
	expect_found(s->streams[1].offered, 1, lane_check(fw.lane), "offers more results");
	expect_found(s->result_off, 1, lane_check(fw.lane), "not queued");
	expect_found(s->control_off, 1, lane_check(fw.lane), "control frames is out of bounds");
	expect_found(s->raw_have, FRAME_HEADER, lane_check(fw.lane), "complete header");
	expect_found(s->carry_n, 8, lane_check(fw.lane), "complete element");
	expect_found(s->payload_left, 1000000, lane_check(fw.lane), "longer than its frame");
	expect_found(s->ready, true, lane_check(fw.lane), "not in the list");
	fw_close(&fw);
}
END_TEST

/* A free slot that is lost, and one that is in two places. */
START_TEST(the_table_of_slots)
{
	struct fw_world fw;
	struct stripe *st;
	struct slot *first;

	fw_running(&fw, &(struct fw_options){.world = 2});
	st = fw.lane->stripes;
	first = st->free[0];
	st->free[0] = first->next;
	expect_broken(lane_check(fw.lane), "neither in use nor free");
	st->free[0] = first;
	first->next->next = first;
	expect_broken(lane_check(fw.lane), "circle");
	first->next->next = first + 2;
	ck_assert_ptr_null(lane_check(fw.lane));
	fw_close(&fw);
}
END_TEST

static const char two_lanes[] = "reducers:\n"
				"  - {id: r0, address: \"127.0.0.1:1\", lanes: 2}\n"
				"  - {id: r1, address: \"127.0.0.1:2\"}\n"
				"sharding: {shards: 8, chunk_bytes: 1024, window: 3, priorities: 2}\n";

/* A worker with chunks in flight on each link. */
START_TEST(an_exchange)
{
	struct reducers f;
	struct fake_op op;
	float *x = ops_numbers(256 * 40);
	struct exchange *e;
	struct link *l;
	struct stream *s;

	reducers_open(&f, two_lanes, 2, 1000);
	reducers_pump(&f);
	f.answer = false;
	ops_submit_floats(&f, &op, x, x, 256 * 40);
	reducers_pump(&f);
	e = f.x;
	l = &e->links[0];
	s = &l->streams[e->first->stream];

	expect_found(l->window.limit, 0, exchange_check_state(e), "limit is 0");
	expect_found(l->window.hold_ms, 0, exchange_check_state(e), "hold time");
	expect_found(s->sent, s->tail + 1, exchange_check_state(e), "sent more frames");
	expect_found(s->tail, s->tail + 100, exchange_check_state(e), "more frames than its ring");
	expect_found(s->tail, s->head + l->ahead + 1, exchange_check_state(e), "without a result than the window");
	expect_found(s->credited, s->sent + 1, exchange_check_state(e), "more chunks of a stream than were sent");
	expect_found(l->chunks_owed, 99, exchange_check_state(e), "other chunks in flight");
	expect_found(s->chunk, s->chunk + 1, exchange_check_state(e), "chunk of another link");
	expect_found(s->own_at, l->own.n, exchange_check_state(e), "behind its operation");
	expect_found(s->ring[s->head & s->mask].head.of.seq, 7, exchange_check_state(e), "another operation");
	expect_found(s->ring[s->head & s->mask].head.of.priority, !e->first->stream, exchange_check_state(e),
		     "stream of another priority");
	expect_found(s->ring[s->head & s->mask].position, 1000, exchange_check_state(e), "out of order");
	expect_found(l->chunks_in_flight, 0, exchange_check_state(e), "other chunks in flight");
	expect_found(l->bytes_in_flight, 0, exchange_check_state(e), "other chunks in flight");
	l->partial_stream = LINK_RETAINED;
	expect_found(l->sent_off, 1, exchange_check_state(e), "not there");
	expect_found(l->saved_off, 1, exchange_check_state(e), "saved frame");
	expect_found(l->control_off, 1, exchange_check_state(e), "control frames is out of bounds");
	expect_found(l->header_have, FRAME_HEADER, exchange_check_state(e), "complete header");
	expect_found(l->own.n, l->own.n - 1, exchange_check_state(e), "");

	expect_found(e->first->chunks_left, 0, exchange_check_state(e), "no chunk left");
	expect_found(e->next_seq, 0, exchange_check_state(e), "never given");
	expect_found(e->next_position[e->first->stream], 0, exchange_check_state(e), "ends behind");
	expect_found(e->view_number, 5, exchange_check_state(e), "another number");
	expect_found(e->view.epoch, CONTROL_LIFE_MAX + 1, exchange_check_state(e), "shares that are out of range");
	expect_found(e->view.epoch, 1, exchange_check_state(e), "shares that are out of range"); /* they are 0 */
	exchange_abort(f.x, RS_ECLOSED, "the test is over", f.now_ms);
	reducers_pump(&f);
	reducers_close(&f);
	free(x);
}
END_TEST

/* Results that are retained. */
START_TEST(retained_results)
{
	struct reducers f;
	struct fake_op op;
	float *x = ops_numbers(256 * 40);
	struct retained *k;

	reducers_open(&f, two_lanes, 2, 1000);
	ops_submit_floats(&f, &op, x, x, 256 * 40);
	reducers_pump(&f);
	k = f.x->retain.entries;
	while (!k->tag)
		k++;
	expect_found(k->tag, k->tag + 1, exchange_check_state(f.x), "entry of another position");
	expect_found(k->tag, k->tag + 1000 * f.x->retain.size, exchange_check_state(f.x), "never seen");
	expect_found(k->head.of.priority, 9, exchange_check_state(f.x), "another priority than its entry");
	reducers_close(&f);
	free(x);
}
END_TEST

/* A job of two local ranks, one of which has started an operation. */
START_TEST(a_hub)
{
	struct fake_client *c[2];
	struct fake_agent fa;
	struct local_hub *h;
	struct local_job *j;
	struct local_op *op;
	unsigned buffer;

	fake_agent_init(&fa);
	fake_job(&fa, c, 2, 2);
	buffer = fake_alloc(&fa, c[0], 4096);
	fake_submit(&fa, c[0], buffer, 100, NULL);
	h = fa.hub;
	j = LIST_FIRST(&h->jobs);
	op = j->ring[j->matched % h->ops];

	expect_found(h->clients_n, 3, local_hub_check(h), "hub's clients_n");
	expect_found(h->jobs_n, 2, local_hub_check(h), "jobs_n");
	expect_found(c[0]->client->state, CLIENT_LEAVING, local_hub_check(h),
		     "has or awaits a job in a state that has none");
	expect_found(j->clients_n, 1, local_hub_check(h), "job's clients_n");
	expect_found(c[0]->client->local_rank, 1, local_hub_check(h), "another local rank");
	expect_found(j->members[0].in_flight, h->ops + 1, local_hub_check(h), "more operations in flight");
	expect_found(j->members[1].next_seq, 99, local_hub_check(h), "does not know");
	expect_found(j->matched, j->newest + 1, local_hub_check(h), "than the ring holds");
	expect_found(op->spec.of.seq, 5, local_hub_check(h), "not in its place");
	expect_found(op->parts_n, 2, local_hub_check(h), "all or none");
	expect_found(j->state, JOB_GATHERING, local_hub_check(h), "engine in a state that has none");
	expect_found(j->stages.idle_bytes, SIZE_MAX / 2, local_hub_check(h), "idle stages");
	fake_agent_close(&fa);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("invariants");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_test(tc, a_lane);
	tcase_add_test(tc, the_table_of_slots);
	tcase_add_test(tc, an_exchange);
	tcase_add_test(tc, retained_results);
	tcase_add_test(tc, a_hub);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
