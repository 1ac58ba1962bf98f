/* SPDX-License-Identifier: Apache-2.0 */
/* Results of a check as lines of JSON, which check-gpu collects. */
#ifndef RS_TESTS_GPU_ROW_H
#define RS_TESTS_GPU_ROW_H

#include <stdbool.h>
#include <stddef.h>

/* The exit status of a part or of check-gpu that could not run here. */
enum { ROW_SKIPPED = 77 };

/* Prints {"part", "check", "result", "note"}. The result is "ok", "fail", "skip" (could
 * not run here) or "info" (nothing is claimed). */
void row(const char *part, const char *check, const char *result, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same with a number. */
void row_value(const char *part, const char *check, const char *result, double value, const char *unit,
	       const char *format, ...) __attribute__((format(printf, 6, 7)));

/* Copies the text or number of a key of a row into `to`; "" if there is none. */
void row_get(char *to, size_t room, const char *line, const char *key);

#endif
