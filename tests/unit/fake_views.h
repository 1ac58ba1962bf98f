/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a job that survives the loss of reducers: two of them, or three of which one has two lanes. Of three, links
 * 0 and 1 are r0, 2 is r1, 3 is r2. */
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
/* It is done, and each element is three times what it was. */
void views_expect_done(const struct reducers_op *o);
void views_expect_lives(const struct reducers *f, unsigned link, unsigned views, uint32_t a, uint32_t b, uint32_t c);
void views_say_lives(struct reducers *f, unsigned link, uint32_t a, uint32_t b, uint32_t c);
void views_say_resume(struct reducers *f, unsigned link, uint64_t start);
/* "D0 H3": what came on a link from its from-th chunk on, as DATA or HAVE of chunks, with the operation if it is not 0.
 */
const char *views_said(const struct reducers *f, unsigned link, unsigned from);

#endif
