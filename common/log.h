/* SPDX-License-Identifier: Apache-2.0 */
/* Structured one-line logs on a file descriptor (standard error for the daemons).
 *
 * A line is an event word, then key/value pairs:
 *   text: 2026-11-21T05:34:01.123Z info  job-started job=resnet generation=0 ranks=4 memory=8.0MiB
 *   json: {"ts":"2026-11-21T05:34:01.123Z","level":"info","event":"job-started","job":"resnet",...}
 * Level by volume: error and warn per fault, info per job or daemon, debug per connection, trace per operation.
 * Values in quotes have JSON's escapes in both forms; UTF-8 passes, other bytes become \\xHH. A line has at most 4 KiB:
 * what is over is cut, at the end of a character or of a pair, and marked with cut=true / "cut":true.
 * All calls may come from any thread; a line is written with one write(). errno stays as it is.
 * Nobody waits for who reads the log: a line that a pipe has no room for, or that a full disk does not take, is lost.
 * Lost lines are counted, and the next line that can be written comes behind one that says how many they were. */
#ifndef RS_COMMON_LOG_H
#define RS_COMMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum rs_log_level { RS_LOG_ERROR, RS_LOG_WARN, RS_LOG_INFO, RS_LOG_DEBUG, RS_LOG_TRACE, RS_LOG_NR };

struct rs_log {
	_Atomic int level; /* enum rs_log_level; atomic because SIGHUP may change it under running threads */
	bool json;
	int fd;
	_Atomic unsigned *lost; /* lines that could not be written and are not told yet; NULL: they are not counted */
};

/* Keeps an event that strangers can cause at will from filling the log: at most `per_s` lines in a second of its own
 * counting; the others are only counted, and one line tells how many they were. One thread uses it. */
struct rs_log_limit {
	const char *event;
	unsigned per_s;
	uint64_t from_ms; /* when the running second began */
	unsigned said;    /* lines in it */
	uint64_t unsaid;  /* lines left out in it */
	uint64_t untold;  /* lines left out in those before it, which no line has told yet */
};

/* One key/value pair of a line. Build with the rs_kv_* functions; the strings are borrowed for the call. */
struct rs_kv {
	const char *key;
	enum { RS_KV_STR, RS_KV_INT, RS_KV_UINT, RS_KV_DBL } kind;
	union {
		const char *s;
		int64_t i;
		uint64_t u;
		double d;
	};
};

static inline struct rs_kv rs_kv_s(const char *key, const char *v)
{
	return (struct rs_kv){.key = key, .kind = RS_KV_STR, .s = v};
}
static inline struct rs_kv rs_kv_i(const char *key, int64_t v)
{
	return (struct rs_kv){.key = key, .kind = RS_KV_INT, .i = v};
}
static inline struct rs_kv rs_kv_u(const char *key, uint64_t v)
{
	return (struct rs_kv){.key = key, .kind = RS_KV_UINT, .u = v};
}
static inline struct rs_kv rs_kv_d(const char *key, double v)
{
	return (struct rs_kv){.key = key, .kind = RS_KV_DBL, .d = v};
}

static inline bool rs_log_on(const struct rs_log *l, enum rs_log_level level)
{
	return l && (int)level <= l->level;
}

/* Writes one line with n pairs. Nothing happens when the level is off or l is NULL. event and the keys are
 * words of the program: they are put as they are. Values with blanks, quotes or control characters are quoted and
 * escaped; numbers that JSON lacks (NaN, infinities) become null there. */
void rs_log_write(const struct rs_log *l, enum rs_log_level level, const char *event, const struct rs_kv *kv,
		  unsigned n);

/* rs_log(l, RS_LOG_INFO, "job-started", rs_kv_s("job", name), rs_kv_u("ranks", 4)); at least one pair.
 * Pairs are not evaluated when the level is off. */
#define rs_log(l, level, event, ...)                                                                                   \
	(rs_log_on((l), (level)) ? rs_log_write((l), (level), (event), (const struct rs_kv[]){__VA_ARGS__},            \
						sizeof((const struct rs_kv[]){__VA_ARGS__}) / sizeof(struct rs_kv))    \
				 : (void)0)

/* May a line of this event be written at now_ms? If not it is counted. */
bool rs_log_limit_pass(struct rs_log_limit *lim, uint64_t now_ms);
/* Writes "suppressed event=.. lines=.." when lines were left out in a second that is over. To be called about once a
 * second while there may be such; returns whether there still are. */
bool rs_log_limit_tell(struct rs_log_limit *lim, const struct rs_log *l, enum rs_log_level level, uint64_t now_ms);

/* When rs_log_limit_tell has something to say; UINT64_MAX: never. */
uint64_t rs_log_limit_next(const struct rs_log_limit *lim);

/* "error", "warn", ... and back; the second returns -1 for a word that is none. */
const char *rs_log_level_name(enum rs_log_level level);
int rs_log_level_parse(const char *word);

#endif
