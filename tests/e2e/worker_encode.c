/* SPDX-License-Identifier: Apache-2.0 */
/* worker_encode WIRE N [KEY FIRST]: reads N float32 elements, writes them encoded, with
 * random rounding if a key is given. worker_encode -d WIRE N: decodes N elements. With
 * the fastest kernels. */
#include "common/kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned wire_of(const char *name)
{
	unsigned wire = 0;

	while (wire < RS_WIRE_NR && strcmp(rs_wire_name(wire), name) != 0)
		wire++;
	return wire;
}

int main(int argc, char **argv)
{
	bool decoding = argc > 1 && strcmp(argv[1], "-d") == 0;
	char **args = argv + 1 + decoding;
	int left = argc - 1 - decoding;
	const struct rs_kernels *k;
	struct rs_err e;
	unsigned wire = left < 2 ? RS_WIRE_NR : wire_of(args[0]);
	size_t n, bytes;
	char *plain, *encoded;

	if (wire == RS_WIRE_NR || rs_kernels_select("auto", &k, &e) != RS_OK)
		return 2;
	n = strtoull(args[1], NULL, 0);
	bytes = rs_wire_bytes(wire, sizeof(float), n);
	plain = malloc(n * sizeof(float) + 1);
	encoded = malloc(bytes + 1);
	if (!plain || !encoded ||
	    fread(decoding ? encoded : plain, 1, decoding ? bytes : n * sizeof(float), stdin) !=
		(decoding ? bytes : n * sizeof(float)))
		return 1;
	if (decoding)
		k->decode[wire](plain, encoded, n);
	else if (left == 4)
		k->encode_random[wire](encoded, plain, n, strtoull(args[2], NULL, 0), strtoull(args[3], NULL, 0));
	else
		k->encode[wire](encoded, plain, n);
	fwrite(decoding ? plain : encoded, 1, decoding ? n * sizeof(float) : bytes, stdout);
	free(plain);
	free(encoded);
	return fflush(stdout) == 0 ? 0 : 1;
}
