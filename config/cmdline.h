/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of a daemon: a table of its own options over those that every daemon has (--config, --log-level,
 * --log-format, --help, --version). Options override the file. */
#ifndef RS_CONFIG_CMDLINE_H
#define RS_CONFIG_CMDLINE_H

#include "config/config.h"

struct cmdline_flag {
	const char *name; /* without the dashes */
	const char *arg;  /* what stands for its argument in the help; NULL: it has none */
	const char *help;
	/* Puts the argument into *cfg. RS_EINVAL: wrong usage, e->msg is `found "x", expected y`; another code: a
	 * configuration error. */
	int (*take)(struct rs_config *cfg, const char *arg, struct rs_err *e);
};

struct cmdline {
	const char *program;
	const char *purpose; /* one line of the help */
	const char *notes;   /* its end; whole lines */
	const struct cmdline_flag *flags;
	unsigned flags_n; /* at most CMDLINE_FLAGS_MAX */
};

enum { CMDLINE_FLAGS_MAX = 16 };

/* What a daemon starts with. file belongs to argv, cfg is released with rs_config_close; as_read is a copy of cfg's
 * scalars before the options changed them, its pointers are NULL. */
struct cmdline_start {
	const char *file; /* NULL: none was given */
	struct rs_config cfg, as_read;
};

/* Reads argv and the file. True: *ret is set, go on. False: everything is said (help, version or an error), exit with
 * *ret_status: 0 good, 1 a configuration error, 2 wrong usage. Main thread. */
bool cmdline_start(const struct cmdline *cl, int argc, char **argv, struct cmdline_start *ret, int *ret_status);

/* A string option: copies arg into to, which has size bytes. Errors: RS_ECONFIG naming the option. */
int cmdline_string(char *to, size_t size, const char *option, const char *arg, struct rs_err *e);

/* A descriptor for each client and each lane of each job: as many as the system lets this process have. */
void cmdline_raise_descriptors(void);

/* A daemon that was started with standard descriptors closed gets /dev/null in their place, so that no connection takes
 * the number that the log is written to. To be called before anything is opened. */
void cmdline_hold_standard_fds(void);

#endif
