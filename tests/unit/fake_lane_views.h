/* SPDX-License-Identifier: Apache-2.0 */
/* A job with failover on one lane, with three reducers, and the views of its ranks. */
#ifndef RS_TESTS_UNIT_FAKE_LANE_VIEWS_H
#define RS_TESTS_UNIT_FAKE_LANE_VIEWS_H

#include "tests/unit/fake_worker.h"

/* As fw_running. */
void lv_running(struct fw_world *fw, struct fw_options opt);
struct control_view lv_of(uint32_t a, uint32_t b, uint32_t c);
struct control_view lv_with_shares(struct control_view v, uint32_t epoch, uint32_t a, uint32_t b, uint32_t c);
/* Sends the view of a rank, and feeds it. */
void lv_send(struct fw_world *fw, unsigned rank, struct control_view v);
/* Sends the view of all ranks, and takes RESUME. */
void lv_agree(struct fw_world *fw, struct control_view v);
/* Checks that the next frame of rank has this type and that view's lives. */
struct control_view lv_expect(struct fw_world *fw, unsigned rank, unsigned type, struct control_view want);
/* Checks that the stripe has ended with this error. */
void lv_expect_end(struct fw_world *fw, int code, const char *says);

#endif
