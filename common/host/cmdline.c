/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/cmdline.h"

#include "common/address.h"
#include "common/log.h"
#include "common/tls.h"
#include "common/version.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STATUS_CONFIG = 1, STATUS_USAGE = 2 };

static int take_nothing(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	(void)cfg;
	(void)arg;
	(void)e;
	return RS_OK;
}

static int take_level(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	int level = rs_log_level_parse(arg);

	if (level < 0)
		return rs_fail(e, RS_EINVAL, "found \"%s\", expected error, warn, info, debug or trace", arg);
	cfg->logging.level = level;
	return RS_OK;
}

static int take_format(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	if (strcmp(arg, "text") != 0 && strcmp(arg, "json") != 0)
		return rs_fail(e, RS_EINVAL, "found \"%s\", expected text or json", arg);
	cfg->logging.json = strcmp(arg, "json") == 0;
	return RS_OK;
}

static int take_paranoid(struct rs_config *cfg, const char *arg, struct rs_err *e)
{
	(void)arg;
	(void)e;
	cfg->paranoid = true;
	return RS_OK;
}

/* Options that apply() handles itself; they change no configuration. */
enum { CONFIG, CHECK, HELP, VERSION };
static const struct cmdline_flag common_flags[] = {
    [CONFIG] = {"config", "FILE", "YAML file [none: built-in defaults; reductionctl print shows them]", take_nothing},
    [CHECK] = {"check", NULL, "check the configuration and what it names, and exit; a running daemon is not disturbed",
	       take_nothing},
    [HELP] = {"help", NULL, "print this and exit", take_nothing},
    [VERSION] = {"version", NULL, "print the version and exit", take_nothing},
    {"log-level", "LEVEL", "error, warn, info, debug or trace [info]", take_level},
    {"log-format", "FORMAT", "text or json [text]", take_format},
    {"paranoid", NULL, "check all invariants after each turn of a loop, and abort if one is broken; slow [off]",
     take_paranoid},
};
enum { COMMON_N = sizeof common_flags / sizeof common_flags[0] };

static const struct cmdline_flag *flag_at(const struct cmdline *cl, unsigned i)
{
	return i < COMMON_N ? &common_flags[i] : &cl->flags[i - COMMON_N];
}

static void usage(const struct cmdline *cl)
{
	printf("Usage: %s [OPTION]...\n%s\n\n", cl->program, cl->purpose);
	for (unsigned i = 0; i < COMMON_N + cl->flags_n; i++)
		printf("  %s--%-10s %-10s %s\n", i == HELP ? "-h, " : "    ", flag_at(cl, i)->name,
		       flag_at(cl, i)->arg ? flag_at(cl, i)->arg : "", flag_at(cl, i)->help);
	printf("\nValues in [brackets] are defaults. Options override the file.\n%s"
	       "Exit codes: 0 success, 1 configuration or runtime error, 2 wrong usage.\n",
	       cl->notes);
}

static bool fail(const struct cmdline *cl, const char *msg, int status, int *ret_status)
{
	fprintf(stderr, "%s%s: %s\n", rs_log_priority(RS_LOG_ERROR, rs_log_is_journal(STDERR_FILENO)), cl->program,
		msg);
	*ret_status = status;
	return false;
}

/* What argv says beyond the configuration. */
struct told {
	const char *file;
	bool check;
	bool without_cluster;
};

