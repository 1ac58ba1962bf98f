/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/process.h"

#include "common/descriptors.h"
#include "common/loop_uv.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool host_process_open(struct host_process *p, const struct cmdline *cl, int argc, char **argv, int *ret_status)
{
	*p = (struct host_process){.name = cl->program};
	rs_descriptors_hold_standard();
	rs_loop_own_libuv();
	if (!cmdline_start(cl, argc, argv, &p->start, ret_status))
		return false;
	signal(SIGPIPE, SIG_IGN);
	cmdline_raise_descriptors();
	rs_notify_open(&p->notify);
	p->log = (struct rs_log){.level = p->start.cfg.logging.level,
				 .json = p->start.cfg.logging.json,
				 .fd = STDERR_FILENO,
				 .lost = &p->lost};
	rs_log_find_journal(&p->log);
	cmdline_log_source(&p->start, &p->log);
	return true;
}

int host_process_close(struct host_process *p, const struct rs_err *failed)
{
	if (failed)
		fprintf(stderr, "%s%s: %s\n", rs_log_priority(RS_LOG_ERROR, p->log.journal), p->name, failed->msg);
	rs_notify_close(&p->notify);
	rs_config_close(&p->start.cfg);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
