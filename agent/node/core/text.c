/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/core/text.h"
#include "agent/node/core/hub_state.h"

#include <stdio.h>

const char *local_job_rank_text(const struct local_job *j, unsigned local_rank, char buf[LOCAL_RANK_TEXT])
{
	const struct local_hello *hello = &j->members[local_rank].hello;

	snprintf(buf, LOCAL_RANK_TEXT, "rank %u (pid %u on %s)", hello->rank, hello->pid, j->hub->host);
	return buf;
}

const char *local_job_ranks_text(const struct local_job *j, char buf[LOCAL_RANK_TEXT])
{
	unsigned low = UINT32_MAX, high = 0;

	for (unsigned i = 0; i < j->members_n; i++) {
		low = j->members[i].hello.rank < low ? j->members[i].hello.rank : low;
		high = j->members[i].hello.rank > high ? j->members[i].hello.rank : high;
	}
	if (low == high)
		snprintf(buf, LOCAL_RANK_TEXT, "process %u on %s", low, j->hub->host);
	else
		snprintf(buf, LOCAL_RANK_TEXT, "processes %u-%u on %s", low, high, j->hub->host);
	return buf;
}

unsigned local_job_missing(const struct local_job *j, char list[LOCAL_MISSING_TEXT])
{
	size_t at = 0;
	unsigned n = 0;

	list[0] = '\0';
	for (unsigned i = 0; i < j->members_n; i++) {
		if (j->members[i].client)
			continue;
		if (at < LOCAL_MISSING_TEXT - 16)
			at += (size_t)snprintf(list + at, LOCAL_MISSING_TEXT - at, "%s%u", n ? ", " : "", i);
		else if (at < LOCAL_MISSING_TEXT - 4)
			at += (size_t)snprintf(list + at, LOCAL_MISSING_TEXT - at, "...");
		n++;
	}
	return n;
}

void local_job_waiting_text(const struct local_job *j, uint64_t now_ms, char *buf, size_t size)
{
	char missing[LOCAL_MISSING_TEXT];
	unsigned n = local_job_missing(j, missing);

	snprintf(buf, size, "%u of %u local ranks have not connected: local rank%s %s; waiting for %u s", n,
		 j->members_n, n == 1 ? "" : "s", missing, (unsigned)((now_ms - j->opened_ms) / 1000));
}
