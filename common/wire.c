/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire.h"

const char *rs_wire_name(unsigned wire)
{
	static const char *const names[RS_WIRE_NR] = {"same", "bf16", "fp8", "int8"};

	return wire < RS_WIRE_NR ? names[wire] : "wire?";
}

bool rs_wire_fits(unsigned wire, unsigned dtype, unsigned op)
{
	if (wire == RS_WIRE_SAME)
		return true;
	if (wire >= RS_WIRE_NR || (op != RS_SUM && op != RS_AVG))
		return false;
	return dtype == RS_FLOAT32 || (rs_wire_has_blocks(wire) && rs_dtype_is_half(dtype));
}
