/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all configuration keys. The parser, `reductionctl print` and the reference
 * are made from it. */
#ifndef RS_CONFIG_SCHEMA_H
#define RS_CONFIG_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCHEMA_KEYS_MAX = 96, SCHEMA_SECTIONS_MAX = 16 };

enum schema_type {
	SCHEMA_BOOL,     /* bool */
	SCHEMA_NUMBER,   /* unsigned */
	SCHEMA_BYTES,    /* uint32_t or uint64_t */
	SCHEMA_DURATION, /* uint32_t milliseconds */
	SCHEMA_RATE,     /* uint64_t bits a second */
	SCHEMA_WEIGHT,   /* double; a decimal number with at most six digits after the point */
	SCHEMA_NAME,     /* char[]; letters, digits, '.', '_', '-' */
	SCHEMA_ADDRESS,  /* char[]; host:port; min is the lowest port */
	SCHEMA_SERVICE,  /* char[]; as an address, or unix: and an absolute path */
	SCHEMA_HOST,     /* char[]; name of a machine: as a name, and ':' and '%' of IPv6 addresses */
	SCHEMA_GLOB, /* char[]; as a name, with '*' and '?' for any letters, and with blanks and '@', which certificates
			use */
	SCHEMA_PATH, /* char[] */
	SCHEMA_WORD, /* char[]; one of words */
	SCHEMA_ENUM, /* bool, uint8_t or int: the index in words */
	SCHEMA_WIRE, /* job.wire: a word for its keys up and down, which are in section job.wire, or all its keys */
	SCHEMA_MAP,  /* the shard map, which has no single field */
	SCHEMA_NODES,    /* as the next two a part of a group, which config/groups.c reads: a list of nodes as a text */
	SCHEMA_NETWORKS, /* a list of networks */
	SCHEMA_RELAYS,   /* a map as the shard map, or a list of reducers */
};

/* One key of the configuration file. */
struct schema_key {
	const char *section, *key;
	enum schema_type type;
	uint16_t offset, size; /* of the field in struct rs_config, or in an element if the section is a list */
	uint64_t min, max;     /* numbers: both included; names and paths: bytes */
	uint32_t step; /* of BYTES: a multiple of this; 0 or 1 for any; of ADDRESS and SERVICE: the default port */
	bool zero;     /* 0 is accepted too although it is below min; of ADDRESS and SERVICE: an empty text */
	const char *zero_word;    /* the word for 0 in the file, NULL for none */
	const char *const *words; /* of WORD and ENUM, NULL at the end */
	bool secret;              /* names a file whose content nobody may see */
	const char *def;          /* the default as in a file; "": none, the key may be left out; NULL: required */
	const char *help;         /* the meaning of the key, without a full stop at the end */
};

/* One section of the configuration file. */
struct schema_section {
	const char *name;
	const char *help;
	uint16_t item_size; /* of a list of mappings: bytes of an element's struct; 0 for a section of keys */
	uint16_t items,
	    count; /* of a list: position of the pointer to the elements, and of their number, in struct rs_config */
	unsigned min, max; /* of a list: fewest and most elements */
};

extern const struct schema_key schema_keys[];
extern const unsigned schema_keys_n;
extern const struct schema_section schema_sections[];
extern const unsigned schema_sections_n;

/* Return a section or a key; NULL if there is none. */
const struct schema_section *schema_find_section(const char *name);
const struct schema_key *schema_find(const char *section, const char *key);

/* Returns how many letters must be inserted, removed or changed to turn a into b;
 * UINT_MAX if one has more than 64 bytes. */
unsigned schema_distance(const char *a, const char *b);

/* Returns whether `found` may be a misspelling of `known`, which is `distance` away. */
bool schema_is_near(const char *found, const char *known, unsigned distance);

/* Writes advice about an unknown key (or, with section NULL, an unknown section): the
 * nearest one, or all of them. */
void schema_advise(const char *section, const char *found, char *buf, size_t size);

#endif
