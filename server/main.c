/* SPDX-License-Identifier: Apache-2.0 */
/* reduction-server: command line, configuration, log. */
#include "common/version.h"
#include "server/server_uv.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_USAGE = 2 };

/* What the command line said; NULL or 0: nothing. Strings belong to argv. */
struct cmdline {
	const char *config, *listen, *cpu, *level, *format;
	unsigned lanes;
	bool insecure;
};

static const struct flag {
	const char *name;
	char key;
	const char *arg, *help;
} flags[] = {
    {"config", 'c', "FILE", "YAML file; without it the built-in defaults (reductionctl print shows them)"},
    {"listen", 'l', "HOST:PORT", "address workers connect to [127.0.0.1:7600]; port 0: any free one, see the log"},
    {"lanes", 'n', "N", "threads that sum, 1 to 64 [one for each CPU, at most 8]"},
    {"cpu", 'u', "NAME", "kernels: auto, scalar, avx2, avx512, neon [auto]"},
    {"insecure", 'i', NULL, "listen on other addresses than loopback although there is no authentication"},
    {"log-level", 'L', "LEVEL", "error, warn, info, debug or trace [info]"},
    {"log-format", 'F', "FORMAT", "text or json [text]"},
    {"help", 'h', NULL, "this text"},
    {"version", 'V', NULL, "the version"},
};
enum { FLAGS_N = sizeof flags / sizeof flags[0] };

static void usage(FILE *out)
{
	fprintf(out, "Usage: reduction-server [OPTION]...\n"
		     "Receives gradient shards from workers, sums them and sends the sums back.\n\n");
	for (unsigned i = 0; i < FLAGS_N; i++)
		fprintf(out, "  --%-10s %-10s %s\n", flags[i].name, flags[i].arg ? flags[i].arg : "", flags[i].help);
	fprintf(out,
		"\nOptions override the file. SIGTERM and SIGINT: finish running jobs (at most timeouts.drain),\n"
		"then exit; a second one exits at once. SIGHUP: read logging.level and limits from the file again.\n"
		"Exit codes: 0 good, 1 configuration or runtime error, 2 wrong usage.\n");
}

static int bad_usage(const char *what, const char *value, const char *expected)
{
	fprintf(stderr, "reduction-server: %s: found \"%s\", expected %s\n", what, value, expected);
	return EXIT_USAGE;
}

static int take_flag(struct cmdline *cl, int key, const char *arg)
{
	char *end;
	unsigned long n;

	switch (key) {
	case 'c':
		cl->config = arg;
		return 0;
	case 'l':
		cl->listen = arg;
		return 0;
	case 'u':
		cl->cpu = arg;
		return 0;
	case 'i':
		cl->insecure = true;
		return 0;
	case 'n':
		n = strtoul(arg, &end, 10);
		if (*end || end == arg || n < 1 || n > RS_LANES_MAX)
			return bad_usage("--lanes", arg, "a number from 1 to 64");
		cl->lanes = (unsigned)n;
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
		printf("reduction-server %s\n", RS_VERSION);
		exit(EXIT_SUCCESS);
	default:
		fprintf(stderr, "Try 'reduction-server --help'.\n");
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
	if (cl->listen && strlen(cl->listen) >= sizeof cfg->server.listen)
		return rs_fail(e, RS_ECONFIG, "--listen: the address is longer than %zu bytes",
			       sizeof cfg->server.listen - 1);
	if (cl->cpu && strlen(cl->cpu) >= sizeof cfg->server.cpu)
		return rs_fail(e, RS_ECONFIG, "--cpu: found \"%s\", expected auto, scalar, avx2, avx512 or neon",
			       cl->cpu);
	if (cl->listen)
		strcpy(cfg->server.listen, cl->listen);
	if (cl->cpu)
		strcpy(cfg->server.cpu, cl->cpu);
	if (cl->lanes)
		cfg->server.lanes = cl->lanes;
	if (cl->insecure)
		cfg->security.insecure = true;
	if (cl->level)
		cfg->logging.level = rs_log_level_parse(cl->level);
	if (cl->format)
		cfg->logging.json = strcmp(cl->format, "json") == 0;
	return RS_OK;
}

int main(int argc, char **argv)
{
	struct cmdline cl = {0};
	struct rs_config cfg, as_read;
	struct rs_log log = {.fd = STDERR_FILENO};
	struct server *server;
	struct rs_err e;
	int rc = parse(&cl, argc, argv);

	if (rc)
		return rc;
	signal(SIGPIPE, SIG_IGN);
	rc = rs_config_load(&cfg, cl.config, &e);
	if (rc)
		goto fail;
	as_read = cfg;
	rc = apply(&cfg, &cl, &e);
	log.level = cfg.logging.level;
	log.json = cfg.logging.json;
	if (!rc)
		rc = server_init(
		    &server,
		    &(struct server_options){.cfg = &cfg, .config_file = cl.config, .as_read = &as_read, .log = &log},
		    &e);
	if (rc) {
		rs_config_close(&cfg);
		goto fail;
	}
	server_run(server);
	server_close(server);
	rs_log(&log, RS_LOG_INFO, "stopped", rs_kv_s("result", "clean"));
	rs_config_close(&cfg);
	return EXIT_SUCCESS;

fail:
	fprintf(stderr, "reduction-server: %s\n", e.msg);
	return EXIT_FAILURE;
}
