/* SPDX-License-Identifier: Apache-2.0 */
/* How an uplink joins the job at its home, with and without secret, and what it does if
 * the home answers otherwise: it tries again, and the job goes on meanwhile. */
#include "tests/unit/fake_groups.h"
#include "tests/unit/fake_home.h"

#include <string.h>

static const char right[] = "0123456789abcdef", wrong[] = "fedcba9876543210";

static void use(struct auth_secret *to, const char *text)
{
	to->len = (uint32_t)strlen(text);
	memcpy(to->bytes, text, to->len);
}

static int right_secret(void *ctx, const struct control_hello *hello, struct auth_secret *ret, struct rs_err *e)
{
	(void)ctx;
	(void)e;
	ck_assert_str_eq(hello->job, "train");
	use(ret, right);
	return RS_OK;
}

static int no_secret(void *ctx, const struct control_hello *hello, struct auth_secret *ret, struct rs_err *e)
{
	(void)ctx;
	(void)hello;
	(void)ret;
	return rs_fail(e, RS_EREFUSED, "this reducer has no secret");
}

/* What the home sends, one after the other. */
enum step {
	END,
	CHALLENGE,
	CHALLENGE_EMPTY,
	WELCOME,
	WELCOME_PROVEN, /* with the proof of the secret */
	WELCOME_WRONG,  /* with that of another secret */
	START,
	START_OTHER, /* of another start of the job */
	REFUSED,
	REFUSED_EMPTY,
	ABORT,
	PING,
	WAITING,
	RESULT,
	RESUME,
	BYTES, /* no frame */
	LARGE, /* a control frame that is longer than any */
	CLOSED,
};

static const struct {
	const char *what;
	enum step sends[5];
	bool secret, none; /* the relay has one; it looks for one and finds none */
	bool joins;
	const char *says; /* why not, after a while */
} rows[] = {
    {"without secret", {WELCOME, START}, false, false, true, NULL},
    {"waiting, alive", {PING, WELCOME, WAITING, START}, false, false, true, NULL},
    {"with secret", {CHALLENGE, WELCOME_PROVEN, START}, true, false, true, NULL},
    {"no secret for this job", {WELCOME, START}, false, true, true, NULL},
    {"a home without secret", {WELCOME}, true, false, false, "it has not proven that it has the secret"},
    {"a home that proves nothing", {CHALLENGE, WELCOME}, true, false, false, "it has not proven"},
    {"a home with another secret", {CHALLENGE, WELCOME_WRONG}, true, false, false, "it has not proven"},
    {"a proof without a challenge", {WELCOME_PROVEN}, true, false, false, "it has not proven"},
    {"asked without a secret", {CHALLENGE}, false, false, false, "asks for the secret of job train"},
    {"asked for one that is missing", {CHALLENGE}, false, true, false, "asks for the secret of job train"},
    {"asked twice", {CHALLENGE, CHALLENGE}, true, false, false, "CHALLENGE frame at the wrong time"},
    {"asked for nothing", {CHALLENGE_EMPTY}, true, false, false, "CHALLENGE"},
    {"asked late", {WELCOME, CHALLENGE}, false, false, false, "CHALLENGE frame at the wrong time"},
    {"another start", {WELCOME, START_OTHER}, false, false, false, "it is in another start of job train"},
    {"START first", {START}, false, false, false, "START frame at the wrong time"},
    {"WELCOME twice", {WELCOME, WELCOME}, false, false, false, "WELCOME frame at the wrong time"},
    {"START twice", {WELCOME, START, START}, false, false, false, "START frame at the wrong time"},
    {"refused", {REFUSED}, false, false, false, "this start does not run here now"},
    {"refused after WELCOME", {WELCOME, REFUSED}, false, false, false, "REFUSED frame at the wrong time"},
    {"refused without a word", {REFUSED_EMPTY}, false, false, false, "the peer gave no reason"},
    {"ended at once", {ABORT}, false, false, false, "the job has ended"},
    {"ended after WELCOME", {WELCOME, ABORT}, false, false, false, "the job has ended"},
    {"RESULT first", {RESULT}, false, false, false, "RESULT frame"},
    {"RESULT before START", {WELCOME, RESULT}, false, false, false, "RESULT frame"},
    {"RESUME before START", {WELCOME, RESUME}, false, false, false, "RESUME frame at the wrong time"},
    {"another protocol", {BYTES}, false, false, false, "are not frames of this protocol"},
    {"too long", {LARGE}, false, false, false, "WELCOME"},
    {"closed", {WELCOME, CLOSED}, false, false, false, "it closed the connection"},
    {"closed at once", {CLOSED}, false, false, false, "it closed the connection"},
};

