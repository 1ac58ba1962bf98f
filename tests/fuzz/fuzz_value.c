/* SPDX-License-Identifier: Apache-2.0 */
/* The text of one value for one key of the configuration. An accepted value is printed as
 * text that is accepted again, with the same meaning and the same printed form; a refused
 * one has changed nothing. */
#include "tests/fuzz/fuzz.h"

#include "config/config.h"
#include "config/value.h"

#include <string.h>

/* The memory of one key, or an element of one of its lists. Filled in the same way each
 * time. */
struct home {
	_Alignas(16) char bytes[16384];
};
_Static_assert(sizeof(struct rs_config) <= sizeof(struct home), "the largest of them fits");

static void blank(struct home *h)
{
	memset(h->bytes, 0x5a, sizeof h->bytes);
}

static void check_taken(const struct schema_key *key, const struct home *first)
{
	char text[VALUE_TEXT_MAX], again[VALUE_TEXT_MAX];
	struct home second;

	value_format(key, first, text, sizeof text);
	must(strlen(text) < sizeof text - 1);
	blank(&second);
	must(value_parse(key, text, &second));
	value_format(key, &second, again, sizeof again);
	must(strcmp(text, again) == 0);
	must((size_t)key->offset + key->size <= sizeof second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	const struct schema_key *key = &schema_keys[fuzz_u8(&in) % schema_keys_n];
	char expected[512], *text = malloc(in.left + 1);
	struct home h, before;

	must(text);
	memcpy(text, in.at, in.left);
	text[in.left] = '\0';
	blank(&h);
	blank(&before);
	if (value_parse(key, text, &h))
		check_taken(key, &h);
	else
		must(memcmp(h.bytes, before.bytes, sizeof h.bytes) == 0);
	value_expected(key, expected, sizeof expected);
	must(expected[0]);
	free(text);
	return 0;
}
