/* SPDX-License-Identifier: Apache-2.0 */
/* reductionctl: checks and prints configurations, plans the shard map, and watches and
 * controls reducers. */
#include "deploy/ctl/ctl.h"

#include "common/tls.h"
#include "common/version.h"
#include "config/cluster.h"
#include "config/config.h"
#include "config/schema.h"
#include "config/value.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum exit_status { EXIT_GOOD, EXIT_BAD, EXIT_USAGE, EXIT_FOUND };

enum print_option { PRINT_MEMORY, PRINT_OPTIONS };

static const struct option print_options[PRINT_OPTIONS] = {
    [PRINT_MEMORY] = {"memory", "ROLE", "print only the MemoryMax= that the unit of a server or an agent needs"},
};

/* Beside the memory of its jobs: buffers of connections, threads, the module for gRPC. */
#define SERVER_BESIDE (UINT64_C(1) << 30)
#define AGENT_BESIDE  (UINT64_C(2) << 30)

/* Writes the limit of a daemon's memory as systemd's units have it. */
static int print_memory(const struct rs_config *cfg, const char *role, struct rs_err *e)
{
	uint64_t most;

	if (strcmp(role, "server") == 0)
		most = cfg->server.memory_bytes + SERVER_BESIDE;
	else if (strcmp(role, "agent") == 0)
		most = cfg->agent.shm_bytes + AGENT_BESIDE;
	else
		return rs_fail(e, RS_EINVAL, "--memory: found \"%s\", expected server or agent", role);
	printf("MemoryMax=%" PRIu64 "\n", most);
	return RS_OK;
}

static int run_print(const struct call *call, struct rs_err *e)
{
	struct rs_config cfg;
	int rc = load_config(&cfg, call, e);

	if (rc)
		return rc;
	if (call->value[PRINT_MEMORY])
		rc = print_memory(&cfg, call->value[PRINT_MEMORY], e);
	else
		rs_config_print(&cfg, stdout);
	rs_config_close(&cfg);
	return rc;
}

static int run_reference(const struct call *call, struct rs_err *e)
{
	(void)call;
	(void)e;
	rs_config_reference(stdout);
	return RS_OK;
}

static const struct command own_commands[] = {
    {"print", FILE_OPTIONAL, "print the effective configuration: all keys, with defaults", run_print, print_options,
     PRINT_OPTIONS},
    {"map", FILE_OPTIONAL, "print each reducer's share, and the reducer, lane and relays of each shard", map_run, NULL,
     0},
    {"reference", FILE_NONE, "print the reference of all keys in Markdown", run_reference, NULL, 0},
};
enum { OWN_N = sizeof own_commands / sizeof own_commands[0] };

/* The commands of other files; check comes first. */
static const struct command *const other_commands[] = {
    &plan_command,   &status_command, &events_command, &drain_command, &reload_command, &render_command,
    &doctor_command, &jobs_command,   &bundle_command, &trace_command, &page_command,   &notice_command};
enum { COMMANDS_N = 1 + OWN_N + sizeof other_commands / sizeof other_commands[0] };

static const struct command *command_at(unsigned i)
{
	if (i == 0)
		return &check_command;
	return i <= OWN_N ? &own_commands[i - 1] : other_commands[i - 1 - OWN_N];
}

static const char *file_text(const struct command *c)
{
	static const char *const texts[] = {"",         "[FILE]", "FILE",        "[FILE]",
					    "[TARGET]", "TARGET", "[TARGET]...", "TARGET..."}; /* as enum file_arg */

	return texts[c->file];
}

static void print_usage(FILE *out)
{
	fputs("Usage: reductionctl COMMAND [FILE] [OPTION]...\n\n", out);
	for (unsigned i = 0; i < COMMANDS_N; i++)
		fprintf(out, "  %-14s %-11s  %s\n", command_at(i)->name, file_text(command_at(i)), command_at(i)->help);
	fputs(
	    "\nWithout FILE the defaults are used; - is standard input. TARGET is the HOST:PORT on which a reducer or "
	    "an\n"
	    "agent serves gRPC, unix:PATH of an agent's socket, or a FILE, for all of its reducers. Where one may be "
	    "left\n"
	    "out, REDUCTION_CONFIG (a file) or REDUCTION_REDUCERS (addresses) is the default, but for plan and\n"
	    "support-bundle.\n"
	    "COMMAND --help prints the options of a command, --version the version.\n"
	    "Exit status: 0 success, 1 invalid file or error, 2 wrong usage, 3 doctor has found something, or "
	    "notice a\n"
	    "notice, or a target of support-bundle has not answered.\n",
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

	for (unsigned i = 0; i < COMMANDS_N; i++) {
		const char *name = command_at(i)->name;
		unsigned d = schema_distance(word, name);

		if (d < least && schema_is_near(word, name, d)) {
			least = d;
			nearest = name;
		}
	}
	return fail_usage(word[0] == '-' ? "found unknown option" : "found unknown command", word, nearest);
}

/* Flushes standard output; a failed write, as on a full disk, is an error. */
static int finish_output(void)
{
	errno = 0;
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "reductionctl: cannot write to standard output: %s\n", strerror(errno));
		return EXIT_BAD;
	}
	return EXIT_GOOD;
}