static const uint8_t nonce[AUTH_NONCE] = {1, 2, 3};

/* The proof of one side with a secret. */
static void prove(uint8_t mac[AUTH_MAC], const struct fh_home *h, const char *secret, enum auth_side side)
{
	uint8_t challenge[FRAME_CONTROL_MAX];
	const struct auth_transcript t = {
	    .hello = h->hello_bytes,
	    .hello_len = h->hello_len,
	    .challenge = challenge,
	    .challenge_len = control_pack_challenge(challenge, nonce),
	};
	struct auth_secret s;
	struct rs_err e;

	use(&s, secret);
	must(auth_mac(mac, &s, side, &t, &e) == RS_OK);
}

static uint32_t pack(uint8_t *to, const struct fh_home *h, enum step step)
{
	struct control_welcome w = {.detect_ms = FAKE_DETECT_MS,
				    .proven = step == WELCOME_PROVEN || step == WELCOME_WRONG};
	struct control_refused no = {.code = RS_EREFUSED, .retry = true, .message = "this start does not run here now"};
	struct rs_err why;

	switch (step) {
	case CHALLENGE:
		return control_pack_challenge(to, nonce);
	case WELCOME:
	case WELCOME_PROVEN:
	case WELCOME_WRONG:
		prove(w.mac, h, step == WELCOME_WRONG ? wrong : right, AUTH_REDUCER);
		return control_pack_welcome(to, &w);
	case START:
	case START_OTHER:
		return control_pack_start(to, &(struct control_start){.start = FAKE_START + (step == START_OTHER)});
	case REFUSED:
		return control_pack_refused(to, &no);
	case ABORT:
		rs_fail(&why, RS_EPEER, "the job has ended");
		return control_pack_abort(to, &why, NULL);
	case WAITING:
		return control_pack_waiting(to, &(struct control_waiting){.joined = 1, .world_size = FG_WORLD});
	case RESUME:
		return control_pack_view(to, &(struct control_view){.n = 1});
	default:
		return 0;
	}
}

static void send_step(struct fh_homes *all, struct fh_home *h, enum step step)
{
	static const unsigned types[] = {
	    [CHALLENGE] = FRAME_CHALLENGE,
	    [CHALLENGE_EMPTY] = FRAME_CHALLENGE,
	    [WELCOME] = FRAME_WELCOME,
	    [WELCOME_PROVEN] = FRAME_WELCOME,
	    [WELCOME_WRONG] = FRAME_WELCOME,
	    [START] = FRAME_START,
	    [START_OTHER] = FRAME_START,
	    [REFUSED] = FRAME_REFUSED,
	    [REFUSED_EMPTY] = FRAME_REFUSED,
	    [ABORT] = FRAME_ABORT,
	    [PING] = FRAME_PING,
	    [WAITING] = FRAME_WAITING,
	    [RESUME] = FRAME_RESUME,
	};
	uint8_t bytes[FRAME_CONTROL_MAX] = {0}, mac[AUTH_MAC], want[FRAME_CONTROL_MAX];
	const uint8_t *payload;
	struct frame f;

	if (step == CLOSED) {
		fh_break(all, h, "it closed the connection");
	} else if (step == BYTES) {
		fh_send_bytes(all, h, "HTTP/1.1 400 Bad Request\r\n\r\n0123456789012345678901234567890123456789012",
			      FRAME_HEADER);
	} else if (step == RESULT) {
		f = fw_data(all->fw, RS_SUM, RS_FLOAT32, FG_SEQ, FG_CHUNK / 4, 0);
		fh_send_result(all, h, f, bytes, FG_CHUNK);
	} else if (step == LARGE) {
		/* the header alone: the uplink does not wait for the rest */
		f = (struct frame){.type = FRAME_WELCOME, .payload_len = FRAME_CONTROL_MAX + 1};
		frame_encode(&f, bytes);
		fh_send_bytes(all, h, bytes, FRAME_HEADER);
	} else {
		fh_send_control(all, h, types[step], bytes, pack(bytes, h, step));
	}
	if (step == CHALLENGE && h->up) {
		prove(mac, h, right, AUTH_WORKER);
		f = fh_expect(h, FRAME_PROOF, &payload);
		must(f.payload_len == control_pack_proof(want, mac) && !memcmp(payload, want, f.payload_len));
	}
}

