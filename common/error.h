/* SPDX-License-Identifier: Apache-2.0 */
/* Errors that carry a sentence.
 *
 * The function that detects an error writes its exact cause with rs_fail(). Callers may
 * put context in front of it with rs_wrap(). Codes are negative, so that a positive
 * return value can be a count.
 * The values are part of the C API (reduction.h) and of the wire protocol: append, never
 * renumber. */
#ifndef RS_COMMON_ERROR_H
#define RS_COMMON_ERROR_H

#include <stdbool.h>
#include <stddef.h>

/* name, value, description for use without a sentence */
#define RS_CODES(X)                                                                                                    \
	X(RS_EINVAL, -1, "invalid argument")                                                                           \
	X(RS_ENOMEM, -2, "out of memory")                                                                              \
	X(RS_EIO, -3, "input/output error")                                                                            \
	X(RS_EPROTO, -4, "protocol violation")                                                                         \
	X(RS_EMISMATCH, -5, "ranks disagree about an operation")                                                       \
	X(RS_EPEER, -6, "a peer was lost")                                                                             \
	X(RS_ETIMEOUT, -7, "timed out")                                                                                \
	X(RS_EREFUSED, -8, "refused by the peer")                                                                      \
	X(RS_ECLOSED, -9, "closed")                                                                                    \
	X(RS_ECONFIG, -10, "invalid configuration")                                                                    \
	X(RS_EUNSUPPORTED, -11, "not supported")                                                                       \
	X(RS_EINTERNAL, -12, "internal error")                                                                         \
	/* sent by reducers to workers only: other reducers may still reach that rank */                               \
	X(RS_ECUT, -13, "a reducer can no longer serve the job")                                                       \
	X(RS_ENONFINITE, -14, "a rank sent NaN or infinity")                                                           \
	X(RS_EABORTED, -15, "a rank aborted the job")

enum rs_code {
	RS_OK = 0,
#define RS_CODE_ENUM(name, value, text) name = value,
	RS_CODES(RS_CODE_ENUM)
#undef RS_CODE_ENUM
};

/* How a peer was lost. A process that ends closes its connections. */
enum rs_loss {
	RS_LOSS_OTHER,
	RS_LOSS_SILENT, /* bytes do not come through any more */
	RS_LOSS_RESET,  /* the connection was reset */
};

/* What an error is about, as data. Decisions read this, and sentences are for people.
 * Ranks and reducers count from 1, in the order of the job and of its configuration; 0:
 * none. */
struct rs_cause {
	int code; /* enum rs_code. RS_EPEER with a rank: it was lost; with a reducer: that was lost */
	unsigned rank, reducer;
	enum rs_loss loss; /* how it was lost */
	bool narrow;       /* only small messages came through */
};

/* An error: its code and its sentence. */
struct rs_err {
	int code;      /* enum rs_code */
	char msg[508]; /* one sentence without a newline, always terminated; cut with "..." if it is too long */
};

/* Stores code and sentence in *e (ignored if e is NULL) and returns code. Arguments may
 * point into e->msg. Control characters in the sentence become '?'. */
int rs_fail(struct rs_err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Does the same as rs_fail, and appends ": " and the text of errno value sys. */
int rs_fail_sys(struct rs_err *e, int code, int sys, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Reports that there is no memory: "out of memory for WHAT (N bytes)". bytes 0: not
 * known, or few. Returns RS_ENOMEM.
 */
int rs_oom(struct rs_err *e, size_t bytes, const char *what, ...) __attribute__((format(printf, 3, 4)));

/* Puts "<context>: " in front of the sentence in *e. Without room for both, the sentence
 * stays as it is. Keeps and returns the code; RS_EINTERNAL if e is NULL. */
int rs_wrap(struct rs_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Returns the description of a code, "unknown error" for an unknown one. Static
 * storage. */
const char *rs_code_text(int code);

#endif
