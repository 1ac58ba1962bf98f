/* SPDX-License-Identifier: Apache-2.0 */
#include "server/run/server_descriptors.h"

#include <sys/resource.h>

enum { DESCRIPTORS_BESIDE = 128 }; /* for refusals, listening sockets, loops and the log */

void server_check_descriptors(struct server *s)
{
	struct rlimit r;
	uint64_t need = (uint64_t)s->max_connections + DESCRIPTORS_BESIDE + 8 * (uint64_t)s->lanes_n;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < need)
		rs_log(s->log, RS_LOG_WARN, "few-descriptors", rs_kv_u("found", r.rlim_cur), rs_kv_u("expected", need),
		       rs_kv_s("advice", "raise LimitNOFILE / ulimit -Hn or lower server.max_connections"));
}

void server_bound_descriptors(struct server *s)
{
	rlim_t most = 2 * (rlim_t)s->max_connections + DESCRIPTORS_BESIDE + 8 * (rlim_t)s->lanes_n;
	struct rlimit r;

	if (!s->host.rpc_server || getrlimit(RLIMIT_NOFILE, &r))
		return;
	r.rlim_cur = most < r.rlim_max ? most : r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
}