/* Both ranks of group 0 send a chunk. */
static struct frame forward(struct fw_world *fw, uint32_t chunk)
{
	struct frame f = fw_data(fw, RS_SUM, RS_FLOAT32, FG_SEQ, 100 * FG_CHUNK, chunk);

	fw_contribute(fw, 1, fg_relayed(f));
	fw_contribute(fw, 3, fg_relayed(f));
	fw_feed_all(fw, SIZE_MAX);
	ck_assert_msg(fw->failed == 0, "%s", fw->why.msg);
	return f;
}

/* Lets time pass, in which the ranks are alive. */
static void pass(struct fw_world *fw, uint64_t ms)
{
	for (uint64_t i = 0; i < ms; i += 50) {
		for (unsigned r = 0; r < FG_WORLD; r++)
			if (fw->w[r].session)
				fw_send_type(fw, r, FRAME_PING);
		fw_feed_all(fw, SIZE_MAX);
		fw_tick(fw, 50);
	}
}

/* _i: the row, then the size of the pieces */
START_TEST(a_home_answers)
{
	unsigned row = (unsigned)_i % (sizeof rows / sizeof rows[0]);
	const uint8_t *payload;
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h;

	fg_running(&fw, (struct fw_options){.secret = rows[row].secret ? right_secret
						      : rows[row].none ? no_secret
								       : NULL});
	fh_init(&homes, &fw);
	homes.piece = (size_t)_i < sizeof rows / sizeof rows[0] ? SIZE_MAX : 7;
	forward(&fw, 0);
	ck_assert_uint_eq(homes.dialled, 1);
	h = fh_accept(&homes, FG_HOME);
	ck_assert_int_eq(h->hello.has_nonce, rows[row].secret);
	for (unsigned i = 0; i < 5 && rows[row].sends[i] != END; i++) {
		ck_assert_msg(h->up, "%s: closed before step %u", rows[row].what, i);
		send_step(&homes, h, rows[row].sends[i]);
	}
	ck_assert_msg(h->up == rows[row].joins, "%s: %s", rows[row].what, h->up ? "joined" : "closed");
	if (rows[row].joins) {
		fh_expect(h, FRAME_DATA, &payload);
		ck_assert_uint_eq(homes.closed, 0);
	} else {
		struct frame f;

		while (fw_take_from(&h->in, &f, &payload))
			must(f.type != FRAME_DATA || rows[row].sends[2] == START); /* nothing before START */
		ck_assert_uint_eq(homes.closed, 1);
	}
	/* it tries again, and the job does not end in less than twice the detection time,
	 * unless the chunk was sent */
	if (!rows[row].joins && rows[row].sends[1] != START) {
		ck_assert_uint_eq(homes.dialled, 1);
		pass(&fw, 100);
		ck_assert_uint_eq(homes.dialled, 2);
		for (unsigned i = 0; i < 100 && !fw.failed; i++) {
			if (fh_find(&homes, FG_HOME))
				fh_break(&homes, fh_find(&homes, FG_HOME), "no route to host");
			pass(&fw, 50);
		}
		ck_assert_int_eq(fw.why.code, RS_ECUT);
		ck_assert_msg(strstr(fw.why.msg, "no connection to reducer r1: no route to host"), "\"%s\"",
			      fw.why.msg);
	}
	fh_close(&homes);
}
END_TEST

