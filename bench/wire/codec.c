/* SPDX-License-Identifier: Apache-2.0 */
/* The encodings of the product for programs in Python that play ranks and reducers in one
 * process (codec.py). Pointers are to float32 elements or to encoded bytes, as in
 * common/kernels/kernels.h. */
#include "common/kernels/kernels.h"

#define EXPORT __attribute__((visibility("default")))

/* What the functions below take first: the fastest kernels of this machine. */
EXPORT const void *codec_kernels(void);
EXPORT size_t codec_bytes(unsigned wire, size_t n);
EXPORT void codec_encode(const void *kernels, unsigned wire, void *dst, const void *src, size_t n);
EXPORT void codec_encode_random(const void *kernels, unsigned wire, void *dst, const void *src, size_t n, uint64_t key);
EXPORT void codec_decode(const void *kernels, unsigned wire, void *dst, const void *src, size_t n);
EXPORT void codec_add(const void *kernels, unsigned wire, void *acc, const void *src, size_t n);

const void *codec_kernels(void)
{
	const struct rs_kernels *k;
	struct rs_err e;

	return rs_kernels_select("auto", &k, &e) ? NULL : k;
}

size_t codec_bytes(unsigned wire, size_t n)
{
	return rs_wire_bytes(wire, sizeof(float), n);
}

void codec_encode(const void *kernels, unsigned wire, void *dst, const void *src, size_t n)
{
	((const struct rs_kernels *)kernels)->encode[wire](dst, src, n);
}

void codec_encode_random(const void *kernels, unsigned wire, void *dst, const void *src, size_t n, uint64_t key)
{
	((const struct rs_kernels *)kernels)->encode_random[wire](dst, src, n, key, 0);
}

void codec_decode(const void *kernels, unsigned wire, void *dst, const void *src, size_t n)
{
	((const struct rs_kernels *)kernels)->decode[wire](dst, src, n);
}

void codec_add(const void *kernels, unsigned wire, void *acc, const void *src, size_t n)
{
	((const struct rs_kernels *)kernels)->add[wire](acc, src, n);
}
