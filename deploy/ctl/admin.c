/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl drain and reload. */
#include "common/utf8.h"
#include "deploy/ctl/ctl.h"
#include "proto/reduction.pb-c.h"

#include <stdlib.h>

enum drain_option { DRAIN_WITHIN = REDUCERS_OPTIONS, DRAIN_BECAUSE, DRAIN_OPTIONS };

static const struct option drain_options[DRAIN_OPTIONS] = {
    REDUCERS_OPTION_ROWS,
    [DRAIN_WITHIN] = {"within", "SECONDS", "end jobs that still run after this time [timeouts.drain]"},
    [DRAIN_BECAUSE] = {"because", "TEXT", "the reason, for log and status, as in \"maintenance at 20:00\""},
};

static const struct option reload_options[REDUCERS_OPTIONS] = {REDUCERS_OPTION_ROWS};

static void show_drained(struct reducers *a, unsigned reducer, const ProtobufCMessage *answer)
{
	const Reduction__V1__DrainReply *m = (const Reduction__V1__DrainReply *)answer;
	char name[RS_NAME_MAX + RS_ADDRESS_MAX + 4];

	reducers_name(a, reducer, name, sizeof name);
	if (m->jobs)
		printf("%s: %s, %u job%s may go on for %.1f s\n", name, m->already ? "was draining already" : "drains",
		       m->jobs, m->jobs == 1 ? "" : "s", m->left_ms / 1000.0);
	else
		printf("%s: %s, has no jobs and exits\n", name, m->already ? "was draining already" : "drains");
}

static void show_json(struct reducers *a, unsigned reducer, const ProtobufCMessage *answer)
{
	json_answer(a, reducer, answer, stdout);
}

static int run_drain(const struct call *call, struct rs_err *e)
{
	Reduction__V1__DrainRequest request = REDUCTION__V1__DRAIN_REQUEST__INIT;
	struct reducers a;
	double within = 0;
	int rc = take_seconds(call->value[DRAIN_WITHIN], "within", 0.001, 86400, &within, e);

	request.timeout_ms = (uint32_t)(within * 1000);
	if (call->value[DRAIN_BECAUSE])
		request.because = (char *)call->value[DRAIN_BECAUSE];
	if (!rc)
		rc = reducers_open(&a, call, true, e);
	if (rc)
		return rc;
	rc = reducers_all(&a, "/reduction.v1.Control/Drain", &request.base, &reduction__v1__drain_reply__descriptor,
			  call->value[REDUCERS_JSON] ? show_json : show_drained, e);
	reducers_close(&a);
	return rc;
}

static void show_reloaded(struct reducers *a, unsigned reducer, const ProtobufCMessage *answer)
{
	Reduction__V1__ReloadReply *m = (Reduction__V1__ReloadReply *)answer;
	char name[RS_NAME_MAX + RS_ADDRESS_MAX + 4];

	rs_utf8_clean(m->result);
	printf("%s: %s\n", reducers_name(a, reducer, name, sizeof name), m->result);
}

static int run_reload(const struct call *call, struct rs_err *e)
{
	Reduction__V1__ReloadRequest request = REDUCTION__V1__RELOAD_REQUEST__INIT;
	struct reducers a;
	int rc = reducers_open(&a, call, true, e);

	if (rc)
		return rc;
	rc = reducers_all(&a, "/reduction.v1.Control/Reload", &request.base, &reduction__v1__reload_reply__descriptor,
			  call->value[REDUCERS_JSON] ? show_json : show_reloaded, e);
	reducers_close(&a);
	return rc;
}

const struct command drain_command = {
    "drain",   FILE_OR_ADDRESS, "stop reducers; their jobs move to other reducers, as after SIGTERM",
    run_drain, drain_options,   DRAIN_OPTIONS};
const struct command reload_command = {
    "reload",   FILE_OR_ADDRESS, "reload the configuration of reducers, as after SIGHUP",
    run_reload, reload_options,  REDUCERS_OPTIONS};