static int wider(int width, const char *text)
{
	int n = text ? (int)strlen(text) : 0;

	return n > width ? n : width;
}

static int print_command_usage(const struct command *c)
{
	int names = 0, args = 0;

	for (unsigned i = 0; i < c->options_n; i++) {
		names = wider(names, c->options[i].name);
		args = wider(args, c->options[i].arg);
	}
	printf("Usage: reductionctl %s%s%s%s\n%s\n", c->name, c->file == FILE_NONE ? "" : " ", file_text(c),
	       c->options_n ? " [OPTION]..." : "", c->help);
	for (unsigned i = 0; i < c->options_n; i++)
		printf("%s  --%-*s %-*s  %s\n", i ? "" : "\n", names, c->options[i].name, args,
		       c->options[i].arg ? c->options[i].arg : "", c->options[i].help);
	return finish_output();
}

/* Reads the option at argv[*i], "--name VALUE" or "--name=VALUE", and moves *i to its
 * last argument. */
static int take_option(const struct command *c, struct call *call, int argc, char **argv, int *i)
{
	const char *name = argv[*i] + 2, *equals = strchr(argv[*i], '=');
	size_t len = equals ? (size_t)(equals - name) : strlen(name);

	for (unsigned o = 0; argv[*i][1] == '-' && o < c->options_n; o++) {
		const struct option *option = &c->options[o];

		if (strlen(option->name) != len || strncmp(option->name, name, len) != 0)
			continue;
		if (equals && !option->arg)
			return fail_usage("found a value where none is taken:", argv[*i], NULL);
		if (!equals && option->arg && *i + 1 == argc)
			return fail_usage("found no value after", argv[*i], NULL);
		call->value[o] = equals ? equals + 1 : option->arg ? argv[++*i] : "";
		return EXIT_GOOD;
	}
	return fail_usage("found unknown option", argv[*i], NULL);
}

/* Refuses a command without the file or address that it needs. */
static int check_target(const struct command *c, const struct call *call)
{
	if (call->file)
		return EXIT_GOOD;
	switch (c->file) {
	case FILE_OR_ENVIRONMENT:
		if (rs_cluster_named())
			return EXIT_GOOD;
		/* fall through */
	case FILE_REQUIRED:
		return fail_usage("found no file, expected one after", c->name, NULL);
	case ADDRESS_OR_ENVIRONMENT:
		if (rs_cluster_named())
			return EXIT_GOOD;
		/* fall through */
	case FILE_OR_ADDRESS:
	case FILES_OR_ADDRESSES_REQUIRED:
		return fail_usage("found neither HOST:PORT nor a file, expected one after", c->name, NULL);
	default:
		return EXIT_GOOD;
	}
}

static int run_command(const struct command *c, int argc, char **argv)
{
	struct call call = {.file = NULL};
	struct rs_err e;
	int rc;

	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return print_command_usage(c);
		if (argv[i][0] == '-' && argv[i][1]) {
			rc = take_option(c, &call, argc, argv, &i);
			if (rc)
				return rc;
		} else if (call.file && c->file >= FILES_OR_ADDRESSES && call.files_n < FILES_MAX) {
			call.files[call.files_n++] = argv[i];
		} else if (call.file || c->file == FILE_NONE) {
			return fail_usage("found one argument too many:", argv[i], NULL);
		} else {
			call.file = call.files[0] = argv[i];
			call.files_n = 1;
		}
	}
	rc = check_target(c, &call);
	if (rc)
		return rc;
	switch (c->run(&call, &e)) {
	case RS_OK:
		return finish_output();
	case COMMAND_FOUND:
		return finish_output() ? EXIT_BAD : EXIT_FOUND;
	case RS_EINVAL:
		fprintf(stderr, "reductionctl: %s\nTry reductionctl %s --help\n", e.msg, c->name);
		return EXIT_USAGE;
	default:
		if (e.msg[0])
			fprintf(stderr, "reductionctl: %s\n", e.msg);
		finish_output();
		return EXIT_BAD;
	}
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
		printf("reductionctl %s, %s\n", RS_VERSION, tls_library());
		return finish_output();
	}
	for (unsigned i = 0; i < COMMANDS_N; i++)
		if (strcmp(argv[1], command_at(i)->name) == 0)
			return run_command(command_at(i), argc - 2, argv + 2);
	return fail_command(argv[1]);
}
