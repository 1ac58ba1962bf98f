/* SPDX-License-Identifier: Apache-2.0 */
/* Text that came from elsewhere may be anything. Any thread. */
#ifndef RS_COMMON_UTF8_H
#define RS_COMMON_UTF8_H

#include <stddef.h>

/* Bytes of the UTF-8 character at s; 0 when it is none (overlong forms and surrogates are none). */
size_t rs_utf8_length(const char *s);

/* Each byte that belongs to no character, and each control character, becomes '?'. */
void rs_utf8_clean(char *s);

#endif
