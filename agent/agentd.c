/* SPDX-License-Identifier: Apache-2.0 */
/* reduction-agent: command line, configuration, log. */
#include "agent/agentd.h"
#include "common/version.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

/* What the command line said; NULL: nothing. Strings belong to argv. */
struct cmdline {
	const char *config, *socket, *cpu, *level, *format;
};

static const struct flag {
	const char *name;
	char key;
	const char *arg, *help;
} flags[] = {
    {"config", 'c', "FILE", "YAML file; without it the built-in defaults (reductionctl print shows them)"},
    {"socket", 's', "PATH", "UNIX socket for training processes [/run/reduction/agent.sock]; its directory must exist"},
    {"cpu", 'u', "NAME", "kernels: auto, scalar, avx2, avx512, neon [auto]"},
    {"log-level", 'L', "LEVEL", "error, warn, info, debug or trace [info]"},
    {"log-format", 'F', "FORMAT", "text or json [text]"},
    {"help", 'h', NULL, "this text"},
    {"version", 'V', NULL, "the version"},
};
enum { FLAGS_N = sizeof flags / sizeof flags[0] };

static void usage(FILE *out)
{
	fprintf(
	    out,
	    "Usage: reduction-agent [OPTION]...\n"
	    "Adds up the gradients of this node's training processes and exchanges the sums with the reducers.\n\n");
	for (unsigned i = 0; i < FLAGS_N; i++)
		fprintf(out, "  --%-10s %-7s %s\n", flags[i].name, flags[i].arg ? flags[i].arg : "", flags[i].help);
	fprintf(
	    out,
	    "\nOptions override the file. Root, the agent's user and members of the socket's group may connect.\n"
	    "SIGTERM and SIGINT: no new jobs; running ones may finish (at most timeouts.drain), then their processes\n"
	    "are told that the agent was stopped and it exits; a second signal exits at once.\n"
	    "Exit codes: 0 good, 1 configuration or runtime error, 2 wrong usage.\n");
}

static int bad_usage(const char *what, const char *value, const char *expected)
{
	fprintf(stderr, "reduction-agent: %s: found \"%s\", expected %s\n", what, value, expected);
	return EXIT_USAGE;
}

static int take_flag(struct cmdline *cl, int key, const char *arg)
{
	switch (key) {
	case 'c':
		cl->config = arg;
		return 0;
	case 's':
		cl->socket = arg;
		return 0;
	case 'u':
		cl->cpu = arg;
		return 0;
	case 'L':
		cl->level = arg;
		return rs_log_level_parse(arg) < 0 ? bad_usage("--log-level", arg, "error, warn, info, debug or trace")
						   : 0;
	case 'F':
		cl->format = arg;
		return strcmp(arg, "text") != 0 && strcmp(arg, "json") != 0
			   ? bad_usage("--log-format", arg, "text or json")
			   : 0;
	case 'h':
		usage(stdout);
		exit(EXIT_SUCCESS);
	case 'V':
		printf("reduction-agent %s\n", RS_VERSION);
		exit(EXIT_SUCCESS);
	default:
		fprintf(stderr, "Try 'reduction-agent --help'.\n");
		return EXIT_USAGE;
	}
}

static int parse(struct cmdline *cl, int argc, char **argv)
{
	struct option longs[FLAGS_N + 1] = {0};
	int key, rc = 0;

	for (unsigned i = 0; i < FLAGS_N; i++)
		longs[i] =
		    (struct option){flags[i].name, flags[i].arg ? required_argument : no_argument, NULL, flags[i].key};
	while (!rc && (key = getopt_long(argc, argv, "", longs, NULL)) != -1)
		rc = take_flag(cl, key, optarg);
	if (!rc && optind < argc)
		rc = bad_usage("argument", argv[optind], "options only (see --help)");
	return rc;
}

static int apply(struct rs_config *cfg, const struct cmdline *cl, struct rs_err *e)
{
	if (cl->socket && strlen(cl->socket) >= sizeof cfg->agent.socket)
		return rs_fail(e, RS_ECONFIG, "--socket: the path is longer than %zu bytes",
			       sizeof cfg->agent.socket - 1);
	if (cl->cpu && strlen(cl->cpu) >= sizeof cfg->agent.cpu)
		return rs_fail(e, RS_ECONFIG, "--cpu: found \"%s\", expected auto, scalar, avx2, avx512 or neon",
			       cl->cpu);
	if (cl->socket)
		strcpy(cfg->agent.socket, cl->socket);
	if (cl->cpu)
		strcpy(cfg->agent.cpu, cl->cpu);
	if (cl->level)
		cfg->logging.level = rs_log_level_parse(cl->level);
	if (cl->format)
		cfg->logging.json = strcmp(cl->format, "json") == 0;
	return RS_OK;
}

/* A descriptor for each client and each lane of each job: as many as the system lets us have. */
static void raise_descriptor_limit(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}

int main(int argc, char **argv)
{
	struct cmdline cl = {0};
	struct rs_config cfg;
	struct rs_log log = {.fd = STDERR_FILENO};
	struct rs_err e;
	int rc = parse(&cl, argc, argv);

	if (rc)
		return rc;
	signal(SIGPIPE, SIG_IGN);
	raise_descriptor_limit();
	rc = rs_config_load(&cfg, cl.config, &e);
	if (rc)
		goto fail;
	rc = apply(&cfg, &cl, &e);
	log.level = cfg.logging.level;
	log.json = cfg.logging.json;
	if (!rc)
		rc = agentd_run(&cfg, &log, &e);
	rs_config_close(&cfg);
	if (!rc)
		return EXIT_SUCCESS;
fail:
	fprintf(stderr, "reduction-agent: %s\n", e.msg);
	return EXIT_FAILURE;
}
