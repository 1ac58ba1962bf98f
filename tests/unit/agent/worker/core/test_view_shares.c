/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of reducers in views, by the rules of proto/README.md, "Failover": who may set
 * them and when, and how a rank goes on with them. */
#include "proto/features.h"
#include "tests/unit/fake_views.h"

#include <check.h>
#include <string.h>

enum { OFFERS = FEATURE_START | FEATURE_SHARES };

static const uint32_t four_one_one[3] = {4, 1, 1};

/* A reducer sends START on a link. */
static void start(struct reducers *f, unsigned link, uint64_t features)
{
	const struct control_start s = {.features = features, .start = 99};
	uint8_t payload[CONTROL_START_LEN];

	f->l[link].started = true;
	reducers_say_control(f, link, FRAME_START, payload, features ? control_pack_start(payload, &s) : 0);
}

/* A rank with three reducers whose START has these features, without START on the last
 * link if `joining`. */
static void open_rank(struct reducers *f, const char *yaml, unsigned rank, uint64_t offers, uint64_t features,
		      bool joining)
{
	reducers_open_rank(f, yaml, rank, 2, offers);
	f->start = false;
	reducers_pump(f);
	for (unsigned i = 0; i + joining < f->links_n; i++)
		start(f, i, features);
	reducers_pump(f);
	ck_assert(exchange_state(f->x) == (joining ? EXCHANGE_JOINING : EXCHANGE_RUNNING));
}

static void open_shared(struct reducers *f, unsigned rank)
{
	open_rank(f, views_three, rank, OFFERS, OFFERS, false);
	f->resume = true;
}

static bool set_shares(struct reducers *f, const uint32_t shares[3])
{
	bool set = exchange_set_shares(f->x, shares, f->now_ms);

	reducers_pump(f);
	return set;
}

/* A reducer sends a view of three living reducers. */
static void say_shares(struct reducers *f, unsigned link, uint32_t epoch, uint32_t a, uint32_t b, uint32_t c)
{
	struct control_view v = {.n = 3, .epoch = epoch, .shares = {a, b, c}};

	reducers_say_view(f, link, FRAME_VIEW, &v);
	reducers_pump(f);
}

/* All links have got `views` views, the last one with these shares. */
static void expect_shares(const struct reducers *f, unsigned views, uint32_t epoch, const uint32_t shares[3])
{
	for (unsigned i = 0; i < VIEWS_LINKS; i++) {
		ck_assert_uint_eq(f->l[i].views, views);
		ck_assert_uint_eq(f->l[i].view.epoch, epoch);
		ck_assert_mem_eq(f->l[i].view.shares, shares, 3 * sizeof *shares);
	}
	ck_assert_uint_eq(f->epoch, epoch);
	ck_assert_mem_eq(f->shares, shares, 3 * sizeof *shares);
}

