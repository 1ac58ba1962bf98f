/* SPDX-License-Identifier: Apache-2.0 */
/* What is left of a block of values after an encoding and its decoding, computed in
 * doubles without the kernels, from the text of kernels.h. The values are finite. */
#include "tests/sim/sim.h"

#include "common/wire.h"

#include <math.h>

/* Returns x rounded to `bits` bits behind the leading one, to nearest even; its exponent
 * counts as at least `least`. */
static double round_to(double x, int bits, int least)
{
	int e;

	if (x == 0)
		return x;
	frexp(x, &e);
	e = (e - 1 > least ? e - 1 : least) - bits;
	return ldexp(nearbyint(ldexp(x, -e)), e);
}

static double largest(const double *x, unsigned n)
{
	double most = 0;

	for (unsigned i = 0; i < n; i++)
		most = fmax(most, fabs(x[i]));
	return most;
}

/* The smallest power of two by which the block fits 448, the largest E4M3. */
static void code_fp8(double *x, unsigned n)
{
	double most = largest(x, n);
	int k = -126;

	while (ldexp(most, -k) > 448)
		k++;
	for (unsigned i = 0; i < n; i++)
		x[i] = ldexp(round_to(ldexp(x[i], -k), 3, -6), k);
}

/* A scale of 8 bits, rounded up, and whole numbers up to 127. */
static void code_int8(double *x, unsigned n)
{
	float least = (float)largest(x, n) / 127;
	int e;
	float scale = least, factor;

	frexp((double)least, &e);
	if (least > 0)
		scale = (float)ldexp(ceil(ldexp((double)least, 8 - e)), e - 8);
	if (scale < 0x1p-126f)
		scale = 0x1p-126f;
	factor = 1 / scale;
	for (unsigned i = 0; i < n; i++)
		/* whole numbers have one zero */
		x[i] = (fmax(-127, fmin(127, nearbyint((double)((float)x[i] * factor)))) + 0.0) * (double)scale;
}

void codec_pass(unsigned wire, double *x, unsigned n)
{
	if (wire == RS_WIRE_FP8)
		code_fp8(x, n);
	else if (wire == RS_WIRE_INT8)
		code_int8(x, n);
	for (unsigned i = 0; wire == RS_WIRE_BF16 && i < n; i++)
		x[i] = round_to(x[i], 7, -126);
}
