/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl support-bundle: one archive for those who help.
 *
 * The happy path is: all configurations are read, so that all secrets are known -> each
 * target is asked for its status and its past events -> this machine is described -> the
 * list of targets says who has answered. Failure modes: a target that does not answer, or
 * whose configuration is wrong, is a line in that list and a warning; the archive cannot
 * be written: an error. */
#include "deploy/ctl/bundle.h"

#include "common/host/http/metrics.h"
#include "common/version.h"
#include "deploy/ctl/ctl.h"
#include "proto/reduction.pb-c.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum bundle_option { BUNDLE_OUTPUT = REDUCERS_JSON, BUNDLE_OPTIONS };
enum { BUNDLE_ANSWER_MS = 10000, BUNDLE_FOLDER = 48 };

static const struct option bundle_options[BUNDLE_OPTIONS] = {
    REDUCERS_QUERY_ROWS,
    [BUNDLE_OUTPUT] = {"output", "FILE", "write to FILE [reduction-support-HOST-TIME.tar.gz in this folder]"},
};

/* The making of a bundle. */
struct making {
	struct bundle bundle;
	struct rs_config *cfgs; /* of the targets that are files */
	bool *is_file, *is_good;
	FILE *list; /* the list of targets */
	char *list_text;
	size_t list_n;
	unsigned failed, asked;
};

extern char **environ;

