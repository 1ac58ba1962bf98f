/* SPDX-License-Identifier: Apache-2.0 */
/* Element types and reduction operations. Their numbers are those of NCCL's
 * ncclDataType_t and ncclRedOp_t, and frames carry these numbers. */
#ifndef RS_COMMON_DTYPE_H
#define RS_COMMON_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

/* name in lower case, NAME, number, bytes of an element, bytes of its accumulator */
#define RS_DTYPES(X)                                                                                                   \
	X(int8, INT8, 0, 1, 1)                                                                                         \
	X(uint8, UINT8, 1, 1, 1)                                                                                       \
	X(int32, INT32, 2, 4, 4)                                                                                       \
	X(uint32, UINT32, 3, 4, 4)                                                                                     \
	X(int64, INT64, 4, 8, 8)                                                                                       \
	X(uint64, UINT64, 5, 8, 8)                                                                                     \
	X(float16, FLOAT16, 6, 2, 4)                                                                                   \
	X(float32, FLOAT32, 7, 4, 4)                                                                                   \
	X(float64, FLOAT64, 8, 8, 8)                                                                                   \
	X(bfloat16, BFLOAT16, 9, 2, 4)

enum rs_dtype {
#define RS_DTYPE_ENUM(lower, UPPER, value, size, acc) RS_##UPPER = value,
	RS_DTYPES(RS_DTYPE_ENUM)
#undef RS_DTYPE_ENUM
	    RS_DTYPE_NR
};

enum rs_op { RS_SUM = 0, RS_PROD = 1, RS_MAX = 2, RS_MIN = 3, RS_AVG = 4, RS_OP_NR };

/* Return the bytes of one element and of one accumulator element; 0 for an unknown dtype.
 * float16 and bfloat16 accumulate in float32, every other dtype in itself. */
size_t rs_dtype_size(unsigned dtype);
size_t rs_acc_size(unsigned dtype);
static inline bool rs_dtype_is_half(unsigned dtype)
{
	return dtype == RS_FLOAT16 || dtype == RS_BFLOAT16;
}

/* Return "float32", "sum", ...; "dtype?" or "op?" for an unknown number. Static
 * storage. */
const char *rs_dtype_name(unsigned dtype);
const char *rs_op_name(unsigned op);

#endif
