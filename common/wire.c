/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire.h"

const char *rs_wire_name(unsigned wire)
{
	static const char *const names[RS_WIRE_NR] = {"same", "bf16", "fp8", "int8", "fp16", "int4"};

	return wire < RS_WIRE_NR ? names[wire] : "wire?";
}

bool rs_wire_fits(unsigned wire, unsigned dtype, unsigned op)
{
	if (wire == RS_WIRE_SAME)
		return true;
	if (wire >= RS_WIRE_NR || (op != RS_SUM && op != RS_AVG))
		return false;
	return dtype == RS_FLOAT32 || (rs_wire_half_bytes(wire, 0) <= 2 && rs_dtype_is_half(dtype));
}

bool rs_wire_fits_up(unsigned wire, unsigned dtype, unsigned op)
{
	return rs_wire_fits(wire, dtype, op) || (wire == RS_WIRE_FP16 && dtype == RS_FLOAT16 && op == RS_AVG);
}

unsigned rs_wire_decoded(unsigned up, unsigned down)
{
	if (up == RS_WIRE_INT4 && down == RS_WIRE_INT4)
		return 8;
	return rs_wire_half_bytes(up, 4) <= 2 || rs_wire_half_bytes(down, 4) <= 2 ? 4 : 2;
}

uint32_t rs_wire_chunk_most(uint32_t chunk_bytes, uint32_t decoded_bytes)
{
	bool small = decoded_bytes > 4 * chunk_bytes; /* elements of 4 bits fill a chunk */

	return (uint32_t)rs_wire_bytes(small ? RS_WIRE_INT4 : RS_WIRE_INT8, 0, small ? 2 * chunk_bytes : chunk_bytes);
}
