/* SPDX-License-Identifier: Apache-2.0 */
/* run: tsan */
/* A lane's thread without memory: two jobs of two ranks each connect, start, one of them
 * is aborted, and all ranks leave. This is repeated; each time the next allocation fails,
 * once alone and once with all later ones. No job waits forever: each connection that the
 * lane took is reported as closed, each rank gets START or an error, and the failure of a
 * running job is reported. The linker replaces the C library's functions by those of
 * fake_memory.c. */
#include "common/kernels/kernels.h"
#include "config/config.h"
#include "server/run/lane_uv.h"
#include "tests/unit/fake_memory.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { JOBS = 2, WORLD = 2, ABORTED = 0, CHUNK = 4096, STEPS_MAX = 500, PATIENCE_S = 60 };

/* As ck_assert_msg, which allocates memory even if the condition is true. */
#define must(condition, ...)                                                                                           \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			memory_unlimited();                                                                            \
			ck_abort_msg(__VA_ARGS__);                                                                     \
		}                                                                                                      \
	} while (0)

/* The accept loop's side: its mailbox and the received mail. */
struct world {
	uv_loop_t loop;
	struct wakeups wakeups;
	struct mailbox out;
	struct lane_thread *lane;
	unsigned attached, closed;   /* connections */
	bool failed[JOBS];           /* a lane has reported it */
	struct wakeup answer;        /* the lane has a report */
	bool reported;               /* a report was requested and has arrived */
	int fd[JOBS][WORLD];         /* of the ranks; -1: the lane did not take the connection */
	struct stripe_params stripe; /* without job and memory */
	void *memory[JOBS];
};

static void on_mail(struct mailbox *m, struct mail *mail)
{
	const struct rs_err lost = {RS_EPEER, "a rank was lost while the job was starting"};
	struct world *w = m->user;
	struct lane_mail *lm = (struct lane_mail *)mail;

	if (lm->event.type == LANE_CLOSED) {
		w->closed++;
		lane_thread_abort(w->lane, lm->event.job, &lost, NULL); /* as the registry does */
	}
	if (lm->event.type == LANE_FAILED || lm->failed) {
		must(lm->event.why.msg[0], "a failure without a reason");
		w->failed[lm->event.job] = true;
	}
	free(lm);
}

static void on_answer(struct wakeup *answer)
{
	struct world *w = (struct world *)((char *)answer - offsetof(struct world, answer));

	free(lane_thread_take_report(w->lane));
	w->reported = true;
}

/* On the lane's thread. */
static void on_reported(void *user)
{
	wakeup_send(&((struct world *)user)->answer);
}

