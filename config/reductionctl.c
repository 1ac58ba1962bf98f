/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl: checks and shows configurations. */
#include "common/version.h"
#include "config/config.h"
#include "config/schema.h"
#include "config/value.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum exit_status { EXIT_GOOD, EXIT_BAD, EXIT_USAGE };

enum file_arg { FILE_NONE, FILE_OPTIONAL, FILE_REQUIRED };

struct command {
	const char *name;
	enum file_arg file;
	const char *help;
	/* file is NULL when none was given. Writes to standard output; errors to *e. */
	int (*run)(const char *file, struct rs_err *e);
};

static int run_check(const char *file, struct rs_err *e)
{
	char chunk[32], flight[32];
	struct rs_config cfg;
	unsigned lanes = 0;
	int rc;

	rc = rs_config_load(&cfg, file, e);
	if (rc)
		return rc;
	for (unsigned i = 0; i < cfg.reducers_n; i++)
		lanes += cfg.reducers[i].lanes;
	value_format_bytes(cfg.sharding.chunk_bytes, chunk, sizeof chunk);
	value_format_bytes((uint64_t)lanes * cfg.sharding.window * cfg.sharding.chunk_bytes, flight, sizeof flight);
	printf(
	    "%s: ok: %u reducer%s with %u lane%s, %u shard%s, chunks of %s, window %u, at most %s in flight a worker\n",
	    file, cfg.reducers_n, cfg.reducers_n == 1 ? "" : "s", lanes, lanes == 1 ? "" : "s", cfg.sharding.shards,
	    cfg.sharding.shards == 1 ? "" : "s", chunk, cfg.sharding.window, flight);
	rs_config_close(&cfg);
	return RS_OK;
}

static int run_print(const char *file, struct rs_err *e)
{
	struct rs_config cfg;
	int rc = rs_config_load(&cfg, file, e);

	if (rc)
		return rc;
	rs_config_print(&cfg, stdout);
	rs_config_close(&cfg);
	return RS_OK;
}

/* One line for each reducer: how many shards, which part of all, its weight. */
static void print_shares(const struct rs_config *cfg)
{
	printf("%-20s %-24s %6s %7s %6s\n", "reducer", "address", "shards", "share", "lanes");
	for (unsigned i = 0; i < cfg->reducers_n; i++) {
		unsigned shards = 0;

		for (unsigned s = 0; s < cfg->sharding.shards; s++)
			shards += cfg->sharding.owner[s] == i;
		printf("%-20s %-24s %6u %6.2f%% %6u\n", cfg->reducers[i].id, cfg->reducers[i].address, shards,
		       100.0 * shards / cfg->sharding.shards, cfg->reducers[i].lanes);
	}
}

static int run_map(const char *file, struct rs_err *e)
{
	struct rs_config cfg;
	int rc = rs_config_load(&cfg, file, e);

	if (rc)
		return rc;
	print_shares(&cfg);
	printf("\n%5s  %-20s %4s\n", "shard", "reducer", "lane");
	for (unsigned s = 0; s < cfg.sharding.shards; s++)
		printf("%5u  %-20s %4u\n", s, cfg.reducers[cfg.sharding.owner[s]].id, rs_config_lane(&cfg, s));
	rs_config_close(&cfg);
	return RS_OK;
}

static int run_reference(const char *file, struct rs_err *e)
{
	(void)file;
	(void)e;
	rs_config_reference(stdout);
	return RS_OK;
}

static const struct command commands[] = {
    {"check", FILE_REQUIRED, "say whether a configuration file is good, and where it is not", run_check},
    {"print", FILE_OPTIONAL, "print the configuration in effect: all keys, defaults included", run_print},
    {"map", FILE_OPTIONAL, "print each reducer's share, and the reducer and lane of each shard", run_map},
    {"reference", FILE_NONE, "print what every key is for, in Markdown", run_reference},
};
static const unsigned commands_n = sizeof commands / sizeof commands[0];

static const char *file_text(const struct command *c)
{
	return c->file == FILE_NONE ? "" : c->file == FILE_REQUIRED ? "FILE" : "[FILE]";
}

static void print_usage(FILE *out)
{
	fputs("Usage: reductionctl COMMAND [FILE]\n\n", out);
	for (unsigned i = 0; i < commands_n; i++)
		fprintf(out, "  %-9s %-6s  %s\n", commands[i].name, file_text(&commands[i]), commands[i].help);
	fputs("\nWithout FILE the defaults are used. --help prints this, --version the version.\n"
	      "Exit status: 0 good, 1 a bad file or an error, 2 wrong usage.\n",
	      out);
}

static int fail_usage(const char *fmt, const char *word, const char *nearest)
{
	fputs("reductionctl: ", stderr);
	fprintf(stderr, "%s \"%s\"", fmt, word);
	if (nearest)
		fprintf(stderr, ", did you mean %s?", nearest);
	fputs("\nTry reductionctl --help\n", stderr);
	return EXIT_USAGE;
}

static int fail_command(const char *word)
{
	const char *nearest = NULL;
	unsigned least = UINT_MAX;

	for (unsigned i = 0; i < commands_n; i++) {
		unsigned d = schema_distance(word, commands[i].name);

		if (d < least && schema_is_near(word, commands[i].name, d)) {
			least = d;
			nearest = commands[i].name;
		}
	}
	return fail_usage(word[0] == '-' ? "found unknown option" : "found unknown command", word, nearest);
}

/* What was printed counts only when it has arrived: a full disk is an error. */
static int finish_output(void)
{
	errno = 0;
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "reductionctl: cannot write to standard output: %s\n", strerror(errno));
		return EXIT_BAD;
	}
	return EXIT_GOOD;
}

static int run_command(const struct command *c, int argc, char **argv)
{
	struct rs_err e;

	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			printf("Usage: reductionctl %s %s\n%s\n", c->name, file_text(c), c->help);
			return finish_output();
		}
		if (argv[i][0] == '-' && argv[i][1])
			return fail_usage("found unknown option", argv[i], NULL);
	}
	if (argc > (c->file == FILE_NONE ? 0 : 1))
		return fail_usage("found one argument too many:", argv[argc - 1], NULL);
	if (argc == 0 && c->file == FILE_REQUIRED)
		return fail_usage("found no file, expected one after", c->name, NULL);
	if (c->run(argc ? argv[0] : NULL, &e)) {
		fprintf(stderr, "reductionctl: %s\n", e.msg);
		return EXIT_BAD;
	}
	return finish_output();
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		print_usage(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_usage(stdout);
		return finish_output();
	}
	if (strcmp(argv[1], "--version") == 0) {
		printf("reductionctl %s\n", RS_VERSION);
		return finish_output();
	}
	for (unsigned i = 0; i < commands_n; i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return run_command(&commands[i], argc - 2, argv + 2);
	return fail_command(argv[1]);
}
