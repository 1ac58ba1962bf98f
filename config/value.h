/* SPDX-License-Identifier: Apache-2.0 */
/* Values of single keys: conversion between the text of a file and the field of the
 * struct. */
#ifndef RS_CONFIG_VALUE_H
#define RS_CONFIG_VALUE_H

#include "config/schema.h"

enum { VALUE_TEXT_MAX = 4096 }; /* most bytes that value_format needs, terminator included */

/* Stores text in the key's field of the struct at base. False, with nothing stored: it is
 * not a valid value. */
bool value_parse(const struct schema_key *key, const char *text, void *base);

/* Writes the field as text that value_parse accepts; strings without YAML's quotes. */
void value_format(const struct schema_key *key, const void *base, char *buf, size_t size);

/* Writes which values the key accepts, such as "a number from 1 to 64". */
void value_expected(const struct schema_key *key, char *buf, size_t size);

/* Writes the same in few words for the reference, which explains names and units once: "1
 * to 64". */
void value_takes(const struct schema_key *key, char *buf, size_t size);

/* Writes bytes with the largest unit that leaves no remainder: 65536 -> "64KiB". */
void value_format_bytes(uint64_t bytes, char *buf, size_t size);

/* Does the same for bits a second: 2500000000 -> "2500mbit". */
void value_format_rate(uint64_t rate, char *buf, size_t size);

#endif
