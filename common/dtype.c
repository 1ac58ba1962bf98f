/* SPDX-License-Identifier: Apache-2.0 */
#include "common/dtype.h"

static const struct {
	const char *name;
	unsigned char size, acc;
} dtypes[RS_DTYPE_NR] = {
#define ROW(lower, UPPER, value, size, acc) [value] = {#lower, size, acc},
    RS_DTYPES(ROW)
#undef ROW
};

size_t rs_dtype_size(unsigned dtype)
{
	return dtype < RS_DTYPE_NR ? dtypes[dtype].size : 0;
}

size_t rs_acc_size(unsigned dtype)
{
	return dtype < RS_DTYPE_NR ? dtypes[dtype].acc : 0;
}

const char *rs_dtype_name(unsigned dtype)
{
	return dtype < RS_DTYPE_NR ? dtypes[dtype].name : "dtype?";
}

const char *rs_op_name(unsigned op)
{
	static const char *const names[RS_OP_NR] = {"sum", "prod", "max", "min", "avg"};

	return op < RS_OP_NR ? names[op] : "op?";
}
