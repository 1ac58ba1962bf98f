/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of a daemon: its own options, plus those that every daemon has
 * (--config, --log-level, --log-format, --paranoid, --check, --help, --version). Options
 * override the file. */
#ifndef RS_COMMON_HOST_CMDLINE_H
#define RS_COMMON_HOST_CMDLINE_H

#include "common/log.h"
#include "config/check/check.h"
#include "config/cluster.h"

/* An option of a daemon. */
struct cmdline_flag {
	const char *name; /* without the dashes */
	const char *arg;  /* the name of its argument in the help; NULL: it has none */
	const char *help;
	/* Stores the argument in *cfg. Errors: RS_EINVAL for wrong usage, with e->msg
	 * `found "x", expected y`; another code for a configuration error. */
	int (*take)(struct rs_config *cfg, const char *arg, struct rs_err *e);
};

/* The command line of a daemon. */
struct cmdline {
	const char *program;
	const char *purpose; /* one line of the help */
	const char *notes;   /* the end of the help; whole lines */
	const struct cmdline_flag *flags;
	unsigned flags_n; /* at most CMDLINE_FLAGS_MAX */
	/* Add an error for all that makes the daemon refuse to start; and for --check
	 * also what would fail later. */
	void (*refuses)(struct check *c), (*check)(struct check *c);
	enum check_role role;
	enum rs_cluster_role cluster_role; /* of this daemon in a managed job */
	/* with this option the daemon's place in a managed job is not looked up; NULL:
	 * with --config only */
	const char *without_cluster;
};

enum { CMDLINE_FLAGS_MAX = 16 };

/* The configuration a daemon starts with. file points into argv; release cfg with
 * rs_config_close. as_read is a copy of cfg's scalars before the options changed them,
 * and its pointers are NULL. */
struct cmdline_start {
	const char *file;          /* NULL: not given */
	struct rs_cluster cluster; /* variable NULL: the configuration does not come from the environment */
	struct rs_config cfg, as_read;
};

/* Reads argv and the file, and checks them. True: *ret is set, and the daemon starts.
 * False: everything has been printed (help, version, all errors, or the result of
 * --check); exit with *ret_status: 0 success, 1 configuration error, 2 wrong usage. Main
 * thread. */
bool cmdline_start(const struct cmdline *cl, int argc, char **argv, struct cmdline_start *ret, int *ret_status);

/* Logs where the configuration comes from. */
void cmdline_log_source(const struct cmdline_start *st, const struct rs_log *log);

/* Stores a string option: copies arg into to, which has size bytes. Errors: RS_ECONFIG
 * naming the option. */
int cmdline_string(char *to, size_t size, const char *option, const char *arg, struct rs_err *e);

/* The same for an address to listen on, which may be empty. Errors: RS_EINVAL if it is
 * not one, RS_ECONFIG. */
int cmdline_address(char *to, size_t size, const char *option, const char *arg, struct rs_err *e);

/* Raises the limit of open files to the most that the system allows: each client, and
 * each lane of each job, needs a descriptor. */
void cmdline_raise_descriptors(void);

#endif
