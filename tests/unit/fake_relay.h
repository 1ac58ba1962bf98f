/* SPDX-License-Identifier: Apache-2.0 */
/* A relay and its homes: group 0 of fake_groups.h (ranks 1 and 3) is relayed. */
#ifndef RS_TESTS_UNIT_FAKE_RELAY_H
#define RS_TESTS_UNIT_FAKE_RELAY_H

#include "tests/unit/fake_groups.h"
#include "tests/unit/fake_home.h"

enum { FY_COUNT = 100 * FG_CHUNK };

struct frame fy_chunk(const struct fw_world *fw, uint64_t seq, uint32_t chunk);
/* Both ranks of group 0 send a chunk. */
void fy_forward(struct fw_world *fw, struct frame f);
void fy_open(struct fw_world *fw, struct fh_homes *homes, struct fw_options opt);
/* The same with a home that has got the first chunk. */
struct fh_home *fy_open_joined(struct fw_world *fw, struct fh_homes *homes, struct fw_options opt);
/* The home answers a chunk with bytes of this value. */
void fy_answer(struct fh_homes *all, struct fh_home *h, struct frame f, uint8_t value);
/* The same, and only the first bytes have come so far. */
void fy_answer_part(struct fh_homes *all, struct fh_home *h, struct frame f, size_t n);
/* Ranks 1 and 3 get that answer, others nothing. */
void fy_expect_answer(struct fw_world *fw, struct frame f, uint8_t value);
void fy_expect_data(struct fh_home *h, struct frame f);
/* Lets time pass, in which ranks and homes are alive. */
void fy_pass(struct fw_world *fw, struct fh_homes *all, uint64_t ms);

#endif
