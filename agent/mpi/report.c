/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mpi/report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const reasons[PASSES] = {
    [PASS_SMALL] = "too small",
    [PASS_TYPE] = "of a type that reducers do not sum",
    [PASS_OP] = "of an operation other than sum, product, minimum and maximum",
    [PASS_GROUP] = "on a communicator of one rank, or of two groups",
    [PASS_ONE_NODE] = "on a communicator of one node",
    [PASS_UNCONFIGURED] = "because REDUCTION_CONFIG is not set on all ranks",
    [PASS_UNREACHABLE] = "because not all ranks reached the reducers",
    [PASS_UNEQUAL] = "because ranks have different settings",
    [PASS_NOT_OPEN] = "non-blocking before the first large blocking call on the communicator",
    [PASS_THREADS] = "non-blocking without MPI_THREAD_MULTIPLE",
};

struct text {
	char *to;
	size_t room, n;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->to + t->n, t->room - t->n, format, args);
	va_end(args);
	if (n > 0)
		t->n = t->n + (size_t)n < t->room ? t->n + (size_t)n : t->room - 1;
}

static void put_amount(struct text *t, uint64_t calls, uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
	double v = (double)bytes / 1024;
	unsigned unit = 0;

	for (; v >= 1024 && unit < 3; unit++)
		v /= 1024;
	put(t, "%" PRIu64 " call%s (%.1f %s)", calls, calls == 1 ? "" : "s", v, units[unit]);
}

void report_count(struct report *r, enum pass pass, int64_t bytes)
{
	atomic_fetch_add_explicit(&r->of[pass].calls, 1, memory_order_relaxed);
	if (bytes > 0)
		atomic_fetch_add_explicit(&r->of[pass].bytes, (uint64_t)bytes, memory_order_relaxed);
}

void report_text(const struct report *r, int64_t min_bytes, char *to, size_t room)
{
	struct text t = {.to = to, .room = room};
	uint64_t calls = 0, bytes = 0;
	const char *before = ": ";

	for (int p = PASS_NOT + 1; p < PASSES; p++) {
		calls += r->of[p].calls;
		bytes += r->of[p].bytes;
	}
	put_amount(&t, r->of[PASS_NOT].calls, r->of[PASS_NOT].bytes);
	put(&t, " through reducers, ");
	put_amount(&t, calls, bytes);
	put(&t, " passed on to MPI");
	for (int p = PASS_NOT + 1; p < PASSES; p++) {
		if (!r->of[p].calls)
			continue;
		put(&t, "%s%" PRIu64 " %s", before, (uint64_t)r->of[p].calls, reasons[p]);
		if (p == PASS_SMALL)
			put(&t, " (less than %" PRId64 " bytes)", min_bytes);
		before = ", ";
	}
}
