/* SPDX-License-Identifier: Apache-2.0 */
/* Cleaning of text from peers and files. Any thread. */
#ifndef RS_COMMON_UTF8_H
#define RS_COMMON_UTF8_H

#include <stddef.h>

/* Returns the bytes of the UTF-8 character at s; 0 if there is none (overlong forms and
 * surrogates do not count). */
size_t rs_utf8_length(const char *s);

/* Replaces by '?' each byte that is not part of a character, and each control
 * character. */
void rs_utf8_clean(char *s);

#endif
