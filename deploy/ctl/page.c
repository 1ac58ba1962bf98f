/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl page: one page about all reducers. It is the status page of a reducer that
 * has their answers in it, so it needs no server, no token and no other file. */
#include "common/host/http/json.h"
#include "common/host/http/page_html.h"
#include "deploy/ctl/ctl.h"
#include "proto/reduction.pb-c.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ANSWER_MS = 10000 };
enum page_option { PAGE_OUTPUT = REDUCERS_QUERY_OPTIONS, PAGE_EVERY, PAGE_OPTIONS };

static const struct option page_options[PAGE_OPTIONS] = {
    REDUCERS_QUERY_ROWS,
    [PAGE_OUTPUT] = {"output", "FILE", "write the page there, at once, not to standard output"},
    [PAGE_EVERY] = {"every", "SECONDS", "write it again every SECONDS (with --output); it loads itself again"},
};

/* The answers so far, as elements of two lists. */
struct page {
	struct reducers a;
	FILE *answers, *ended;
	size_t answers_n, ended_n;
};

/* Adds all messages of an answer to a list. */
static int read_list(struct page *p, unsigned reducer, const char *path, const ProtobufCMessage *request,
		     const ProtobufCMessageDescriptor *type, FILE *out, size_t *n, struct rs_err *e)
{
	struct rpc_query *query;
	ProtobufCMessage *m;
	int rc = reducers_send(&p->a, reducer, path, request, ANSWER_MS, &query, e);

	if (rc)
		return rc;
	while ((rc = reducers_next(&p->a, reducer, query, type, &m, e)) == 1) {
		fputs((*n)++ ? "," : "", out);
		json_answer(&p->a, reducer, m, out);
		protobuf_c_message_free_unpacked(m, NULL);
	}
	p->a.rpc->query_free(query);
	return rc;
}

static int read_reducer(struct page *p, unsigned reducer, struct rs_err *e)
{
	Reduction__V1__StatusRequest status = REDUCTION__V1__STATUS_REQUEST__INIT;
	Reduction__V1__EventsRequest ended = REDUCTION__V1__EVENTS_REQUEST__INIT;
	int rc;

	status.history = true;
	ended.past_only = ended.ended_jobs = true;
	rc = read_list(p, reducer, "/reduction.v1.Control/Status", &status.base,
		       &reduction__v1__status_reply__descriptor, p->answers, &p->answers_n, e);
	if (!rc)
		return read_list(p, reducer, "/reduction.v1.Control/Events", &ended.base,
				 &reduction__v1__event__descriptor, p->ended, &p->ended_n, e);
	fputs(p->answers_n++ ? ",{\"asked\":" : "{\"asked\":", p->answers);
	json_string(p->a.reducers[reducer].address, p->answers);
	fputs(",\"reducer\":", p->answers);
	json_string(p->a.reducers[reducer].name, p->answers);
	fputs(",\"why\":", p->answers);
	json_string(e->msg, p->answers);
	fputs("}\n", p->answers);
	return rc;
}

/* Writes JSON into a page, where "<" could end or begin an element. */
static void put_json(const char *text, FILE *out)
{
	for (; *text; text++)
		if (*text == '<')
			fputs("\\u003c", out);
		else
			fputc(*text, out);
}

static void put_page(const char *answers, const char *ended, double every, FILE *out)
{
	static const char before[] = "<script>";
	const unsigned char *script = memmem(page_html, sizeof page_html, before, sizeof before - 1);
	size_t head = (size_t)(script - page_html);

	fwrite(page_html, 1, head, out);
	fprintf(out,
		"<script id=\"all\" type=\"application/json\">{\"unix_ms\":%" PRId64 ",\"every_ms\":%.0f,\"answers\":[",
		(int64_t)time(NULL) * 1000, every * 1e3);
	put_json(answers, out);
	fputs("],\"ended\":[", out);
	put_json(ended, out);
	fputs("]}</script>\n", out);
	fwrite(script, 1, sizeof page_html - head, out);
}

/* Writes the page to a file whose reader gets the old page or the new one; NULL: to
 * standard output. */
static int write_page(const char *file, const char *answers, const char *ended, double every, struct rs_err *e)
{
	char new[RS_PATH_LEN + 8];
	FILE *out = stdout;
	int bad;

	if (file) {
		snprintf(new, sizeof new, "%s.new", file);
		out = fopen(new, "we");
		if (!out)
			return rs_fail_sys(e, RS_EIO, errno, "cannot write %s", new);
	}
	put_page(answers, ended, every, out);
	bad = ferror(out);
	if ((file ? fclose(out) : fflush(out)) || bad || (file && rename(new, file)))
		return rs_fail_sys(e, RS_EIO, errno, "cannot write %s", file ? file : "the page");
	return RS_OK;
}

/* Asks all reducers and writes the page, also if some do not answer; then the error is
 * that of the last of them. */
static int make_page(struct page *p, const char *file, double every, struct rs_err *e)
{
	char *answers = NULL, *ended = NULL;
	size_t answers_len, ended_len;
	struct rs_err why;
	int rc = RS_OK;

	p->answers_n = p->ended_n = 0;
	p->answers = open_memstream(&answers, &answers_len);
	p->ended = open_memstream(&ended, &ended_len);
	for (unsigned i = 0; p->answers && p->ended && i < p->a.reducers_n; i++)
		if (read_reducer(p, i, &why)) {
			*e = why;
			rc = why.code;
		}
	if (!p->answers || !p->ended || fclose(p->answers) || fclose(p->ended))
		rc = rs_oom(e, 0, "the page");
	else if (write_page(file, answers, ended, every, &why)) {
		*e = why;
		rc = why.code;
	}
	free(answers);
	free(ended);
	return rc;
}

static int run_page(const struct call *call, struct rs_err *e)
{
	const char *file = call->value[PAGE_OUTPUT];
	struct timespec pause;
	struct page p;
	double every = 0;
	int rc = take_seconds(call->value[PAGE_EVERY], "every", 1, 3600, &every, e);

	if (!rc && every > 0 && !file)
		rc = rs_fail(e, RS_EINVAL, "--every needs --output FILE");
	if (!rc && file && strlen(file) >= RS_PATH_LEN)
		rc = rs_fail(e, RS_EINVAL, "--output: the path is longer than %d bytes", RS_PATH_LEN - 1);
	if (!rc)
		rc = reducers_open(&p.a, call, false, e);
	if (rc)
		return rc;
	pause = (struct timespec){(time_t)every, (long)((every - (double)(time_t)every) * 1e9)};
	while (rc = make_page(&p, file, every, e), every > 0) {
		if (rc)
			fprintf(stderr, "reductionctl: %s\n", e->msg);
		nanosleep(&pause, NULL);
	}
	reducers_close(&p.a);
	return rc;
}

const struct command page_command = {"page",   ADDRESS_OR_ENVIRONMENT, "write one web page about all reducers of a job",
				     run_page, page_options,           PAGE_OPTIONS};
