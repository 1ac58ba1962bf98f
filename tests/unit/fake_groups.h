/* SPDX-License-Identifier: Apache-2.0 */
/* A job with groups on one lane of reducer r0: ranks 1 and 3 are in group 0, ranks 0 and
 * 2 in group 1, rank 4 alone is group 2. Chunks that go through relays are for a lane of
 * reducer r1. */
#ifndef RS_TESTS_UNIT_FAKE_GROUPS_H
#define RS_TESTS_UNIT_FAKE_GROUPS_H

#include "tests/unit/fake_worker.h"

enum {
	FG_WORLD = 5,
	FG_GROUPS = 3,
	FG_CHUNK = 512,
	FG_HOME = 1, /* index of the home's reducer */
	FG_LANE = 3, /* of the home */
	FG_SEQ = 3,
};

extern const unsigned fg_group_of[FG_WORLD];

/* Returns the options of the job, with what the caller has set. */
struct fw_options fg_options(struct fw_options opt);
/* As fw_running, with these. */
void fg_running(struct fw_world *fw, struct fw_options opt);
/* Attaches an uplink, and takes WELCOME and START. Returns its place. */
unsigned fg_uplink(struct fw_world *fw, unsigned group, unsigned reducer);
/* Returns the header as a rank sends it to its relay. */
struct frame fg_relayed(struct frame f);
/* Sends a contribution with this payload. */
void fg_contribute(struct fw_world *fw, unsigned place, struct frame f, const void *payload, uint32_t len);
/* Takes RESULT of a chunk; its payload is valid until the next flush. */
const uint8_t *fg_result(struct fw_world *fw, unsigned place, const struct frame *of, uint32_t *len);

#endif
