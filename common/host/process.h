/* SPDX-License-Identifier: Apache-2.0 */
/* The main function of a daemon: its command line, its log and its service manager. */
#ifndef RS_COMMON_HOST_PROCESS_H
#define RS_COMMON_HOST_PROCESS_H

#include "common/host/cmdline.h"
#include "common/log.h"
#include "common/notify.h"

/* One daemon. It must stay where it is. */
struct host_process {
	const char *name; /* as in messages */
	struct cmdline_start start;
	struct rs_log log;
	_Atomic unsigned lost; /* dropped lines of `log` */
	struct rs_notify notify;
};

/* Reads the command line and the configuration, and opens the log. To be called at the
 * very start of main. Returns false if the process is to exit with *ret_status:
 * everything has been printed. */
bool host_process_open(struct host_process *p, const struct cmdline *cl, int argc, char **argv, int *ret_status);
/* Prints the error of a daemon that could not start (failed NULL: it ended well) and
 * frees. Returns the exit status. */
int host_process_close(struct host_process *p, const struct rs_err *failed);

#endif