static void world_open(struct world *w)
{
	struct rs_err e;

	*w = (struct world){.stripe = {.world_size = WORLD, .chunk_bytes = CHUNK, .window = 2, .priorities = 1}};
	for (unsigned job = 0; job < JOBS; job++) {
		w->memory[job] =
		    mmap(NULL, stripe_memory(&w->stripe), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ck_assert_ptr_ne(w->memory[job], MAP_FAILED);
		for (unsigned rank = 0; rank < WORLD; rank++)
			w->fd[job][rank] = -1;
	}
	ck_assert_int_eq(uv_loop_init(&w->loop), 0);
	ck_assert_int_eq(wakeups_init(&w->wakeups, &w->loop, &e), RS_OK);
	ck_assert_int_eq(mailbox_init(&w->out, &w->wakeups, on_mail, w, &e), RS_OK);
	wakeup_init(&w->answer, &w->wakeups, on_answer);
}

static void world_close(struct world *w)
{
	mailbox_close(&w->out);
	wakeup_close(&w->answer);
	wakeups_close(&w->wakeups);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	mailbox_destroy(&w->out);
	wakeups_destroy(&w->wakeups);
	ck_assert_int_eq(uv_loop_close(&w->loop), 0);
	for (unsigned job = 0; job < JOBS; job++)
		munmap(w->memory[job], stripe_memory(&w->stripe));
}

static void connect_rank(struct world *w, unsigned job, unsigned rank)
{
	struct registry_admit admit = {.stripe = w->stripe, .session = {.rank = rank, .peer_detect_ms = 60000}};
	struct control_welcome welcome = {0};
	struct tcp_conn tcp;
	struct rs_err e;
	int fds[2];

	admit.stripe.job = job;
	admit.stripe.memory = w->memory[job];
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair: %s", strerror(errno));
	tcp_conn_plain(&tcp, fds[1]);
	if (lane_thread_attach(w->lane, &tcp, &admit, &welcome, &e)) {
		must(e.code == RS_ENOMEM && strstr(e.msg, "out of memory for a connection of rank"), "%s", e.msg);
		tcp_conn_close(&tcp);
		close(fds[0]);
		return;
	}
	w->fd[job][rank] = fds[0];
	w->attached++;
}

/* Reads n bytes of a rank, and meanwhile the lane's mail. False: the connection was
 * closed. */
static bool read_all(struct world *w, int fd, char *to, size_t n)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	time_t until = time(NULL) + PATIENCE_S;

	while (n) {
		ssize_t got;

		uv_run(&w->loop, UV_RUN_NOWAIT);
		must(time(NULL) < until, "a rank has read nothing for %d s", PATIENCE_S);
		if (poll(&p, 1, 1) <= 0)
			continue;
		got = recv(fd, to, n, 0);
		must(got >= 0 || errno == ECONNRESET, "recv: %s", strerror(errno));
		if (got <= 0)
			return false;
		to += got;
		n -= (size_t)got;
	}
	return true;
}

/* Reads frames of a rank until one of this type or the end of its job. Returns the type
 * of the last frame, 0 if the connection was closed; why gets the payload of an ABORT. */
static unsigned read_until(struct world *w, int fd, unsigned type, char why[FRAME_CONTROL_MAX + 1])
{
	uint8_t head[FRAME_HEADER];
	struct frame f;
	struct rs_err e;

	do {
		if (!read_all(w, fd, (char *)head, sizeof head))
			return 0;
		must(frame_decode(head, &f, &e) == RS_OK, "%s", e.msg);
		must(f.payload_len <= FRAME_CONTROL_MAX, "a payload of %u bytes", f.payload_len);
		if (!read_all(w, fd, why, f.payload_len))
			return 0;
	} while (f.type != type && f.type != FRAME_ABORT);
	why[f.payload_len] = '\0';
	return f.type;
}

/* Returns whether this is an error that ranks of a job without memory get. */
static bool no_memory(const char *why)
{
	return strstr(why, "out of memory for the start of the job") ||
	       strstr(why, "was lost while the job was starting"); /* the lane had no memory for that rank */
}

static void check_aborted(struct world *w, int fd)
{
	char why[FRAME_CONTROL_MAX + 1];
	unsigned type = read_until(w, fd, FRAME_ABORT, why);

	if (type == FRAME_ABORT)
		must(strstr(why, "the test ends this job") || no_memory(why), "\"%s\"", why);
	else
		must(memory_failed(), "closed without a sentence"); /* the lane had no memory for the connection */
}

/* Checks the job that is not aborted. Returns whether this rank has got START. */
static bool check_started(struct world *w, int fd)
{
	char why[FRAME_CONTROL_MAX + 1];
	unsigned type = read_until(w, fd, FRAME_START, why);

	if (type == FRAME_ABORT)
		must(no_memory(why), "\"%s\"", why);
	must(type == FRAME_START || memory_failed(), "neither START nor ABORT");
	return type == FRAME_START;
}

