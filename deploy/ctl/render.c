/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl render: jobs of managed services with reducers. */
#include "deploy/ctl/render/render.h"

#include "config/config.h"
#include "config/schema.h"
#include "config/value.h"
#include "deploy/ctl/ctl.h"

#include <stdlib.h>
#include <string.h>

enum render_option {
	RENDER_VERTEX,
	RENDER_GCLOUD,
	RENDER_SDK,
	RENDER_COUNT,
	RENDER_REPLICA_COUNT,
	RENDER_MACHINE,
	RENDER_IMAGE,
	RENDER_CONTAINER,
	RENDER_BANDWIDTH,
	RENDER_REDUCER_BANDWIDTH,
	RENDER_PRICE_WORKER,
	RENDER_PRICE_REDUCER,
	RENDER_SECRET,
	RENDER_MACHINES
};

static const struct option render_command_options[] = {
    [RENDER_VERTEX] = {"vertex", NULL, "FILE is a CustomJob of Vertex AI; print it with the reducers as worker pool 2"},
    [RENDER_GCLOUD] = {"gcloud", NULL, "print the command that creates the job instead"},
    [RENDER_SDK] = {"sdk", NULL, "print the arguments of the Python SDK instead"},
    [RENDER_COUNT] = {"reduction-server-count", "N", "reducers [so many that their links are as fast as the workers']"},
    [RENDER_REPLICA_COUNT] = {"reduction-server-replica-count", "N", "the same"},
    [RENDER_MACHINE] = {"reduction-server-machine-type", "TYPE", "machine type of reducers [n1-highcpu-16]"},
    [RENDER_IMAGE] = {"reduction-server-image", "URI", "image with reduction-server"},
    [RENDER_CONTAINER] = {"reduction-server-container-uri", "URI", "the same"},
    [RENDER_BANDWIDTH] = {"bandwidth", "RATE", "each worker's link: 100gbit [of its machine type]"},
    [RENDER_REDUCER_BANDWIDTH] = {"reducer-bandwidth", "RATE", "each reducer's link [of its machine type]"},
    [RENDER_PRICE_WORKER] = {"price-worker", "PRICE", "of a worker's machine for an hour"},
    [RENDER_PRICE_REDUCER] = {"price-reducer", "PRICE", "of a reducer's machine for an hour [0]"},
    [RENDER_SECRET] = {"secret", "PATH", "file with the job's secret in all replicas; sets REDUCTION_SECRET"},
    [RENDER_MACHINES] = {"machines", "FILE", "bandwidths of machine types, as machines: {n1-highcpu-16: 32gbit}"},
};
_Static_assert(sizeof render_command_options / sizeof render_command_options[0] <= OPTIONS_MAX,
	       "struct call has room for the options");

/* Reads an option like a key of a configuration file into the field of the struct at
 * base. */
static int take(const struct call *call, enum render_option option, const char *section, const char *name, void *base,
		struct rs_err *e)
{
	const struct schema_key *key = schema_find(section, name);
	char expected[160];

	if (!call->value[option] || value_parse(key, call->value[option], base))
		return RS_OK;
	value_expected(key, expected, sizeof expected);
	return rs_fail(e, RS_EINVAL, "--%s: found \"%s\", expected %s", render_command_options[option].name,
		       call->value[option], expected);
}

static int take_options(const struct call *call, struct render_options *ret, struct rs_err *e)
{
	const char *const *v = call->value;
	struct rs_config cfg = {.reducers = NULL};
	struct rs_reducer reducer = {.bandwidth = 0};
	int rc = take(call, RENDER_BANDWIDTH, "plan", "bandwidth", &cfg, e);

	if (!rc)
		rc = take(call, RENDER_PRICE_WORKER, "plan", "price_worker", &cfg, e);
	if (!rc)
		rc = take(call, RENDER_PRICE_REDUCER, "plan", "price_reducer", &cfg, e);
	if (!rc)
		rc = take(call, RENDER_REDUCER_BANDWIDTH, "reducers", "bandwidth", &reducer, e);
	if (!rc)
		rc = take_number(v[RENDER_COUNT], render_command_options[RENDER_COUNT].name, 1, RS_REDUCERS_MAX,
				 &ret->count, e);
	if (!rc)
		rc = take_number(v[RENDER_REPLICA_COUNT], render_command_options[RENDER_REPLICA_COUNT].name, 1,
				 RS_REDUCERS_MAX, &ret->count, e);
	ret->machine_type = v[RENDER_MACHINE];
	ret->image = v[RENDER_IMAGE] ? v[RENDER_IMAGE] : v[RENDER_CONTAINER];
	ret->worker_rate = cfg.plan.bandwidth;
	ret->reducer_rate = reducer.bandwidth;
	ret->price_worker = cfg.plan.price_worker;
	ret->price_reducer = cfg.plan.price_reducer;
	ret->secret = v[RENDER_SECRET];
	return rc;
}

static int read_machines(const struct call *call, struct render_machines *ret, struct rs_err *e)
{
	const char *file = call->value[RENDER_MACHINES];
	char *text;
	size_t len;
	int rc = rs_config_read(&text, &len, file, e);

	if (rc)
		return rc;
	rc = render_machines_read(ret, file, text, len, e);
	free(text);
	return rc;
}

/* Reads the job and prints it. */
static int render_job(const struct call *call, const struct render_options *options, struct rs_err *e)
{
	struct render r;
	char *text;
	size_t len;
	int rc = rs_config_read(&text, &len, strcmp(call->file, "-") == 0 ? NULL : call->file, e);

	if (rc)
		return rc;
	rc = render_read(&r, options, file_name(call), text, len, e);
	free(text);
	if (rc)
		return rc;
	if (call->value[RENDER_SDK])
		rc = render_sdk(&r, stdout, e);
	else if (call->value[RENDER_GCLOUD])
		rc = render_gcloud(&r, stdout, e);
	else
		render_yaml(&r, stdout);
	if (!rc)
		render_explain(&r, stderr);
	render_close(&r);
	return rc;
}

static int run_render(const struct call *call, struct rs_err *e)
{
	struct render_options options = {.count = 0};
	struct render_machines machines;
	int rc = take_options(call, &options, e);

	if (!rc && !call->value[RENDER_VERTEX])
		rc = rs_fail(e, RS_EINVAL, "found no kind of job, expected --vertex");
	if (!rc && call->value[RENDER_GCLOUD] && call->value[RENDER_SDK])
		rc = rs_fail(e, RS_EINVAL, "found --gcloud and --sdk, expected one of them");
	if (!rc && call->value[RENDER_MACHINES]) {
		rc = read_machines(call, &machines, e);
		options.machines = rc ? NULL : &machines;
	}
	if (!rc)
		rc = render_job(call, &options, e);
	if (options.machines)
		render_machines_close(&machines);
	return rc;
}

const struct command render_command = {
    "render",   FILE_REQUIRED,          "print a managed job (--vertex) with its reducers filled in",
    run_render, render_command_options, sizeof render_command_options / sizeof render_command_options[0]};