static const char fails[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"},\n"
			    "  {id: r2, address: \"127.0.0.1:3\"}]\njob: {failover: fail}\n";
static const char two[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"}]\n";
static const char few[] = "reducers: [{id: r0, address: \"127.0.0.1:1\"}, {id: r1, address: \"127.0.0.1:2\"},\n"
			  "  {id: r2, address: \"127.0.0.1:3\"}]\nsharding: {map: {\"0\": r0, \"1\": r2}}\n";

/* Why shares are refused; the first row is the one in which they are not. */
enum when { RUNS, JOINING, UNSETTLED, LOSES, LEAVES, ENDED };

static const struct {
	const char *yaml;
	unsigned rank;
	uint64_t offers, features;
	enum when when;
} refusals[] = {
    {views_three, 0, OFFERS, OFFERS, RUNS},
    {views_three, 1, OFFERS, OFFERS, RUNS},
    {fails, 0, OFFERS, OFFERS, RUNS},
    {few, 0, OFFERS, OFFERS, RUNS},
    {views_three, 0, FEATURE_START, OFFERS, RUNS},
    {views_three, 0, OFFERS, FEATURE_START, RUNS}, /* of another rank or a reducer */
    {views_three, 0, OFFERS, 0, RUNS},
    {views_three, 0, OFFERS, OFFERS, JOINING},
    {views_three, 0, OFFERS, OFFERS, UNSETTLED},
    {views_three, 0, OFFERS, OFFERS, LOSES},
    {views_three, 0, OFFERS, OFFERS, LEAVES},
    {views_three, 0, OFFERS, OFFERS, ENDED},
};

/* Brings a rank into this state. */
static void bring(struct reducers *f, const char *yaml, unsigned rank, uint64_t features_offered, uint64_t features,
		  enum when when)
{
	open_rank(f, yaml, rank, features_offered, features, when == JOINING);
	if (when == UNSETTLED)
		ck_assert(set_shares(f, four_one_one));
	if (when == LOSES)
		reducers_cut(f, 2, "cut");
	if (when == LEAVES)
		exchange_goodbye(f->x, f->now_ms);
	if (when == ENDED)
		reducers_say_abort(f, 0, RS_EMISMATCH, "enough");
	reducers_pump(f);
}

START_TEST(shares_are_refused)
{
	enum when when = refusals[_i].when;
	unsigned views;
	struct reducers f;

	bring(&f, refusals[_i].yaml, refusals[_i].rank, refusals[_i].offers, refusals[_i].features, when);
	views = f.l[0].views;
	ck_assert(set_shares(&f, four_one_one) == (_i == 0));
	ck_assert_uint_eq(f.l[0].views, views + (_i == 0));
	ck_assert_uint_eq(f.epoch, _i == 0 || when == UNSETTLED);
	reducers_close(&f);
}
END_TEST

/* Rank 0 sets them again when all links have resumed, and not before. */
START_TEST(all_links_get_the_next_epoch)
{
	static const uint32_t next[3] = {1, 65535, 1};
	struct reducers f;

	open_shared(&f, 0);
	f.resume = false;
	ck_assert(set_shares(&f, four_one_one));
	expect_shares(&f, 1, 1, four_one_one);
	for (unsigned i = 0; i < VIEWS_LINKS; i++) {
		ck_assert(!set_shares(&f, next));
		views_say_resume(&f, i, 0);
	}
	ck_assert(set_shares(&f, next));
	expect_shares(&f, 2, 2, next);
	ck_assert_uint_eq(f.lost, 0);
	reducers_close(&f);
}
END_TEST

/* A rank takes a newer epoch from any link, sends it on all of them, and works on with
 * these shares: of six chunks r0 gets four, in turn on its two lanes. */
START_TEST(a_rank_takes_shares)
{
	unsigned sent[VIEWS_LINKS];
	struct reducers_op o, next;
	struct reducers f;

	open_shared(&f, 1);
	views_submit(&f, &o, 6);
	views_expect_done(&o);
	say_shares(&f, (unsigned)_i, 3, 4, 1, 1); /* it may have missed some */
	expect_shares(&f, 1, 3, four_one_one);
	say_shares(&f, 3, 2, 9, 9, 9);
	say_shares(&f, 3, 0, 0, 0, 0);
	say_shares(&f, 3, 3, 4, 1, 1);
	expect_shares(&f, 1, 3, four_one_one);
	for (unsigned i = 0; i < VIEWS_LINKS; i++)
		sent[i] = f.l[i].data_n;
	views_submit(&f, &next, 6); /* seq 1: chunk 0 is in shard 1 */
	views_expect_done(&next);
	ck_assert_str_eq(views_said(&f, 0, sent[0]), "D1.2 D1.5");
	ck_assert_str_eq(views_said(&f, 1, sent[1]), "D1.0 D1.4");
	ck_assert_str_eq(views_said(&f, 2, sent[2]), "D1.1");
	ck_assert_str_eq(views_said(&f, 3, sent[3]), "D1.3");
	ck_assert_uint_eq(f.lost, 0);
	reducers_close(&f);
}
END_TEST

/* Nothing is sent and no result is taken between VIEW and RESUME; then chunks go where
 * the shares say. */
START_TEST(shares_stop_all_links)
{
	struct reducers_op o;
	struct reducers f;
	unsigned sent[VIEWS_LINKS];

	open_shared(&f, _i ? 1 : 0);
	f.answer = f.resume = false;
	views_submit(&f, &o, 6);
	if (_i)
		say_shares(&f, 0, 1, 4, 1, 1);
	else
		ck_assert(set_shares(&f, four_one_one));
	expect_shares(&f, 1, 1, four_one_one);
	for (unsigned i = 0; i < VIEWS_LINKS; i++) {
		struct frame h;
		void *payload;

		sent[i] = f.l[i].data_n;
		reducers_result(&f, i, 0, &h, &payload); /* of the view before */
		reducers_say(&f, i, &h, payload);
	}
	reducers_pump(&f);
	ck_assert_int_eq(o.done, 0);
	f.answer = true;
	for (unsigned i = 0; i < VIEWS_LINKS; i++) {
		ck_assert_uint_eq(f.l[i].data_n, sent[i]);
		views_say_resume(&f, i, 0);
	}
	views_expect_done(&o);
	ck_assert_str_eq(views_said(&f, 0, sent[0]), "D0 D3");
	ck_assert_str_eq(views_said(&f, 1, sent[1]), "D1 D5");
	ck_assert_str_eq(views_said(&f, 2, sent[2]), "D2");
	ck_assert_str_eq(views_said(&f, 3, sent[3]), "D4");
	reducers_close(&f);
}
END_TEST

/* Views on link 3 after epoch 1 with the shares 4, 1, 1; what is said of its reducer. */
static const struct {
	unsigned rank;
	uint64_t offers;
	uint32_t epoch, last;
	const char *says;
} breaches[] = {
    {0, OFFERS, 1, 1, NULL},
    {1, OFFERS, 1, 1, NULL},
    {0, OFFERS, 2, 1, "its view has shares of epoch 2 that rank 0 has not set"},
    {0, OFFERS, 1, 2, "its view has shares of epoch 1 that rank 0 has not set"},
    {1, OFFERS, 1, 2, "its view has shares of epoch 1 that differ from those which this rank has"},
    {1, FEATURE_START, 1, 1, "its view has shares, and this rank has not announced that it takes any"},
};

START_TEST(foreign_shares_are_a_breach)
{
	struct reducers f;

	open_rank(&f, views_three, breaches[_i].rank, breaches[_i].offers, breaches[_i].offers, false);
	f.resume = true;
	if (breaches[_i].rank == 0)
		ck_assert(set_shares(&f, four_one_one));
	else if (breaches[_i].offers & FEATURE_SHARES)
		say_shares(&f, 0, 1, 4, 1, 1);
	say_shares(&f, 3, breaches[_i].epoch, 4, 1, breaches[_i].last);
	ck_assert_uint_eq(f.lost, breaches[_i].says != NULL);
	if (breaches[_i].says)
		ck_assert_msg(strstr(f.why, breaches[_i].says) != NULL, "%s", f.why);
	ck_assert_int_eq(exchange_state(f.x), EXCHANGE_RUNNING);
	reducers_close(&f);
}
END_TEST

/* A loss moves the shards of the lost reducer, on the map of the shares. */
START_TEST(shares_outlive_a_loss)
{
	struct reducers_op o;
	struct reducers f;
	unsigned from;

	open_shared(&f, 0);
	ck_assert(set_shares(&f, (uint32_t[3]){1, 4, 1})); /* the map: 1 0 1 1 2 1 */
	f.l[2].dead = true;
	reducers_cut(&f, 2, "cut");
	reducers_pump(&f);
	views_expect_lives(&f, 0, 2, 0, 1, 0);
	ck_assert(f.l[0].view.epoch == 1 && f.l[0].view.shares[1] == 4);
	from = f.l[3].data_n;
	views_submit(&f, &o, 6);
	views_expect_done(&o);
	ck_assert_str_eq(views_said(&f, 3, from), "D2 D4 D5");
	reducers_close(&f);
}
END_TEST

/* When rank 0 may connect to r1 anew; no feature is needed, since others see a loss. */
static const struct {
	const char *yaml;
	unsigned rank;
	enum when when;
	bool may;
} anew[] = {
    {views_three, 0, RUNS, true},
    {few, 0, RUNS, true},
    {views_three, 1, RUNS, false},
    {fails, 0, RUNS, false},
    {two, 0, RUNS, false},
    {views_three, 0, JOINING, false},
    {views_three, 0, UNSETTLED, false},
    {views_three, 0, LOSES, false},
    {views_three, 0, LEAVES, false},
    {views_three, 0, ENDED, false},
};

START_TEST(connections_are_made_anew)
{
	unsigned views, lost;
	bool changed;
	struct reducers f;

	bring(&f, anew[_i].yaml, anew[_i].rank, OFFERS, OFFERS, anew[_i].when);
	views = f.l[0].views;
	lost = f.lost;
	changed = exchange_connect_anew(f.x, 1, "the path is slow", f.now_ms);
	reducers_pump(&f);
	ck_assert(changed == anew[_i].may);
	ck_assert_uint_eq(f.l[0].views, views + changed);
	ck_assert_uint_eq(f.lost, lost + changed);
	if (changed) {
		ck_assert_str_eq(f.why, "the path is slow");
		ck_assert_uint_eq(f.l[1].aborts + f.l[2].aborts + f.l[3].aborts, 1); /* the others stay */
		ck_assert(!exchange_connect_anew(f.x, 1, "again", f.now_ms));        /* it does not live */
	}
	reducers_close(&f);
}
END_TEST

/* The reducer comes back on another connection, and has its share again. */
START_TEST(a_reducer_comes_back_on_new_connections)
{
	enum { LINK = 2 }; /* of r1 */
	const struct control_welcome welcome = {.features = OFFERS};
	uint8_t payload[FRAME_CONTROL_MAX];
	unsigned tries;
	struct reducers_op o;
	struct reducers f;

	open_shared(&f, 0);
	tries = f.l[LINK].tries;
	f.welcome = false;
	ck_assert(exchange_connect_anew(f.x, 1, "the path is slow", f.now_ms));
	while (f.l[LINK].tries == tries)
		reducers_advance(&f, 10);
	reducers_say_control(&f, LINK, FRAME_WELCOME, payload, control_pack_welcome(payload, &welcome));
	start(&f, LINK, OFFERS);
	reducers_advance(&f, 100);
	ck_assert_uint_eq(f.l[LINK].tries, tries + 1);
	ck_assert_uint_eq(f.back, 1);
	views_expect_lives(&f, 0, 2, 0, 2, 0);
	views_submit(&f, &o, 6);
	f.answer = true;
	reducers_advance(&f, 100);
	views_expect_done(&o);
	reducers_close(&f);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *suite = suite_create("view_shares");
	TCase *tc = tcase_create("view_shares");
	SRunner *runner;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, shares_are_refused, 0, COUNT(refusals));
	tcase_add_test(tc, all_links_get_the_next_epoch);
	tcase_add_loop_test(tc, a_rank_takes_shares, 0, VIEWS_LINKS);
	tcase_add_loop_test(tc, shares_stop_all_links, 0, 2);
	tcase_add_loop_test(tc, foreign_shares_are_a_breach, 0, COUNT(breaches));
	tcase_add_test(tc, shares_outlive_a_loss);
	tcase_add_loop_test(tc, connections_are_made_anew, 0, COUNT(anew));
	tcase_add_test(tc, a_reducer_comes_back_on_new_connections);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
