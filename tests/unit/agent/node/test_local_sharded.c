/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce-scatters and all-gathers of a node's local ranks: what the engine gets, what
 * each local rank gets, which messages are refused, and which nodes can shard. */
#include "common/dtype.h"
#include "tests/unit/fake_agent.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum {
	LOCAL_MOST = 3,
	OWN = 700, /* elements of a rank's part: more than a chunk of every dtype but the smallest */
};

static struct fake_agent fa;
static const struct rs_kernels *k;

static void setup(void)
{
	fake_agent_init(&fa);
	fa.cfg.agent.shm_bytes = 1 << 24;
	k = rs_kernels_usable(0);
}

static void teardown(void)
{
	fake_agent_close(&fa);
}

/* One case: how many ranks the node and the world have, and the operation. */
struct shape {
	unsigned local, nodes, dtype, op;
	bool gather;
};

static unsigned world_of(const struct shape *s)
{
	return s->local * s->nodes;
}

static size_t part_bytes(const struct shape *s)
{
	return OWN * rs_dtype_size(s->dtype);
}

/* Small numbers of any dtype, which differ between ranks. */
static void fill_in(const struct shape *s, void *to, unsigned rank, unsigned from, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int64_t whole = (int64_t)((from + i) * 7 + rank * 13) % 3 + 1;
		float f = (float)whole;
		double d = (double)whole;
		char *at = (char *)to + i * rs_dtype_size(s->dtype);

		if (rs_dtype_is_half(s->dtype))
			k->store[s->dtype](at, &f, 1);
		else if (s->dtype == RS_FLOAT32 || s->dtype == RS_FLOAT64)
			memcpy(at, s->dtype == RS_FLOAT32 ? (void *)&f : (void *)&d, rs_dtype_size(s->dtype));
		else
			memcpy(at, &whole, rs_dtype_size(s->dtype)); /* little-endian */
	}
}

static void say_sharded(struct fake_client *c, const struct shape *s, unsigned rank, bool in_place, unsigned send,
			unsigned recv, uint64_t missing)
{
	union local_message m;
	uint64_t own = rank * part_bytes(s);

	local_init(&m, LOCAL_SUBMIT);
	m.submit.of.seq = c->seq++;
	m.submit.of.dtype = s->dtype & 15;
	m.submit.of.size = rs_dtype_size(s->dtype) & OPERATION_SIZE;
	m.submit.of.op = s->gather ? FRAME_OP_BROADCAST : s->op & 31;
	m.submit.of.sharded = 1;
	m.submit.of.parts = world_of(s);
	m.submit.of.count = (uint64_t)OWN * world_of(s);
	m.submit.missing = missing;
	m.submit.send_buffer = send;
	m.submit.recv_buffer = recv;
	m.submit.send_offset = in_place && s->gather ? own : 0;
	m.submit.recv_offset = in_place && !s->gather ? own : 0;
	fake_say(&fa, c, &m);
}

/* Acts as the exchange: the other nodes' parts of an all-gather are those of their ranks,
 * and they contribute nothing to a reduce-scatter. */
static void run_chunks(const struct shape *s, struct exchange_op *x, bool alone)
{
	x->chunk_elems = FAKE_CHUNK / (uint32_t)rs_dtype_size(s->dtype);
	for (uint32_t i = 0; i < operation_chunks(&x->of, x->chunk_elems); i++) {
		const struct operation_place at = operation_place(&x->of, x->chunk_elems, i);
		bool root = exchange_op_is_root(x, &at);
		uint32_t wire = operation_wire_size(&x->of, x->wide);
		char *to = (char *)x->recv;

		if (x->fill && (root || !s->gather))
			x->fill(x, at.first, at.elems);
		if (alone && x->finish)
			x->finish(x, at.first, at.elems);
		if (!alone && s->gather && !root) {
			for (uint32_t e = 0; e < at.elems; e++)
				fill_in(s, to + (at.first + e) * x->of.size, (unsigned)((at.first + e) / OWN),
					(unsigned)((at.first + e) % OWN), 1);
		} else if (!alone && s->gather) {
			memmove(to + at.first * x->of.size, (const char *)x->send + at.offset * x->of.size,
				at.elems * x->of.size);
		} else if (!alone && root) {
			const char *sum = (const char *)x->send + at.first * wire;

			if (x->wide)
				k->store[s->dtype](to + at.offset * x->of.size, sum, at.elems);
			else
				memmove(to + at.offset * x->of.size, sum, at.elems * x->of.size);
		}
		if (x->landed)
			x->landed(x, at.first, at.elems);
	}
	x->done(x, NULL);
	fake_settle(&fa);
}

