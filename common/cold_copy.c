/* SPDX-License-Identifier: Apache-2.0 */
#include "common/cold_copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>

/* Copies whole lines of the cache, past the caches. Returns the number of bytes; 0 if
 * `to` is not aligned. */
static size_t cold_copy_lines(uint8_t *to, const uint8_t *from, size_t n)
{
	size_t done = 0;

	if ((uintptr_t)to % sizeof(__m128i) != 0)
		return 0;
	for (; done + 64 <= n; done += 64) {
		const __m128i *in = (const __m128i *)(const void *)(from + done);
		__m128i *out = (__m128i *)(void *)(to + done);
		__m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
		__m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);

		_mm_stream_si128(out, a);
		_mm_stream_si128(out + 1, b);
		_mm_stream_si128(out + 2, c);
		_mm_stream_si128(out + 3, d);
	}
	_mm_sfence(); /* other threads see these bytes before what this one writes next */
	return done;
}
#else
static size_t cold_copy_lines(uint8_t *to, const uint8_t *from, size_t n)
{
	(void)to, (void)from, (void)n;
	return 0;
}
#endif

void rs_cold_copy(void *restrict to, const void *restrict from, size_t n)
{
	size_t done = cold_copy_lines(to, from, n);

	if (n > done)
		memcpy((uint8_t *)to + done, (const uint8_t *)from + done, n - done);
}
