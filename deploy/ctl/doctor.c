/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl doctor: why is a job slow? One status of each reducer or agent, judged by
 * the rules of doctor_rules.c.
 */
#include "deploy/ctl/doctor.h"

#include "deploy/ctl/ctl.h"
#include "proto/reduction.pb-c.h"

#include <stdlib.h>

enum doctor_option { DOCTOR_JOB = REDUCERS_OPTIONS, DOCTOR_OPTIONS };

static const struct option doctor_options[DOCTOR_OPTIONS] = {
    REDUCERS_OPTION_ROWS,
    [DOCTOR_JOB] = {"job", "NAME", "only that job"},
};

/* The reducers that are asked, and what was found. */
struct visit {
	struct reducers reducers; /* first, so that a pointer to it is one to the visit */
	struct findings found;
	unsigned jobs;
};

static void take_status(struct reducers *a, unsigned reducer, const ProtobufCMessage *answer)
{
	struct visit *v = (struct visit *)a;
	const Reduction__V1__StatusReply *m = (const Reduction__V1__StatusReply *)answer;
	char name[RS_NAME_MAX + RS_ADDRESS_MAX + 4];

	v->jobs += (unsigned)(m->agent ? m->agent->n_jobs : m->n_jobs);
	reducers_name(a, reducer, name, sizeof name);
	doctor_look(&v->found, m, a->reducers[reducer].name[0] ? a->reducers[reducer].name : name);
}

static void print_text(const struct visit *v)
{
	if (!v->found.n)
		printf(v->jobs
			   ? "Nothing is wrong: no rank is late, no reducer is lost, no limit is reached. If the job "
			     "is slow, its ranks compute most of the time.\n"
			   : "There is no job.\n");
	for (unsigned i = 0; i < v->found.n; i++) {
		const struct finding *f = &v->found.at[i];

		printf("%s%u. %s%s%s%s\n   seen: %s\n   do:   %s\n", i ? "\n" : "", i + 1, f->job[0] ? "job " : "",
		       f->job, f->job[0] ? ": " : "", f->what, f->evidence, f->action);
	}
}

static void print_json(const struct visit *v)
{
	printf("{\"jobs\":%u,\"findings\":[", v->jobs);
	for (unsigned i = 0; i < v->found.n; i++) {
		const struct finding *f = &v->found.at[i];

		printf("%s{\"id\":\"%s\",\"score\":%u,\"job\":", i ? "," : "", f->id, f->score);
		json_string(f->job, stdout);
		fputs(",\"what\":", stdout);
		json_string(f->what, stdout);
		fputs(",\"evidence\":", stdout);
		json_string(f->evidence, stdout);
		fputs(",\"action\":", stdout);
		json_string(f->action, stdout);
		putchar('}');
	}
	fputs("]}\n", stdout);
}

static int run_doctor(const struct call *call, struct rs_err *e)
{
	Reduction__V1__StatusRequest request = REDUCTION__V1__STATUS_REQUEST__INIT;
	struct visit *v = calloc(1, sizeof *v);
	int rc = v ? reducers_open(&v->reducers, call, false, e) : rs_oom(e, 0, "a visit");

	if (rc) {
		free(v);
		return rc;
	}
	if (call->value[DOCTOR_JOB])
		request.job = (char *)call->value[DOCTOR_JOB];
	rc = reducers_all(&v->reducers, "/reduction.v1.Control/Status", &request.base,
			  &reduction__v1__status_reply__descriptor, take_status, e);
	doctor_compare(&v->found);
	if (call->value[REDUCERS_JSON])
		print_json(v);
	else if (!rc || v->found.n)
		print_text(v);
	if (!rc && v->found.n)
		rc = COMMAND_FOUND;
	reducers_close(&v->reducers);
	free(v);
	return rc;
}

const struct command doctor_command = {
    "doctor",   ADDRESS_OR_ENVIRONMENT, "say why jobs are slow, the worst first, and what to do",
    run_doctor, doctor_options,         DOCTOR_OPTIONS};
