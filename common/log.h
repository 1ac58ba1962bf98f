/* SPDX-License-Identifier: Apache-2.0 */
/* Structured one-line logs on a file descriptor (standard error for the daemons).
 *
 * A line is an event name, then key/value pairs:
 *   text: 2026-11-21T05:34:01.123Z info  job-started job=resnet generation=0 ranks=4 memory=8.0MiB
 *   json:
 *   {"ts":"2026-11-21T05:34:01.123Z","level":"info","event":"job-started","job":"resnet",...}
 * Level by volume: error and warn per fault, info per job or daemon, debug per
 * connection, trace per operation. In the systemd journal each line begins with its
 * priority for journald, <3> to <7> (sd-daemon(3)), and a text line has no time, which
 * journald adds:
 *   <6>info  job-started job=resnet ...
 * A daemon sends such lines to journald itself, with the event and the values as fields:
 * EVENT=job-started JOB=resnet. Quoted values have JSON's escapes in both forms; UTF-8
 * passes, other bytes become \\xHH. A line has at most 4 KiB. A longer line is cut at the
 * end of a character or of a pair, and marked with cut=true / "cut":true.
 * Any thread may call. A line is written with one write(). errno is preserved.
 * Logging never blocks: a line is dropped if the pipe has no room for it or the disk is
 * full. Dropped lines are counted, and a line with their number is written before the
 * next line that can be written. */
#ifndef RS_COMMON_LOG_H
#define RS_COMMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum rs_log_level { RS_LOG_ERROR, RS_LOG_WARN, RS_LOG_INFO, RS_LOG_DEBUG, RS_LOG_TRACE, RS_LOG_NR };

struct rs_kv;

/* A log. Several logs may share `fd` and `lost`. */
struct rs_log {
	_Atomic int level; /* enum rs_log_level; atomic because SIGHUP may change it under running threads */
	bool json;
	bool journal; /* fd is the systemd journal: a line begins with its priority, and a text line has no time */
	int journald; /* a socket of rs_journald_open; 0 or less: lines are written to fd */
	int fd;
	_Atomic unsigned *lost; /* dropped lines that have not been reported yet; NULL: not counted */
	/* Called with each line up to tap_level, whatever `level` says, on the thread
	 * that logs; it must not log. NULL: not called. */
	void (*tap)(void *tap_ctx, enum rs_log_level level, const char *event, const struct rs_kv *kv, unsigned n);
	void *tap_ctx;
	int tap_level; /* enum rs_log_level */
};

/* Limits the lines of an event that unauthenticated peers can cause. At most `per_s`
 * lines are written in each second; the others are counted, and one line reports their
 * number. Invariant: written <= per_s. Used by one thread. */
struct rs_log_limit {
	const char *event;
	unsigned per_s;
	uint64_t from_ms;    /* start of the current second */
	unsigned written;    /* lines written in it */
	uint64_t dropped;    /* lines dropped in it */
	uint64_t unreported; /* lines dropped before it and not yet reported */
};

/* One key/value pair of a line. Make it with the rs_kv_* functions; strings are borrowed
 * for the call. */
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

/* Returns whether the descriptor is the systemd journal, by the variable JOURNAL_STREAM
 * (systemd.exec(5)). */
bool rs_log_is_journal(int fd);
/* Sets `journal` if fd is the journal, and connects to journald then. For daemons, at the
 * start. */
void rs_log_find_journal(struct rs_log *l);
/* Returns what a line of this level must begin with on that descriptor: "<3>" for an
 * error in the journal, else "". */
const char *rs_log_priority(enum rs_log_level level, bool journal);

static inline bool rs_log_on(const struct rs_log *l, enum rs_log_level level)
{
	return l && ((int)level <= l->level || (l->tap && (int)level <= l->tap_level));
}

/* Writes one line with n pairs. Writes nothing if the level is off or l is NULL. The
 * event and the keys are words of the program and are written unescaped. Values with
 * blanks, quotes or control characters are quoted and escaped; numbers that JSON cannot
 * express (NaN, infinities) become null there. */
void rs_log_write(const struct rs_log *l, enum rs_log_level level, const char *event, const struct rs_kv *kv,
		  unsigned n);

/* rs_log(l, RS_LOG_INFO, "job-started", rs_kv_s("job", name), rs_kv_u("ranks", 4)); at
 * least one pair. Pairs are not evaluated when the level is off. */
#define rs_log(l, level, event, ...)                                                                                   \
	(rs_log_on((l), (level)) ? rs_log_write((l), (level), (event), (const struct rs_kv[]){__VA_ARGS__},            \
						sizeof((const struct rs_kv[]){__VA_ARGS__}) / sizeof(struct rs_kv))    \
				 : (void)0)

/* Returns whether a line of this event may be written at now_ms; otherwise counts it. */
bool rs_log_limit_pass(struct rs_log_limit *lim, uint64_t now_ms);
/* Writes "suppressed event=.. lines=.." if lines were dropped in a second that is over.
 * Call it about once a second while it returns true, that is, while more may have to be
 * reported. */
bool rs_log_limit_report(struct rs_log_limit *lim, const struct rs_log *l, enum rs_log_level level, uint64_t now_ms);

/* Returns when rs_log_limit_report has something to report; UINT64_MAX: never. */
uint64_t rs_log_limit_next(const struct rs_log_limit *lim);

/* Return "error", "warn", ... and the level of such a word; -1 for an unknown word. */
const char *rs_log_level_name(enum rs_log_level level);
int rs_log_level_parse(const char *word);

#endif