static void play(struct world *w)
{
	const struct rs_err why = {RS_EREFUSED, "the test ends this job"};
	bool started = true, report;

	for (unsigned job = 0; job < JOBS; job++) {
		for (unsigned rank = 0; rank < WORLD; rank++)
			connect_rank(w, job, rank);
		if (w->fd[job][0] >= 0 && w->fd[job][1] >= 0)
			lane_thread_start_job(w->lane, job, &(struct lane_begin){.processes = 1});
		else
			started &= job == ABORTED;
	}
	report = lane_thread_report(w->lane, on_reported, w);
	lane_thread_abort(w->lane, ABORTED, &why, NULL);
	for (unsigned rank = 0; rank < WORLD; rank++) {
		if (w->fd[ABORTED][rank] >= 0)
			check_aborted(w, w->fd[ABORTED][rank]);
		if (started)
			started = check_started(w, w->fd[!ABORTED][rank]);
	}
	for (unsigned job = 0; job < JOBS; job++)
		for (unsigned rank = 0; rank < WORLD; rank++)
			if (w->fd[job][rank] >= 0)
				close(w->fd[job][rank]);
	while (w->closed < w->attached || (report && !w->reported))
		uv_run(&w->loop, UV_RUN_ONCE);
	must(w->closed == w->attached, "%u of %u connections are gone", w->closed, w->attached);
	must(!started || w->failed[!ABORTED], "the failure of a running job was not reported");
	must(!w->failed[ABORTED] || memory_failed(), "an aborted job was reported as failed");
	for (unsigned job = 0; job < JOBS; job++)
		lane_thread_forget(w->lane, job);
}

static bool broken; /* what lane_check says */

const char *__wrap_lane_check(const struct lane *l);
const char *__wrap_lane_check(const struct lane *l)
{
	(void)l;
	return broken ? "a test has broken it" : NULL;
}

/* Starts the lane of a world. */
static int start_lane(struct world *w, bool paranoid, struct rs_err *e)
{
	static struct rs_log log = {.level = RS_LOG_ERROR, .fd = -1};
	static struct rs_config cfg = {.timeouts = {.detect_ms = 60000, .stopped_ms = 60000}};
	const struct lane_thread_options opt = {
	    .cfg = &cfg, .kernels = rs_kernels_usable(0), .log = &log, .out = &w->out};

	cfg.paranoid = paranoid;
	return lane_thread_start(&w->lane, &opt, 0, e);
}

/* Runs a lane's thread in a process of its own until that dies, or for some turns.
 * Returns its status. */
static int run_lane(bool paranoid)
{
	struct world w;
	struct rs_err e;
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		world_open(&w);
		if (start_lane(&w, paranoid, &e))
			_exit(1);
		play(&w);
		lane_thread_stop(w.lane);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

START_TEST(a_paranoid_lane_ends_when_an_invariant_is_broken)
{
	int status;

	broken = true;
	status = run_lane(true);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	status = run_lane(false);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	broken = false;
	status = run_lane(true);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

START_TEST(out_of_memory_ends_the_exchange)
{
	unsigned step = 0;

	do {
		struct world w;
		struct rs_err e;
		int rc;

		ck_assert_uint_lt(++step, STEPS_MAX);
		world_open(&w);
		memory_fail_at(step, _i);
		rc = start_lane(&w, false, &e);
		if (rc == RS_OK) {
			play(&w);
			lane_thread_stop(w.lane);
		}
		memory_unlimited();
		ck_assert(rc == RS_OK || rc == RS_ENOMEM);
		world_close(&w);
	} while (memory_failed());
	ck_assert_uint_gt(step, 20);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lane_uv");
	TCase *t = tcase_create("lane_uv");
	SRunner *r = srunner_create(s);
	int bad;

	tcase_add_test(t, a_paranoid_lane_ends_when_an_invariant_is_broken);
	tcase_add_loop_test(t, out_of_memory_ends_the_exchange, 0, 2);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	bad = srunner_ntests_failed(r);
	srunner_free(r);
	return bad != 0;
}
