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

/* Divides by a scale of 8 bits that lets the block fit `top`, and rounds to whole numbers
 * or, with `bits`, to so many bits. */
static void code_scaled(double *x, unsigned n, float top, int bits, int least)
{
	float quotient = (float)largest(x, n) / top, scale = quotient, factor;
	int e;

	frexp((double)quotient, &e);
	if (quotient > 0)
		scale = (float)ldexp(ceil(ldexp((double)quotient, 8 - e)), e - 8);
	if (scale < 0x1p-126f)
		scale = 0x1p-126f;
	factor = 1 / scale;
	for (unsigned i = 0; i < n; i++) {
		double v = (double)((float)x[i] * factor);

		/* whole numbers have one zero */
		v = bits ? round_to(v, bits, least) : nearbyint(v) + 0.0;
		x[i] = fmax(-(double)top, fmin((double)top, v)) * (double)scale;
	}
}

/* A power of two by which the block fits 2^15, and float16. */
static void code_fp16(double *x, unsigned n)
{
	double most = largest(x, n);
	int k = -126;

	while (ldexp(most, -k) >= 32768)
		k++;
	for (unsigned i = 0; i < n; i++)
		x[i] = ldexp(round_to(ldexp(x[i], -k), 10, -14), k);
}

void codec_pass(unsigned wire, double *x, unsigned n)
{
	if (wire == RS_WIRE_FP8)
		code_scaled(x, n, 448, 3, -6);
	else if (wire == RS_WIRE_INT8)
		code_scaled(x, n, 127, 0, 0);
	else if (wire == RS_WIRE_INT4)
		code_scaled(x, n, 7, 0, 0);
	else if (wire == RS_WIRE_FP16)
		code_fp16(x, n);
	for (unsigned i = 0; wire == RS_WIRE_BF16 && i < n; i++)
		x[i] = round_to(x[i], 7, -126);
}