static void check_scattered(const struct shape *s, unsigned rank, const void *got, bool alone)
{
	float acc[OWN * 2];
	char want[OWN * 8], in[OWN * 8];

	for (unsigned r = 0; r < s->local; r++) {
		fill_in(s, in, r, rank * OWN, OWN);
		if (r == 0)
			k->load[s->dtype](acc, in, OWN);
		else
			k->reduce[s->op][s->dtype](acc, in, OWN);
	}
	if (alone && s->op == RS_AVG)
		k->divide[rs_dtype_is_half(s->dtype) ? RS_FLOAT32 : s->dtype](acc, s->local, OWN);
	k->store[s->dtype](want, acc, OWN);
	ck_assert_mem_eq(got, want, part_bytes(s));
}

static void check_gathered(const struct shape *s, const char *got)
{
	char want[OWN * 8];

	for (unsigned r = 0; r < world_of(s); r++) {
		fill_in(s, want, r, 0, OWN);
		ck_assert_mem_eq(got + r * part_bytes(s), want, part_bytes(s));
	}
}

static void run_shape(const struct shape *s, bool in_place)
{
	struct fake_client *c[LOCAL_MOST];
	struct fake_engine *en = fake_job(&fa, c, world_of(s), s->local);
	bool alone = s->nodes == 1;
	size_t room = world_of(s) * part_bytes(s);
	unsigned send[LOCAL_MOST], recv[LOCAL_MOST];

	ck_assert(en->spec.shards);
	for (unsigned r = 0; r < s->local; r++) {
		send[r] = fake_alloc(&fa, c[r], room);
		recv[r] = in_place ? send[r] : fake_alloc(&fa, c[r], room);
		if (s->gather)
			fill_in(s, (char *)c[r]->buffer[send[r]] + (in_place ? r * part_bytes(s) : 0), r, 0, OWN);
		else
			fill_in(s, c[r]->buffer[send[r]], r, 0, OWN * world_of(s));
		say_sharded(c[r], s, r, in_place, send[r], recv[r], 0);
	}
	ck_assert_uint_eq(en->ops_n, 1);
	ck_assert_int_eq(en->ops[0]->of.sharded, !alone);
	ck_assert(alone || (en->ops[0]->of.parts == s->nodes && en->ops[0]->part == 0));
	run_chunks(s, en->ops[0], alone);
	en->ops_n = 0;
	for (unsigned r = 0; r < s->local; r++) {
		char *got = c[r]->buffer[recv[r]];

		ck_assert(strstr(c[r]->story, "DONE:0"));
		if (s->gather)
			check_gathered(s, got);
		else
			check_scattered(s, r, got + (in_place ? r * part_bytes(s) : 0), alone);
	}
	for (unsigned r = 0; r < s->local; r++)
		fake_lose(c[r]);
	fake_settle(&fa);
}

static const struct {
	unsigned dtype, op;
} kinds[] = {
    {RS_FLOAT32, RS_SUM}, {RS_FLOAT32, RS_AVG},  {RS_INT8, RS_MAX},     {RS_FLOAT64, RS_MIN},
    {RS_INT64, RS_PROD},  {RS_BFLOAT16, RS_SUM}, {RS_FLOAT16, RS_PROD}, {RS_FLOAT16, RS_AVG},
};

