/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a job with failover, with two or three reducers. Of three reducers r0 has two
 * lanes: links 0 and 1 are r0, 2 is r1, 3 is r2. */
#ifndef RS_TESTS_UNIT_FAKE_VIEWS_H
#define RS_TESTS_UNIT_FAKE_VIEWS_H

#include "tests/unit/fake_reducer.h"

enum {
	VIEWS_CHUNK = 256, /* elements */
	VIEWS_LINKS = 4,   /* of three reducers */
	VIEWS_SPREAD = 8 * VIEWS_LINKS,
};

extern const char views_three[], views_two[]; /* configurations */

void views_open(struct reducers *f, const char *yaml);
void views_submit(struct reducers *f, struct reducers_op *o, unsigned chunks);
/* Checks that the operation has completed with each element times three. */
void views_expect_done(const struct reducers_op *o);
void views_expect_lives(const struct reducers *f, unsigned link, unsigned views, uint32_t a, uint32_t b, uint32_t c);
void views_say_lives(struct reducers *f, unsigned link, uint32_t a, uint32_t b, uint32_t c);
void views_say_resume(struct reducers *f, unsigned link, uint64_t start);
/* Returns text such as "D0 H3": the chunks of a link from its from-th on, sent as DATA or
 * HAVE, with the operation if it is not 0. */
const char *views_said(const struct reducers *f, unsigned link, unsigned from);

#endif
