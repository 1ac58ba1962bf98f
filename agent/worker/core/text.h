/* SPDX-License-Identifier: Apache-2.0 */
/* A sentence that is built piece by piece. */
#ifndef RS_AGENT_WORKER_CORE_TEXT_H
#define RS_AGENT_WORKER_CORE_TEXT_H

#include <stddef.h>

/* Invariant: buf is terminated; text that does not fit is cut. All zeros at first. */
struct text {
	char buf[480];
	size_t len;
};

void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