/* Parses argv once. False: stop, after --help, --version or an error. */
static bool apply(const struct cmdline *cl, int argc, char **argv, struct rs_config *cfg, struct told *told,
		  int *ret_status)
{
	struct option longs[COMMON_N + CMDLINE_FLAGS_MAX + 1] = {0};
	struct rs_err e;
	char msg[sizeof e.msg + 64];
	int i, rc;

	for (unsigned k = 0; k < COMMON_N + cl->flags_n; k++)
		longs[k] = (struct option){flag_at(cl, k)->name, flag_at(cl, k)->arg ? required_argument : no_argument,
					   NULL, (int)k};
	optind = 0; /* makes glibc's getopt_long start again */
	while ((i = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		if (i == 'h')
			i = HELP;
		if (i == '?') {
			fprintf(stderr, "Try '%s --help'.\n", cl->program);
			*ret_status = STATUS_USAGE;
			return false;
		}
		*ret_status = EXIT_SUCCESS;
		if (i == HELP)
			usage(cl);
		else if (i == VERSION)
			printf("%s %s, %s\n", cl->program, RS_VERSION, tls_library());
		if (i == HELP || i == VERSION)
			return false;
		if (i == CONFIG)
			told->file = optarg;
		told->check |= i == CHECK;
		told->without_cluster |=
		    cl->without_cluster && strcmp(flag_at(cl, (unsigned)i)->name, cl->without_cluster) == 0;
		rc = flag_at(cl, (unsigned)i)->take(cfg, optarg, &e);
		if (rc == RS_EINVAL)
			snprintf(msg, sizeof msg, "--%s: %s", flag_at(cl, (unsigned)i)->name, e.msg);
		if (rc)
			return fail(cl, rc == RS_EINVAL ? msg : e.msg, rc == RS_EINVAL ? STATUS_USAGE : STATUS_CONFIG,
				    ret_status);
	}
	if (optind >= argc)
		return true;

	snprintf(msg, sizeof msg, "argument: found \"%.256s\", expected options only (see --help)", argv[optind]);
	return fail(cl, msg, STATUS_USAGE, ret_status);
}

/* Prints the lines of a check: problems as errors are printed, and for --check what is
 * good. Returns the exit status.
 */
static int print_check(const struct cmdline *cl, const struct check *c, bool all)
{
	const char *priority = rs_log_priority(RS_LOG_ERROR, rs_log_is_journal(STDERR_FILENO));
	char text[sizeof c->name + sizeof c->lines->what.msg + 64];

	for (unsigned i = 0; i < c->lines_n; i++) {
		enum check_severity severity = c->lines[i].severity;

		check_text(c, &c->lines[i], text, sizeof text);
		if (severity == CHECK_ERROR || (all && severity == CHECK_WARNING))
			fprintf(stderr, "%s%s: %s\n", priority, cl->program, text);
		else if (all)
			printf("%s\n", text);
	}
	if (c->no_memory && (all || c->errors))
		fprintf(stderr, "%s%s: out of memory: this list is not complete\n", priority, cl->program);
	if (all && !c->errors)
		check_print_good(c, cl->role, stdout);
	return c->errors ? STATUS_CONFIG : EXIT_SUCCESS;
}

/* Reads the file, else the environment, else takes the defaults. Returns whether st->cfg
 * is set. */
static bool find_config(const struct cmdline *cl, struct cmdline_start *st, struct check *c, const struct told *told)
{
	if (st->file || told->without_cluster)
		return check_load(c, &st->cfg, st->file, false);
	return check_load_cluster(c, &st->cfg, cl->cluster_role, &st->cluster);
}

/* Reads the file and the command line again, and checks what they say. Returns whether
 * st->cfg is set. */
static bool load(const struct cmdline *cl, int argc, char **argv, struct cmdline_start *st, struct check *c,
		 struct told *told, int *ret_status)
{
	struct rs_err e;

	*ret_status = STATUS_CONFIG;
	if (!find_config(cl, st, c, told))
		return false;
	st->as_read = st->cfg;
	st->as_read.reducers = NULL;
	st->as_read.sharding.owner = NULL;
	st->as_read.groups = NULL;
	st->as_read.groups_n = 0;
	st->as_read.relays = NULL;
	c->as_read = &st->as_read;
	if (rs_config_take_log_level(&st->cfg, &e))
		check_add_other(c, "REDUCTION_LOG", &e);
	if (!apply(cl, argc, argv, &st->cfg, told, ret_status)) {
		rs_config_close(&st->cfg);
		return false;
	}
	(told->check ? cl->check : cl->refuses)(c);
	return true;
}

bool cmdline_start(const struct cmdline *cl, int argc, char **argv, struct cmdline_start *ret, int *ret_status)
{
	struct cmdline_start st = {0};
	struct told told = {0};
	struct check c;
	struct rs_err e;
	bool good, loaded;

	/* first applied to the defaults, so that wrong usage is reported before a file is
	 * read */
	if (rs_config_load(&st.cfg, NULL, &e))
		return fail(cl, e.msg, STATUS_CONFIG, ret_status);
	good = apply(cl, argc, argv, &st.cfg, &told, ret_status);
	rs_config_close(&st.cfg);
	if (!good)
		return false;
	st.file = told.file;
	check_init(&c);
	loaded = load(cl, argc, argv, &st, &c, &told, ret_status);
	if (loaded || c.errors)
		*ret_status = print_check(cl, &c, told.check);
	good = loaded && !c.errors && !told.check;
	if (loaded && !good)
		rs_config_close(&st.cfg);
	check_close(&c);
	if (good)
		*ret = st;
	return good;
}

void cmdline_log_source(const struct cmdline_start *st, const struct rs_log *log)
{
	const struct rs_cluster *c = &st->cluster;

	if (!c->variable)
		rs_log(log, RS_LOG_INFO, "configuration", rs_kv_s("source", st->file ? st->file : "defaults"));
	else if (!c->workers)
		rs_log(log, RS_LOG_INFO, "configuration", rs_kv_s("source", c->variable),
		       rs_kv_u("reducers", c->reducers));
	else
		rs_log(log, RS_LOG_INFO, "configuration", rs_kv_s("source", c->variable), rs_kv_u("index", c->index),
		       rs_kv_u("workers", c->workers), rs_kv_u("reducers", c->reducers), rs_kv_s("run", c->run));
	rs_cluster_warn(c, log);
}

int cmdline_string(char *to, size_t size, const char *option, const char *arg, struct rs_err *e)
{
	if (strlen(arg) >= size)
		return rs_fail(e, RS_ECONFIG, "%s: \"%.40s...\" is longer than %zu bytes", option, arg, size - 1);
	strcpy(to, arg);
	return RS_OK;
}

int cmdline_address(char *to, size_t size, const char *option, const char *arg, struct rs_err *e)
{
	struct rs_host_port parts;

	if (arg[0] && rs_host_port_split(&parts, arg, true, e))
		return e->code = RS_EINVAL;
	return cmdline_string(to, size, option, arg, e);
}

void cmdline_raise_descriptors(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		setrlimit(RLIMIT_NOFILE, &r);
	}
}
