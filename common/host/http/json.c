/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/http/json.h"

#include "common/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void json_string(const char *text, FILE *out)
{
	fputc('"', out);
	while (*text) {
		size_t n = rs_utf8_length(text);
		unsigned char c = (unsigned char)*text;

		if (n == 0)
			fputs("\\ufffd", out);
		else if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20 || c == 0x7f)
			fprintf(out, "\\u%04x", c);
		else
			fwrite(text, 1, n, out);
		text += n ? n : 1;
	}
	fputc('"', out);
}

static void json_enum(const ProtobufCFieldDescriptor *f, int value, FILE *out)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(f->descriptor, value);

	if (v)
		json_string(v->name, out);
	else
		fprintf(out, "%d", value);
}

static void json_double(double v, FILE *out)
{
	if (isfinite(v))
		fprintf(out, "%.6g", v);
	else
		fputs("null", out); /* JSON cannot express it */
}

/* Writes one value of a field, of the types that the messages of the services use. */
static void json_value(const ProtobufCFieldDescriptor *f, const void *at, FILE *out)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT32:
		fprintf(out, "%" PRIu32, *(const uint32_t *)at);
		break;
	case PROTOBUF_C_TYPE_UINT64:
		fprintf(out, "%" PRIu64, *(const uint64_t *)at);
		break;
	case PROTOBUF_C_TYPE_INT64:
		fprintf(out, "%" PRId64, *(const int64_t *)at);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		fputs(*(const protobuf_c_boolean *)at ? "true" : "false", out);
		break;
	case PROTOBUF_C_TYPE_DOUBLE:
		json_double(*(const double *)at, out);
		break;
	case PROTOBUF_C_TYPE_ENUM:
		json_enum(f, *(const int *)at, out);
		break;
	case PROTOBUF_C_TYPE_STRING:
		json_string(*(const char *const *)at, out);
		break;
	case PROTOBUF_C_TYPE_MESSAGE:
		if (*(const ProtobufCMessage *const *)at)
			json_message(*(const ProtobufCMessage *const *)at, out);
		else
			fputs("null", out);
		break;
	default:
		fputs("null", out);
		break;
	}
}

static size_t size_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return sizeof(uint64_t);
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	default:
		return sizeof(uint32_t);
	}
}

static void json_list(const ProtobufCFieldDescriptor *f, const char *m, FILE *out)
{
	size_t n = *(const size_t *)(m + f->quantifier_offset);
	const char *at = *(const char *const *)(m + f->offset);

	fputc('[', out);
	for (size_t i = 0; i < n; i++) {
		fputs(i ? "," : "", out);
		json_value(f, at + i * size_of(f->type), out);
	}
	fputc(']', out);
}

void json_fields(const ProtobufCMessage *m, const char *before, FILE *out)
{
	for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];

		fputs(before, out);
		before = ",";
		json_string(f->name, out);
		fputc(':', out);
		if (f->label == PROTOBUF_C_LABEL_REPEATED)
			json_list(f, (const char *)m, out);
		else
			json_value(f, (const char *)m + f->offset, out);
	}
}

void json_message(const ProtobufCMessage *m, FILE *out)
{
	fputc('{', out);
	json_fields(m, "", out);
	fputc('}', out);
}
