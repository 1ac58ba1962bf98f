/* SPDX-License-Identifier: Apache-2.0 */
/* A lane's job that survives the loss of reducers, of which there are three: what its ranks say of their lives. */
#ifndef RS_TESTS_UNIT_FAKE_LANE_VIEWS_H
#define RS_TESTS_UNIT_FAKE_LANE_VIEWS_H

#include "tests/unit/fake_worker.h"

/* As fw_running. */
void lv_running(struct fw_world *fw, struct fw_options opt);
struct control_view lv_of(uint32_t a, uint32_t b, uint32_t c);
/* A rank says so, and it is heard. */
void lv_say(struct fw_world *fw, unsigned rank, struct control_view v);
/* All ranks say the view and go on. */
void lv_agree(struct fw_world *fw, struct control_view v);
/* The next frame of rank has this type, and the lives of that view. */
struct control_view lv_expect(struct fw_world *fw, unsigned rank, unsigned type, struct control_view want);
/* The stripe has ended: for this reducer only, if it is the loss of it that others are spared. */
void lv_expect_end(struct fw_world *fw, int code, const char *says);

#endif
