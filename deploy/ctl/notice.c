/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl notice: watches the provider's notice that this machine is about to end,
 * and writes it into a file, for which reducers look (server.notice).
 *
 * The happy path: no notice -> a notice: the file appears, and the reducers of this
 * machine drain -> the machine ends. Failure modes: the service does not answer, has too
 * many requests, or another server answers: the pauses grow, and lines in the log say so.
 * The notice is withdrawn: the file goes away. The file cannot be written: the command
 * ends with an error, at its start. */
#include "deploy/ctl/notice.h"
#include "common/address.h"
#include "common/log.h"
#include "deploy/ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOTICE_FILE    "/run/reduction-notice/notice"
#define NOTICE_ADDRESS "169.254.169.254:80"
#define NOTICE_DMI     "/sys/class/dmi/id"

enum {
	NOTICE_FIRST_PAUSE_MS = 500, /* after a failure; the next ones are twice as long */
	NOTICE_TEXT = 256,           /* bytes of the file's text */
};

enum notice_option { OPTION_PROVIDER, OPTION_FILE, OPTION_ADDRESS, OPTION_ACKNOWLEDGE, OPTION_ONCE, NOTICE_OPTIONS };

static const struct option notice_options[NOTICE_OPTIONS] = {
    [OPTION_PROVIDER] = {"provider", "NAME", "aws, gcp, azure, or auto: what the firmware says [auto]"},
    [OPTION_FILE] = {"file", "FILE", "write the notice into this file [" NOTICE_FILE "]"},
    [OPTION_ADDRESS] = {"address", "HOST:PORT", "of the provider's metadata service [" NOTICE_ADDRESS "]"},
    [OPTION_ACKNOWLEDGE] = {"acknowledge", "HOST:PORT",
			    "on azure, let the event start as soon as nothing listens there any more [never]"},
    [OPTION_ONCE] = {"once", NULL, "ask once, print the answer and exit: 0 no notice, 3 a notice"},
};

/* The command. */
struct notice {
	struct notice_watch watch;
	const char *file, *address, *acknowledge; /* acknowledge NULL: never, or it is done */
	char prefix[64];                          /* with which the reason in a file of ours begins */
	bool stands;
	unsigned failures; /* in a row */
	struct rs_log log;
	char *body; /* NOTICE_BODY + 1 bytes; owned */
};

static int notice_take_provider(const char *word, enum notice_provider *ret, struct rs_err *e)
{
	if (!word || strcmp(word, "auto") == 0)
		return notice_provider_find(NOTICE_DMI, ret)
			   ? RS_OK
			   : rs_fail(e, RS_ECONFIG,
				     "the firmware of this machine (%s) names neither aws, gcp nor azure; name the "
				     "provider with --provider",
				     NOTICE_DMI);
	for (unsigned i = 0; i < NOTICE_PROVIDERS; i++)
		if (strcmp(word, notice_provider_name(i)) == 0) {
			*ret = (enum notice_provider)i;
			return RS_OK;
		}
	return rs_fail(e, RS_EINVAL, "--provider: found \"%s\", expected aws, gcp, azure or auto", word);
}

static int notice_check_address(const char *option, const char *text, struct rs_err *e)
{
	struct rs_host_port parts;
	struct rs_err why;

	return text && rs_host_port_split(&parts, text, false, &why) ? rs_fail(e, RS_EINVAL, "%s: %s", option, why.msg)
								     : RS_OK;
}

static void notice_stamp(int64_t seconds, char text[32])
{
	time_t at = (time_t)seconds;
	struct tm tm;

	strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm));
}

/* Writes a text into a file beside the notice's. Errors: RS_EIO. */
static int notice_write_beside(const char *path, const char *text, struct rs_err *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	if (n != (ssize_t)strlen(text))
		rs_fail_sys(e, RS_EIO, errno, "%s", path);
	if (fd >= 0)
		close(fd);
	return n == (ssize_t)strlen(text) ? RS_OK : RS_EIO;
}

