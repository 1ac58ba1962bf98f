/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_groups.h"
#include "proto/features.h"

const unsigned fg_group_of[FG_WORLD] = {1, 0, 1, 0, 2};

struct fw_options fg_options(struct fw_options opt)
{
	opt.world = FG_WORLD;
	opt.chunk_bytes = FG_CHUNK;
	opt.decoded_bytes = 8 * FG_CHUNK;
	opt.groups = FG_GROUPS;
	opt.group_of = fg_group_of;
	opt.uplinks = 4;
	opt.retain = true;
	opt.features |= FEATURE_RELAYS | FEATURE_ENCODINGS | FEATURE_SHARDED;
	return opt;
}

void fg_running(struct fw_world *fw, struct fw_options opt)
{
	opt = fg_options(opt);
	fw_running(fw, &opt);
}

unsigned fg_uplink(struct fw_world *fw, unsigned group, unsigned reducer)
{
	unsigned place = fw_attach_uplink(fw, group, reducer);
	const uint8_t *payload;
	struct control_start start;
	struct frame f;
	struct rs_err e;

	must(fw_take(fw, place, &f, &payload) && f.type == FRAME_START);
	must(control_unpack_start(payload, f.payload_len, &start, &e) == RS_OK);
	must(start.start == FAKE_START && start.window == fw->params.window);
	return place;
}

struct frame fg_relayed(struct frame f)
{
	f.flags |= FRAME_RELAY;
	f.generation = frame_home(FG_HOME, FG_LANE);
	return f;
}

void fg_contribute(struct fw_world *fw, unsigned place, struct frame f, const void *payload, uint32_t len)
{
	f.payload_len = len;
	if (fw->params.checksum && len) {
		f.flags |= FRAME_CHECKED;
		f.payload_sum = frame_checksum(payload, len);
	}
	fw_send(fw, place, f, payload);
}

const uint8_t *fg_result(struct fw_world *fw, unsigned place, const struct frame *of, uint32_t *len)
{
	const uint8_t *payload;
	struct frame f;

	if (!fw_take(fw, place, &f, &payload))
		ck_abort_msg("place %u got no result of chunk %u (lane says: %s)", place, of->chunk, fw->why.msg);
	must(f.type == FRAME_RESULT && f.generation == FAKE_GENERATION);
	must(f.of.seq == of->of.seq && f.chunk == of->chunk && f.of.count == of->of.count);
	must(f.flags == (fw->params.checksum && f.payload_len ? FRAME_CHECKED : 0));
	must(!f.flags || f.payload_sum == frame_checksum(payload, f.payload_len));
	*len = f.payload_len;
	return payload;
}