/* _i: dtype and op; then with another node or alone. */
START_TEST(each_local_rank_gets_what_is_its_own)
{
	unsigned n = sizeof kinds / sizeof kinds[0];

	fa.cfg.agent.single_node_reducers = false;
	for (unsigned local = 1; local <= LOCAL_MOST; local++)
		for (unsigned how = 0; how < 4; how++) {
			struct shape s = {local, (unsigned)_i / n ? 1 : 2, kinds[(unsigned)_i % n].dtype,
					  kinds[(unsigned)_i % n].op, how & 1};

			run_shape(&s, how & 2);
		}
}
END_TEST

static void say_filled(struct fake_client *c, uint64_t count)
{
	union local_message m;

	local_init(&m, LOCAL_FILLED);
	m.filled.count = count;
	fake_say(&fa, c, &m);
	fake_settle(&fa);
}

/* The engine has the operation at once, and sends nothing before all local ranks have
 * filled all of it. _i: reduce-scatter or all-gather. */
START_TEST(it_is_filled_as_a_whole)
{
	const struct shape s = {.local = 2, .nodes = 2, .dtype = RS_FLOAT32, .op = RS_SUM, .gather = _i};
	uint64_t all = OWN * world_of(&s);
	struct fake_client *c[2];
	struct fake_engine *en = fake_job(&fa, c, world_of(&s), 2);
	struct exchange_op *x;

	for (unsigned r = 0; r < 2; r++)
		say_sharded(c[r], &s, r, true, fake_alloc(&fa, c[r], all * 4), 0, r ? all : 0);
	ck_assert_uint_eq(en->ops_n, 1);
	x = en->ops[0];
	ck_assert_uint_eq(*x->ready, 0);
	say_filled(c[1], all);
	ck_assert_uint_eq(*x->ready, UINT64_MAX);
	for (unsigned r = 0; r < 2; r++)
		say_sharded(c[r], &s, r, true, 0, 0, all);
	ck_assert_uint_eq(*en->ops[1]->ready, 0);
	say_filled(c[0], all);
	ck_assert_uint_eq(*en->ops[1]->ready, 0);
	for (unsigned i = 0; i < 2; i++)
		en->ops[i]->done(en->ops[i], &(struct rs_err){.code = RS_EPEER, .msg = "enough"});
	en->ops_n = 0;
	fake_settle(&fa);
}
END_TEST

START_TEST(a_part_of_it_is_not_filled)
{
	const struct shape s = {.local = 1, .nodes = 2, .dtype = RS_FLOAT32, .op = RS_SUM};
	struct fake_client *c[1];

	fake_job(&fa, c, 2, 1);
	say_sharded(c[0], &s, 0, true, fake_alloc(&fa, c[0], OWN * 8), 0, 2 * OWN);
	say_filled(c[0], 2 * OWN - 1);
	ck_assert_msg(strstr(c[0]->sentence, "FILLED up to element 1399 of operation 0, expected 1400 to 1400") != NULL,
		      "%s", c[0]->sentence);
}
END_TEST

/* An operation that shards as nodes do not, or with memory that overlaps. */
static const struct {
	uint64_t count, send_offset, recv_offset, missing, ring;
	uint32_t parts;
	uint8_t op;
	const char *sentence;
} wrong[] = {
    {.count = 6, .parts = 2, .sentence = "SUBMIT of 6 elements in 2 parts in a world of 4"},
    {.count = 6, .parts = 4, .sentence = "SUBMIT of 6 elements in 4 parts in a world of 4"},
    {.count = 8, .parts = 0, .sentence = "SUBMIT of 8 elements in 0 parts in a world of 4"},
    {.count = 8, .parts = 4, .missing = 1, .sentence = "SUBMIT of a sharded operation with a ring, some missing"},
    {.count = 8, .parts = 4, .ring = 8, .sentence = "SUBMIT of a sharded operation with a ring, some missing"},
    {.count = 8, .parts = 4, .recv_offset = 2, .sentence = "SUBMIT of a sharded operation whose send and recv overlap"},
    {.count = 8, .parts = 4, .send_offset = 1, .op = FRAME_OP_BROADCAST, .sentence = "whose send and recv overlap"},
    {.count = 8, .parts = 4, .recv_offset = 4095, .sentence = "names 2 bytes at offset 4095 of shared buffer 0"},
    {.count = 8, .parts = 4, .send_offset = 4090, .sentence = "names 8 bytes at offset 4090 of shared buffer 0"},
};