/* Writes the variables of the environment that this software and those around it read. */
static void add_environment(struct bundle *b)
{
	static const char *const prefixes[] = {"REDUCTION_", "NCCL_", "GRPC_", "OMP_", "TORCH_", "SLURM_", "OMPI_"};
	FILE *out = bundle_begin(b);

	for (char **v = environ; out && *v; v++) {
		bool ours = false;

		for (unsigned i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
			ours |= strncmp(*v, prefixes[i], strlen(prefixes[i])) == 0;
		if (!ours)
			continue;
		if (bundle_is_secret_name(*v))
			fprintf(out, "%.*s=(left out)\n", (int)strcspn(*v, "="), *v);
		else
			fprintf(out, "%s\n", *v);
	}
	bundle_end(b, "environment.txt");
}

/* Remembers the values of variables that may be secrets, or the contents of the files
 * that they name. */
static void take_environment(struct bundle *b)
{
	for (char **v = environ; *v; v++) {
		char name[64];
		const char *value = strchr(*v, '=');

		if (!value)
			continue;
		snprintf(name, sizeof name, "%.*s", (int)(value - *v), *v);
		if (!bundle_is_secret_name(name))
			continue;
		if (access(value + 1, F_OK) == 0)
			bundle_secret_file(b, value + 1);
		else
			bundle_secret(b, value + 1, strlen(value + 1));
	}
}

static void __attribute__((format(printf, 4, 5)))
note(struct making *m, const char *target, bool failed, const char *fmt, ...)
{
	va_list ap;

	fprintf(m->list, "%s: ", target);
	va_start(ap, fmt);
	vfprintf(m->list, fmt, ap);
	va_end(ap);
	fputc('\n', m->list);
	m->failed += failed;
}

/* Reads the configurations, and so learns the secrets. */
static void take_files(struct making *m, const struct call *call)
{
	for (unsigned i = 0; i < call->files_n; i++) {
		struct call one = {.file = call->files[i]};
		struct rs_err e;

		m->is_file[i] = access(one.file, F_OK) == 0;
		if (!m->is_file[i])
			continue;
		if (load_config(&m->cfgs[i], &one, &e)) {
			fprintf(stderr, "reductionctl: %s\n", e.msg);
			/* the message may quote what is in the file */
			note(m, one.file, true, "the file is invalid, reductionctl check has the reason");
			continue;
		}
		m->is_good[i] = true;
		bundle_secrets_of(&m->bundle, &m->cfgs[i], one.file);
	}
}

static void add_files(struct making *m, const struct call *call)
{
	for (unsigned i = 0; i < call->files_n; i++) {
		FILE *out = m->is_good[i] ? bundle_begin(&m->bundle) : NULL;

		if (!out)
			continue;
		fprintf(out, "# the effective configuration of %s; files of secrets are named and not copied\n",
			call->files[i]);
		rs_config_print(&m->cfgs[i], out);
		bundle_end(&m->bundle, "configuration/%02u.yaml", i + 1);
	}
}

/* Writes the name of the folder of a reducer or an agent. */
static void set_folder(char to[BUNDLE_FOLDER], unsigned number, const char *name)
{
	size_t n = (size_t)snprintf(to, BUNDLE_FOLDER, "targets/%02u-", number);

	for (; *name && n + 1 < BUNDLE_FOLDER; name++)
		to[n++] = *name;
	to[n] = '\0';
	for (char *c = to + strlen("targets/"); *c; c++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-", *c))
			*c = '_';
}

/* Adds the kept events of a reducer, one in a line. */
static int add_events(struct making *m, struct reducers *a, unsigned reducer, const char *folder, struct rs_err *e)
{
	Reduction__V1__EventsRequest request = REDUCTION__V1__EVENTS_REQUEST__INIT;
	struct rpc_query *query;
	ProtobufCMessage *event;
	FILE *out;
	int rc;

	request.past_only = true;
	rc = reducers_send(a, reducer, "/reduction.v1.Control/Events", &request.base, BUNDLE_ANSWER_MS, &query, e);
	if (rc)
		return rc;
	out = bundle_begin(&m->bundle);
	while ((rc = reducers_next(a, reducer, query, &reduction__v1__event__descriptor, &event, e)) == 1) {
		if (out)
			json_answer(a, reducer, event, out);
		protobuf_c_message_free_unpacked(event, NULL);
	}
	bundle_end(&m->bundle, "%s/events.jsonl", folder);
	a->rpc->query_free(query);
	return rc;
}

/* Adds what one reducer or agent answers. */
static int add_answers(struct making *m, struct reducers *a, unsigned reducer, struct rpc_query *query,
		       struct rs_err *e)
{
	char folder[BUNDLE_FOLDER];
	ProtobufCMessage *status;
	const char *name = a->reducers[reducer].name;
	int rc = reducers_next(a, reducer, query, &reduction__v1__status_reply__descriptor, &status, e);

	if (rc != 1)
		return rc ? rc : rs_fail(e, RS_EPROTO, "the answer is empty");
	set_folder(folder, m->asked, name[0] ? name : a->reducers[reducer].address);
	if (bundle_begin(&m->bundle))
		json_answer(a, reducer, status, m->bundle.out);
	bundle_end(&m->bundle, "%s/status.json", folder);
	if (bundle_begin(&m->bundle))
		metrics_write((const Reduction__V1__StatusReply *)status, false, m->bundle.out);
	bundle_end(&m->bundle, "%s/metrics.txt", folder);
	protobuf_c_message_free_unpacked(status, NULL);
	return add_events(m, a, reducer, folder, e);
}

/* Asks all reducers of a target at the same time. */
static void add_reducers(struct making *m, struct reducers *a)
{
	Reduction__V1__StatusRequest request = REDUCTION__V1__STATUS_REQUEST__INIT;
	struct rpc_query **queries = calloc(a->reducers_n, sizeof(*queries));
	struct rs_err *why = calloc(a->reducers_n, sizeof *why);
	char name[RS_NAME_MAX + RS_ADDRESS_MAX + 4];

	for (unsigned i = 0; queries && why && i < a->reducers_n; i++)
		if (reducers_send(a, i, "/reduction.v1.Control/Status", &request.base, BUNDLE_ANSWER_MS, &queries[i],
				  &why[i]))
			queries[i] = NULL;
	for (unsigned i = 0; i < a->reducers_n; i++) {
		bool failed = !queries || !why;

		m->asked++;
		reducers_name(a, i, name, sizeof name);
		if (!failed)
			failed = !queries[i] || add_answers(m, a, i, queries[i], &why[i]);
		if (failed) {
			fprintf(stderr, "reductionctl: %s\n", why ? why[i].msg : "out of memory");
			note(m, name, true, "no answer: %s", why ? why[i].msg : "out of memory");
		} else {
			note(m, name, false, "answered");
		}
		if (queries && queries[i])
			a->rpc->query_free(queries[i]);
	}
	free(queries);
	free(why);
}

static void add_target(struct making *m, const struct call *call, const char *target)
{
	struct call one = *call;
	struct reducers a;
	struct rs_err e;

	one.file = target;
	one.files_n = 0;
	if (reducers_open(&a, &one, false, &e)) {
		fprintf(stderr, "reductionctl: %s: %s\n", target, e.msg);
		/* the message may quote what is in the file */
		note(m, target, true, "could not be asked");
		return;
	}
	add_reducers(m, &a);
	reducers_close(&a);
}

/* Sets the name of the bundle: host and time. */
static void set_name(struct bundle *b)
{
	char host[64] = "", text[sizeof "20260101T000000Z"] = "";
	time_t now = time(NULL);
	struct tm tm;

	gethostname(host, sizeof host - 1);
	for (char *c = host; *c; c++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", *c))
			*c = '\0';
	b->unix_s = now;
	if (gmtime_r(&now, &tm))
		strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &tm);
	snprintf(b->name, sizeof b->name, "reduction-support-%.20s-%s", host, text);
}

static void make(struct making *m, const struct call *call)
{
	struct bundle *b = &m->bundle;

	take_environment(b);
	if (call->value[REDUCERS_TOKEN])
		bundle_secret_file(b, call->value[REDUCERS_TOKEN]);
	take_files(m, call);
	add_environment(b);
	add_files(m, call);
	for (unsigned i = 0; i < call->files_n; i++)
		if (!m->is_file[i] || m->is_good[i])
			add_target(m, call, call->files[i]);
	bundle_machine(b);
	fflush(m->list);
	if (bundle_begin(b))
		fprintf(b->out,
			"made by reductionctl %s\nmachine/ and log/ are about the machine on which it ran\n\n%s",
			RS_VERSION, m->list_text);
	bundle_end(b, "targets.txt");
}

static void making_close(struct making *m, unsigned n)
{
	for (unsigned i = 0; m->is_good && i < n; i++)
		if (m->is_good[i])
			rs_config_close(&m->cfgs[i]);
	bundle_forget_secrets(&m->bundle);
	if (m->list)
		fclose(m->list);
	free(m->list_text);
	free(m->is_file);
	free(m->is_good);
	free(m->cfgs);
}

static int run_bundle(const struct call *call, struct rs_err *e)
{
	struct making m = {.failed = 0};
	unsigned n = call->files_n;
	char path[BUNDLE_NAME + 8];
	const char *output = call->value[BUNDLE_OUTPUT];
	int rc;

	m.cfgs = calloc(n + 1, sizeof *m.cfgs);
	m.is_file = calloc(n + 1, sizeof *m.is_file);
	m.is_good = calloc(n + 1, sizeof *m.is_good);
	m.list = open_memstream(&m.list_text, &m.list_n);
	set_name(&m.bundle);
	snprintf(path, sizeof path, "%s.tar.gz", m.bundle.name);
	output = output ? output : path;
	rc = m.cfgs && m.is_file && m.is_good && m.list ? archive_create(&m.bundle.archive, output, e)
							: rs_oom(e, (n + 1) * sizeof *m.is_good, "a bundle");
	if (!rc) {
		make(&m, call);
		rc = archive_close(m.bundle.archive, e);
	}
	if (!rc && m.bundle.no_memory)
		rc = rs_fail(e, RS_ENOMEM, "out of memory: %s is not complete", output);
	if (!rc) {
		printf("%s\n", output);
		rc = m.failed ? COMMAND_FOUND : RS_OK;
	}
	making_close(&m, n);
	return rc;
}

const struct command bundle_command = {
    "support-bundle", FILES_OR_ADDRESSES, "write an archive for those who help: state, events, metrics, settings",
    run_bundle,       bundle_options,     BUNDLE_OPTIONS};
