/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl check: the checks of config/check, for the roles that a file is made for,
 * and with --connect the answers of its reducers. All machines get the same file. So
 * without --role a named file that is not on this machine, or that this user may not
 * read, is reported but is not an error. */
#include "config/check/check.h"
#include "deploy/ctl/ctl.h"
#include "deploy/ctl/probe.h"

#include <stdlib.h>
#include <string.h>

enum check_option { CHECK_ROLE, CHECK_CONNECT, CHECK_TIMEOUT, CHECK_JSON, CHECK_OPTIONS };

static const struct option check_options[CHECK_OPTIONS] = {
    [CHECK_ROLE] = {"role", "ROLE",
		    "check for server, agent or worker on this machine [what is the same on all machines]"},
    [CHECK_CONNECT] = {"connect", NULL, "connect to each reducer as a worker would, without joining a job"},
    [CHECK_TIMEOUT] = {"timeout", "SECONDS", "time for each reducer to answer [5]"},
    [CHECK_JSON] = {"json", NULL, "print the result as one JSON object"},
};

static const char *const role_words[] = {"server", "agent", "worker"}; /* by bit of enum check_role */
enum { ROLES_N = sizeof role_words / sizeof role_words[0] };

/* Reads --role; 0: it is not given. */
static int take_role(const struct call *call, unsigned *ret, struct rs_err *e)
{
	const char *word = call->value[CHECK_ROLE];

	*ret = 0;
	for (unsigned i = 0; word && i < ROLES_N; i++)
		if (strcmp(word, role_words[i]) == 0)
			*ret = 1U << i;
	if (word && !*ret)
		return rs_fail(e, RS_EINVAL, "--role: found \"%s\", expected server, agent or worker", word);
	if (*ret == CHECK_SERVER && call->value[CHECK_CONNECT])
		return rs_fail(e, RS_EINVAL,
			       "found --connect with --role server, expected agent or worker: a reducer "
			       "connects to no reducer");
	return RS_OK;
}

static int take_timeout(const struct call *call, uint32_t *ret_ms, struct rs_err *e)
{
	double seconds = PROBE_TIMEOUT_MS / 1000.0;
	int rc = take_seconds(call->value[CHECK_TIMEOUT], "timeout", 0.001, 3600, &seconds, e);

	*ret_ms = (uint32_t)(seconds * 1000);
	if (call->value[CHECK_TIMEOUT] && !call->value[CHECK_CONNECT])
		return rs_fail(e, RS_EINVAL, "found --timeout without --connect, expected both");
	return rc;
}

static void print_text(const struct check *c, unsigned roles, const struct probe *probes)
{
	char text[sizeof c->name + sizeof c->lines->what.msg + 64];

	for (unsigned i = 0; i < c->lines_n; i++) {
		bool problem = c->lines[i].severity <= CHECK_WARNING;

		check_text(c, &c->lines[i], text, sizeof text);
		fprintf(problem ? stderr : stdout, "%s%s\n", problem ? "reductionctl: " : "", text);
	}
	for (unsigned i = 0; probes && i < c->cfg->reducers_n; i++)
		if (!probes[i].why.code)
			printf("reducer %s (%s): %s, answered in %.3f ms%s%s\n", c->cfg->reducers[i].id,
			       probes[i].address, probes[i].software, probes[i].round_trip_s * 1e3,
			       probes[i].proven ? ", has the job's secret" : "", probes[i].secure ? ", TLS" : "");
	if (!c->errors)
		check_print_good(c, roles, stdout);
}

static void print_json_reducers(const struct check *c, const struct probe *probes)
{
	for (unsigned i = 0; probes && i < c->cfg->reducers_n; i++) {
		const struct probe *p = &probes[i];

		printf("%s{\"id\":", i ? "," : "");
		json_string(c->cfg->reducers[i].id, stdout);
		fputs(",\"address\":", stdout);
		json_string(p->address, stdout);
		printf(",\"ok\":%s,", p->why.code ? "false" : "true");
		if (p->why.code) {
			fputs("\"message\":", stdout);
			json_string(p->why.msg, stdout);
		} else {
			fputs("\"software\":", stdout);
			json_string(p->software, stdout);
			printf(",\"round_trip_ms\":%.3f,\"tls\":%s,\"proven\":%s", p->round_trip_s * 1e3,
			       p->secure ? "true" : "false", p->proven ? "true" : "false");
		}
		putchar('}');
	}
}