START_TEST(wrong_messages_are_refused)
{
	struct fake_client *c[2];
	union local_message m;

	fake_job(&fa, c, 4, 2);
	fake_alloc(&fa, c[0], 4096);
	local_init(&m, LOCAL_SUBMIT);
	m.submit.of = (struct operation){.count = wrong[_i].count,
					 .parts = wrong[_i].parts,
					 .sharded = 1,
					 .dtype = RS_INT8,
					 .size = 1,
					 .op = wrong[_i].op & 31};
	m.submit.send_offset = wrong[_i].send_offset;
	m.submit.recv_offset = wrong[_i].recv_offset;
	m.submit.missing = wrong[_i].missing;
	m.submit.ring = wrong[_i].ring;
	fake_say(&fa, c[0], &m);
	fake_settle(&fa);
	ck_assert_msg(strstr(c[0]->sentence, wrong[_i].sentence) != NULL, "%s", c[0]->sentence);
	ck_assert_ptr_null(c[0]->client);
}
END_TEST

/* Nodes of the same number of ranks, in their order. */
static const struct {
	uint32_t rank[2], world, nodes, node;
	bool shards;
} places[] = {
    {{0, 1}, 4, 2, 0, true},  {{2, 3}, 4, 2, 1, true},  {{0, 1}, 2, 1, 0, true},  {{0, 2}, 4, 2, 0, false},
    {{1, 0}, 4, 2, 0, false}, {{0, 1}, 5, 2, 0, false}, {{3, 4}, 5, 2, 1, false}, {{2, 3}, 4, 2, 0, false},
};

START_TEST(nodes_that_are_alike_can_shard)
{
	struct fake_client *c[2];
	struct fake_engine *en;

	for (unsigned i = 0; i < 2; i++) {
		union local_message m;

		c[i] = fake_connect(&fa);
		local_init(&m, LOCAL_HELLO);
		strcpy(m.hello.job, "j");
		m.hello.rank = places[_i].rank[i];
		m.hello.world_size = places[_i].world;
		m.hello.local_rank = i;
		m.hello.local_world_size = 2;
		m.hello.node_rank = places[_i].node;
		m.hello.nodes = places[_i].nodes;
		m.hello.connect_ms = 10000;
		fake_say(&fa, c[i], &m);
	}
	en = &fa.engines[0];
	ck_assert_int_eq(en->spec.shards, places[_i].shards);
	fake_engine_ready(&fa, en);
	ck_assert_int_eq(c[0]->can_shard, places[_i].shards);
}
END_TEST

/* The engine finds only later that all ranks and reducers can: DONE says so. */
START_TEST(clients_learn_later_that_they_can_shard)
{
	struct fake_client *c[1];
	struct fake_engine *en;

	fa.no_shards = true;
	en = fake_job(&fa, c, 2, 1);
	ck_assert(!c[0]->can_shard);
	fake_submit(&fa, c[0], fake_alloc(&fa, c[0], 64), 4, NULL);
	fa.no_shards = false;
	fake_engine_run(&fa, en, 0);
	ck_assert(c[0]->can_shard);
}
END_TEST

#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])

int main(void)
{
	Suite *s = suite_create("local_sharded");
	TCase *t = tcase_create("local_sharded");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, each_local_rank_gets_what_is_its_own, 0, 2 * COUNT(kinds));
	tcase_add_loop_test(t, it_is_filled_as_a_whole, 0, 2);
	tcase_add_test(t, a_part_of_it_is_not_filled);
	tcase_add_loop_test(t, wrong_messages_are_refused, 0, COUNT(wrong));
	tcase_add_loop_test(t, nodes_that_are_alike_can_shard, 0, COUNT(places));
	tcase_add_test(t, clients_learn_later_that_they_can_shard);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