/* Makes the file appear with the whole text, or (NULL) only checks that it could. */
static int notice_write(const struct notice *n, const char *text, struct rs_err *e)
{
	char path[4096];
	int rc;

	if (snprintf(path, sizeof path, "%s.new", n->file) >= (int)sizeof path)
		return rs_fail(e, RS_EINVAL, "--file: the name is too long");
	rc = notice_write_beside(path, text ? text : "", e);
	if (rc)
		return rc;
	if (text && rename(path, n->file))
		rc = rs_fail_sys(e, RS_EIO, errno, "%s", n->file);
	if (!text || rc)
		unlink(path);
	return rc;
}

/* Removes the file if it is one of ours: the notice in it does not stand any more. */
static void notice_withdraw(struct notice *n)
{
	char text[NOTICE_TEXT] = "";
	FILE *f = fopen(n->file, "re");

	n->stands = false;
	if (!f)
		return;
	if (!fgets(text, sizeof text, f))
		text[0] = '\0';
	fclose(f);
	if (strncmp(text, n->prefix, strlen(n->prefix)) != 0)
		return; /* somebody else's */
	unlink(n->file);
	rs_log(&n->log, RS_LOG_WARN, "notice-withdrawn", rs_kv_s("provider", notice_provider_name(n->watch.provider)),
	       rs_kv_s("file", n->file));
}

/* A notice: the first time the file is written. */
static int notice_given(struct notice *n, struct rs_err *e)
{
	char text[NOTICE_TEXT], now[32], end[32] = "";
	int rc;

	if (n->stands)
		return RS_OK;
	notice_stamp(time(NULL), now);
	if (n->watch.at_s)
		notice_stamp(n->watch.at_s, end);
	snprintf(text, sizeof text, "%s%s: %s\n%s%s\n", n->prefix, now, n->watch.what, end[0] ? "before " : "", end);
	rc = notice_write(n, text, e);
	n->stands = !rc;
	rs_log(&n->log, RS_LOG_WARN, "notice", rs_kv_s("provider", notice_provider_name(n->watch.provider)),
	       rs_kv_s("event", n->watch.what), rs_kv_s("before", end), rs_kv_s("file", rc ? "" : n->file),
	       rs_kv_s("error", rc ? e->msg : ""));
	return rc;
}

/* Azure: the event may start as soon as the reducer is gone. */
static void notice_acknowledge(struct notice *n)
{
	struct notice_request q;
	struct notice_answer a;
	struct rs_err e = {.msg = ""};
	int rc;

	if (!n->acknowledge || !n->watch.event[0] || !notice_is_free(n->acknowledge))
		return;
	notice_acknowledgement(&n->watch, &q);
	rc = notice_ask(n->address, &q, n->body, &a, &e);
	rs_log(&n->log, RS_LOG_INFO, "acknowledged", rs_kv_s("event", n->watch.event),
	       rs_kv_i("status", rc ? 0 : a.status), rs_kv_s("error", e.msg));
	if (!rc && a.status == 200)
		n->acknowledge = NULL;
}

/* Asks the next question. */
static enum notice_word notice_turn(struct notice *n, struct rs_err *e)
{
	struct notice_request q;
	struct notice_answer a;

	notice_question(&n->watch, &q);
	if (notice_ask(n->address, &q, n->body, &a, e))
		return NOTICE_FAILED;
	return notice_take(&n->watch, &a, time(NULL), e);
}

/* Logs a failure if it is the 1st, 2nd, 4th, ... in a row. Returns the pause after it. */
static uint32_t notice_failed(struct notice *n, const struct rs_err *why)
{
	uint32_t most = notice_most_pause_ms(&n->watch), pause = NOTICE_FIRST_PAUSE_MS;

	for (unsigned i = 0; i < n->failures && pause < most; i++)
		pause *= 2;
	n->failures++;
	if ((n->failures & (n->failures - 1)) == 0)
		rs_log(&n->log, RS_LOG_WARN, "notice-unknown",
		       rs_kv_s("provider", notice_provider_name(n->watch.provider)), rs_kv_s("address", n->address),
		       rs_kv_u("failures", n->failures), rs_kv_s("reason", why->msg));
	return pause < most ? pause : most;
}

