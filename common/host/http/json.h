/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as JSON. 64-bit integers are written as numbers, invalid UTF-8 as U+FFFD. */
#ifndef RS_COMMON_HOST_HTTP_JSON_H
#define RS_COMMON_HOST_HTTP_JSON_H

#include <protobuf-c/protobuf-c.h>
#include <stdio.h>

/* Writes a message as an object with all its fields by name. */
void json_message(const ProtobufCMessage *m, FILE *out);
/* Writes the fields of a message without braces; `before` comes before the first one. */
void json_fields(const ProtobufCMessage *m, const char *before, FILE *out);
void json_string(const char *text, FILE *out);

#endif