static void print_json(const struct check *c, unsigned role, unsigned roles, const struct probe *probes)
{
	static const char *const severities[] = {"error", "warning", "note"}; /* as enum check_severity */
	bool first = true;

	fputs("{\"role\":", stdout);
	if (role)
		json_string(role_words[__builtin_ctz(role)], stdout);
	else
		fputs("null", stdout);
	fputs(",\"roles\":[", stdout);
	for (unsigned i = 0; i < ROLES_N; i++)
		if (roles >> i & 1) {
			printf("%s\"%s\"", first ? "" : ",", role_words[i]);
			first = false;
		}
	fputs("],\"file\":", stdout);
	json_string(c->name, stdout);
	printf(",\"ok\":%s,\"problems\":[", c->errors ? "false" : "true");
	first = true;
	for (unsigned i = 0; i < c->lines_n; i++) {
		const struct check_line *l = &c->lines[i];

		if (l->severity == CHECK_FACT)
			continue;
		printf("%s{\"severity\":\"%s\",\"key\":", first ? "" : ",", severities[l->severity]);
		json_string(l->key, stdout);
		if (l->line)
			printf(",\"line\":%u,\"message\":", l->line);
		else
			fputs(",\"line\":null,\"message\":", stdout);
		json_string(l->what.msg, stdout);
		putchar('}');
		first = false;
	}
	fputs("],\"reducers\":[", stdout);
	print_json_reducers(c, probes);
	fputs("]}\n", stdout);
}

static void check_roles(struct check *c, struct rs_config *cfg, unsigned roles)
{
	struct rs_err e;

	if (roles & CHECK_SERVER)
		check_server(c);
	if (roles & CHECK_AGENT)
		check_agent(c);
	if (roles & CHECK_WORKER)
		check_worker(c);
	/* the daemons and workers read it too */
	if (!c->elsewhere && rs_config_take_log_level(cfg, &e))
		check_add_other(c, "REDUCTION_LOG", &e);
}

/* Connects to the reducers, and adds an error for each that does not answer as it should.
 * *ret is NULL after an error; the caller frees it. */
static int connect_all(struct check *c, uint32_t timeout_ms, struct probe **ret, struct rs_err *e)
{
	const struct rs_config *cfg = c->cfg;
	int rc = probe_all(ret, cfg, timeout_ms, e);
	unsigned good = 0;

	for (unsigned i = 0; !rc && i < cfg->reducers_n; i++)
		good += !(*ret)[i].why.code;
	for (unsigned i = 0; !rc && i < cfg->reducers_n; i++) {
		struct rs_err *why = &(*ret)[i].why;

		if (!why->code)
			continue;
		rs_wrap(why, "reducer %s (%s)", cfg->reducers[i].id, (*ret)[i].address);
		if (rs_config_has_slots(cfg) && good >= cfg->job.min_reducers)
			rs_wrap(why, "its slot may be empty");
		check_add(c, rs_config_has_slots(cfg) && good >= cfg->job.min_reducers ? CHECK_NOTE : CHECK_ERROR,
			  "reducers", (int)i, cfg->job.grpc ? "grpc" : "address", why);
	}
	return rc;
}

/* Without a file the configuration is that of the environment. */
static bool load_checked(struct check *c, const struct call *call, struct rs_config *ret)
{
	const char *file = call->file ? call->file : getenv("REDUCTION_CONFIG"), *list = getenv("REDUCTION_REDUCERS");
	struct rs_cluster cluster;

	if (call->file || !list || !*list)
		return check_load(c, ret, file, true);
	return check_load_cluster(c, ret, RS_CLUSTER_WORKER, &cluster);
}

static int run_check(const struct call *call, struct rs_err *e)
{
	struct probe *probes = NULL;
	unsigned role, roles;
	uint32_t timeout_ms;
	struct rs_config cfg;
	struct check c;
	int rc = take_role(call, &role, e);
	bool loaded;

	if (!rc)
		rc = take_timeout(call, &timeout_ms, e);
	if (rc)
		return rc;
	if (!role && call->value[CHECK_CONNECT])
		role = CHECK_WORKER;

	roles = role;
	check_init(&c);
	loaded = load_checked(&c, call, &cfg);
	if (loaded) {
		c.elsewhere = !role;
		c.connects = call->value[CHECK_CONNECT] != NULL;
		roles = role ? role : check_roles_of(&c);
		check_roles(&c, &cfg, roles);
		if (call->value[CHECK_CONNECT] && !c.errors)
			rc = connect_all(&c, timeout_ms, &probes, e);
	}
	if (!rc && call->value[CHECK_JSON])
		print_json(&c, role, roles, probes);
	else if (!rc)
		print_text(&c, roles, probes);
	if (!rc && c.no_memory)
		rc = rs_oom(e, 0, "the result");
	else if (!rc && c.errors)
		rc = rs_fail(e, RS_ECONFIG, "%s", "");

	free(probes);
	if (loaded)
		rs_config_close(&cfg);
	check_close(&c);
	return rc;
}

const struct command check_command = {"check",   FILE_OR_ENVIRONMENT, "check a configuration file and what it names",
				      run_check, check_options,       CHECK_OPTIONS};