/* The reason is that of the last attempt. */
START_TEST(the_reason_is_told)
{
	uint64_t since;
	struct fw_world fw;
	struct fh_homes homes;

	fg_running(&fw, (struct fw_options){.secret = rows[_i].secret ? right_secret
						      : rows[_i].none ? no_secret
								      : NULL});
	fh_init(&homes, &fw);
	if (rows[_i].joins) {
		fh_close(&homes);
		return;
	}
	forward(&fw, 0);
	since = fw.now_ms;
	while (!fw.failed && fw.now_ms < since + 4 * FAKE_DETECT_MS) {
		struct fh_home *h = fh_find(&homes, FG_HOME);

		if (h && !h->up) {
			h = fh_accept(&homes, FG_HOME);
			for (unsigned i = 0; i < 5 && rows[_i].sends[i] != END && h->up; i++)
				send_step(&homes, h, rows[_i].sends[i]);
		}
		pass(&fw, 50);
	}
	ck_assert_msg(fw.failed == 1, "%s", rows[_i].what);
	ck_assert_int_eq(fw.why.code, RS_ECUT);
	ck_assert_msg(strstr(fw.why.msg, "it relays for a group and has no connection to reducer r1") &&
			  strstr(fw.why.msg, rows[_i].says),
		      "%s: \"%s\"", rows[_i].what, fw.why.msg);
	ck_assert_uint_ge(fw.now_ms - since, 2 * FAKE_DETECT_MS);
	ck_assert_uint_le(fw.now_ms - since, 2 * FAKE_DETECT_MS + 200);
	/* pauses grow up to a second, unless a chunk was sent */
	ck_assert_uint_ge(homes.dialled, rows[_i].sends[1] == START && rows[_i].sends[2] ? 1 : 4);
	ck_assert_uint_le(homes.dialled, 8);
	fh_close(&homes);
}
END_TEST

/* HELLO is that of a rank, but for what makes it an uplink. */
START_TEST(hello_says_what_it_is)
{
	const uint8_t *payload;
	struct fw_world fw;
	struct fh_homes homes;
	struct fh_home *h;
	struct frame f;

	fg_running(&fw, (struct fw_options){.window = 3});
	fh_init(&homes, &fw);
	forward(&fw, 0);
	h = fh_accept(&homes, FG_HOME);
	ck_assert_str_eq(h->hello.job, "train");
	ck_assert_str_eq(h->hello.reducer, "r1");
	ck_assert_str_eq(h->hello.label, "relay r0");
	ck_assert(h->hello.relay == 1 && h->hello.group == 1 && h->hello.groups == FG_GROUPS);
	ck_assert(h->hello.rank == 0 && h->hello.incarnation == FAKE_START && !h->hello.has_nonce);
	ck_assert(h->hello.lane == FG_LANE && h->hello.lanes == FG_LANE + 1);
	ck_assert(h->hello.generation == FAKE_GENERATION && h->hello.world_size == FG_WORLD);
	ck_assert_uint_eq(h->hello.detect_ms, FAKE_DETECT_MS);
	/* its window is that of START, or of HELLO */
	send_step(&homes, h, WELCOME);
	fh_send_start(&homes, h, FAKE_START, 2);
	f = fh_expect(h, FRAME_DATA, &payload);
	ck_assert_uint_eq(f.chunk, 0);
	forward(&fw, 1);
	fh_expect(h, FRAME_DATA, &payload);
	forward(&fw, 2);
	fh_expect_nothing(h);
	fh_close(&homes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("uplink_join");
	TCase *tc = tcase_create("all");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tc, a_home_answers, 0, 2 * sizeof rows / sizeof rows[0]);
	tcase_add_loop_test(tc, the_reason_is_told, 0, sizeof rows / sizeof rows[0]);
	tcase_add_test(tc, hello_says_what_it_is);
	suite_add_tcase(suite, tc);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