/* Does what an answer asks for. Returns the pause in milliseconds, or an error. */
static int notice_do(struct notice *n, enum notice_word word, struct rs_err *e)
{
	if (word == NOTICE_FAILED)
		return (int)notice_failed(n, e);
	n->failures = 0;
	switch (word) {
	case NOTICE_NEXT:
		return 0;
	case NOTICE_STANDS:
		if (notice_given(n, e))
			return e->code;
		notice_acknowledge(n);
		break;
	case NOTICE_HINT:
		rs_log(&n->log, RS_LOG_INFO, "notice-hint",
		       rs_kv_s("provider", notice_provider_name(n->watch.provider)), rs_kv_s("event", n->watch.what));
		/* fall through */
	default:
		notice_withdraw(n);
	}
	return (int)notice_pause_ms(&n->watch);
}

static int notice_run(struct notice *n, struct rs_err *e)
{
	int pause = notice_write(n, NULL, e);

	if (pause)
		return pause;
	rs_log(&n->log, RS_LOG_INFO, "watching", rs_kv_s("provider", notice_provider_name(n->watch.provider)),
	       rs_kv_s("address", n->address), rs_kv_s("file", n->file));
	for (;;) {
		struct timespec rest;

		pause = notice_do(n, notice_turn(n, e), e);
		if (pause < 0)
			return pause;
		rest = (struct timespec){.tv_sec = pause / 1000, .tv_nsec = pause % 1000 * 1000000L};
		nanosleep(&rest, NULL);
	}
}

static int notice_once(struct notice *n, struct rs_err *e)
{
	enum notice_word word;
	char end[32];

	do
		word = notice_turn(n, e);
	while (word == NOTICE_NEXT);
	if (word == NOTICE_FAILED)
		return rs_wrap(e, "%s at %s", notice_provider_name(n->watch.provider), n->address);
	printf("%s: ", notice_provider_name(n->watch.provider));
	if (word != NOTICE_STANDS) {
		printf("no notice%s%s\n", word == NOTICE_HINT ? ", but " : "",
		       word == NOTICE_HINT ? n->watch.what : "");
		return RS_OK;
	}
	notice_stamp(n->watch.at_s, end);
	printf("%s%s%s\n", n->watch.what, n->watch.at_s ? " before " : "", n->watch.at_s ? end : "");
	return COMMAND_FOUND;
}

static int run_notice(const struct call *call, struct rs_err *e)
{
	const char *const *value = call->value;
	struct notice n = {.file = value[OPTION_FILE] ? value[OPTION_FILE] : NOTICE_FILE,
			   .address = value[OPTION_ADDRESS] ? value[OPTION_ADDRESS] : NOTICE_ADDRESS,
			   .acknowledge = value[OPTION_ACKNOWLEDGE],
			   .log = {.level = RS_LOG_INFO, .fd = STDERR_FILENO}};
	int rc = notice_take_provider(value[OPTION_PROVIDER], &n.watch.provider, e);

	if (!rc)
		rc = notice_check_address("--address", n.address, e);
	if (!rc)
		rc = notice_check_address("--acknowledge", n.acknowledge, e);
	if (rc)
		return rc;
	n.body = malloc(NOTICE_BODY + 1);
	if (!n.body)
		return rs_oom(e, NOTICE_BODY, "an answer");
	snprintf(n.prefix, sizeof n.prefix, "a notice of %s at ", notice_provider_name(n.watch.provider));
	rs_log_find_journal(&n.log);
	rc = value[OPTION_ONCE] ? notice_once(&n, e) : notice_run(&n, e);
	free(n.body);
	return rc;
}

const struct command notice_command = {
    "notice",   FILE_NONE,      "watch the provider's notice that this machine ends, for reducers with server.notice",
    run_notice, notice_options, NOTICE_OPTIONS};
