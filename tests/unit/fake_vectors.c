/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_vectors.h"

#include "proto/control.h"
#include "proto/frame.h"
#include "proto/reduction.pb-c.h"

#include <check.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void vectors_open(struct vectors_file *f, const char *name)
{
	char path[256];
	FILE *in;
	long size;

	snprintf(path, sizeof path, "proto/vectors/%s.json", name);
	in = fopen(path, "rb");
	ck_assert_msg(in != NULL, "%s: run from the root of the repository", path);
	ck_assert_int_eq(fseek(in, 0, SEEK_END), 0);
	size = ftell(in);
	ck_assert_int_gt(size, 0);
	rewind(in);
	f->len = (size_t)size;
	f->text = malloc(f->len + 1);
	ck_assert_ptr_nonnull(f->text);
	ck_assert_uint_eq(fread(f->text, 1, f->len, in), f->len);
	f->text[f->len] = '\0';
	fclose(in);
}

void vectors_close(struct vectors_file *f)
{
	free(f->text);
}

bool vectors_is_comment(const struct vectors_file *f, size_t at)
{
	const char *begin = f->text + at, *end = f->text + at, *found;

	if (isspace((unsigned char)f->text[at]))
		return true;
	while (begin > f->text && begin[-1] != '\n')
		begin--;
	while (*end != '\n')
		end++;
	found = strstr(begin, "\"meaning\"");
	if (!found || found > end)
		return false;
	/* an entry of one line begins with its explanation */
	end = strstr(found, "\", \"");
	return found <= f->text + at && (!end || f->text + at < end || !memchr(begin, '{', (size_t)(found - begin)));
}

uint32_t vectors_checksum(const char *name)
{
	struct vectors_file f;
	struct ydoc doc;
	struct rs_err e;
	uint64_t sum;

	vectors_open(&f, "checksums");
	ck_assert_int_eq(ydoc_parse(&doc, "checksums", "YAML", f.text, f.len, &e), RS_OK);
	ck_assert_ptr_nonnull(doc.root);
	ck_assert_msg(vectors_number(doc.root, name, &sum, &e) == RS_OK, "%s", e.msg);
	ydoc_close(&doc);
	vectors_close(&f);
	return (uint32_t)sum;
}

int vectors_check(const struct vectors_file *f, const struct vectors_section *sections, unsigned *ret_n,
		  struct rs_err *e)
{
	struct ydoc doc;
	int rc = ydoc_parse(&doc, "vectors", "YAML", f->text, f->len, e);

	if (rc)
		return rc;
	*ret_n = 0;
	if (!doc.root || doc.root->kind != YDOC_MAPPING)
		rc = rs_fail(e, RS_EPROTO, "the file has no sections");
	for (const struct ydoc_node *key = rc ? NULL : doc.root->child; !rc && key; key = key->next->next) {
		const struct vectors_section *s = sections;

		while (s->name && strcmp(s->name, key->text) != 0)
			s++;
		if (!s->name || key->next->kind != YDOC_LIST)
			rc = rs_fail(e, RS_EPROTO, "section %s is unknown", key->text);
		for (const struct ydoc_node *n = rc ? NULL : key->next->child; !rc && n; n = n->next, ++*ret_n) {
			rc = n->kind == YDOC_MAPPING ? s->check(n, e) : rs_fail(e, RS_EPROTO, "not an entry");
			if (rc)
				rs_wrap(e, "line %u (%s)", n->line, vectors_text(n, "meaning"));
		}
	}
	ydoc_close(&doc);
	return rc;
}

const struct ydoc_node *vectors_get(const struct ydoc_node *n, const char *key)
{
	if (n->kind != YDOC_MAPPING)
		return NULL;
	for (const struct ydoc_node *k = n->child; k; k = k->next->next)
		if (k->kind == YDOC_TEXT && strcmp(k->text, key) == 0)
			return k->next;
	return NULL;
}

const char *vectors_text(const struct ydoc_node *n, const char *key)
{
	const struct ydoc_node *value = vectors_get(n, key);

	return value && value->kind == YDOC_TEXT ? value->text : "";
}

static int number(const struct ydoc_node *n, uint64_t *ret, struct rs_err *e)
{
	char *end;

	if (!n || n->kind != YDOC_TEXT || !isdigit((unsigned char)n->text[0]))
		return rs_fail(e, RS_EPROTO, "expected a number");
	*ret = strtoull(n->text, &end, 10);
	return *end ? rs_fail(e, RS_EPROTO, "%s is not a number", n->text) : RS_OK;
}

int vectors_number(const struct ydoc_node *n, const char *key, uint64_t *ret, struct rs_err *e)
{
	return number(vectors_get(n, key), ret, e) ? rs_wrap(e, "%s", key) : RS_OK;
}

int vectors_bool(const struct ydoc_node *n, const char *key, bool *ret, struct rs_err *e)
{
	const char *text = vectors_text(n, key);

	*ret = strcmp(text, "true") == 0;
	return *ret || strcmp(text, "false") == 0 ? RS_OK : rs_fail(e, RS_EPROTO, "%s is not true or false", key);
}

int vectors_numbers(const struct ydoc_node *n, const char *key, uint64_t *ret, unsigned max, unsigned *ret_n,
		    struct rs_err *e)
{
	const struct ydoc_node *list = vectors_get(n, key);

	*ret_n = 0;
	if (!list || list->kind != YDOC_LIST)
		return rs_fail(e, RS_EPROTO, "%s is not a list", key);
	for (const struct ydoc_node *v = list->child; v; v = v->next)
		if (*ret_n == max || number(v, &ret[(*ret_n)++], e))
			return rs_fail(e, RS_EPROTO, "%s is not a list of at most %u numbers", key, max);
	return RS_OK;
}

int vectors_row(const struct ydoc_node *list, uint64_t *ret, unsigned n, struct rs_err *e)
{
	const struct ydoc_node *v = list->kind == YDOC_LIST ? list->child : NULL;

	for (unsigned i = 0; i < n; i++, v = v->next)
		if (!v || number(v, &ret[i], e))
			return rs_fail(e, RS_EPROTO, "expected %u numbers", n);
	return v ? rs_fail(e, RS_EPROTO, "expected %u numbers", n) : RS_OK;
}

int vectors_hex(struct vectors_bytes *ret, const char *hex, struct rs_err *e)
{
	static const char digits[] = "0123456789abcdef";
	size_t len = strlen(hex);

	if (len % 2 || len / 2 > sizeof ret->at)
		return rs_fail(e, RS_EPROTO, "%zu hexadecimal digits are too many or odd", len);
	for (size_t i = 0; i < len; i++) {
		const char *d = strchr(digits, hex[i]);

		if (!d)
			return rs_fail(e, RS_EPROTO, "%c is not a hexadecimal digit", hex[i]);
		ret->at[i / 2] = (uint8_t)(ret->at[i / 2] << 4 | (d - digits));
	}
	ret->len = (uint32_t)(len / 2);
	return RS_OK;
}

void vectors_put(uint8_t *to, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		to[i] = (uint8_t)(v >> (8 * i));
}

int vectors_load_secret(struct auth_secret *ret, const struct vectors_bytes *content, struct rs_err *e)
{
	char path[] = "/tmp/reduction-secret-XXXXXX";
	int fd = mkstemp(path), rc;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, content->at, content->len), (int)content->len);
	close(fd);
	rc = auth_secret_load(ret, path, e);
	unlink(path);
	return rc;
}

/* Writes a value of a message's field, or of an element of it, as the files have it. */
static void show(char *buf, size_t size, const ProtobufCFieldDescriptor *d, const uint8_t *at)
{
	const ProtobufCBinaryData *bytes = (const ProtobufCBinaryData *)at;
	size_t n = 0;

	switch (d->type) {
	case PROTOBUF_C_TYPE_STRING:
		snprintf(buf, size, "%s", *(char *const *)at);
		break;
	case PROTOBUF_C_TYPE_BYTES:
		buf[0] = '\0';
		for (size_t i = 0; i < bytes->len && n < size; i++)
			n += (size_t)snprintf(buf + n, size - n, "%02x", bytes->data[i]);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		snprintf(buf, size, "%s", *(const protobuf_c_boolean *)at ? "true" : "false");
		break;
	case PROTOBUF_C_TYPE_SINT32:
		snprintf(buf, size, "%" PRId32, *(const int32_t *)at);
		break;
	case PROTOBUF_C_TYPE_UINT32:
		snprintf(buf, size, "%" PRIu32, *(const uint32_t *)at);
		break;
	default:
		snprintf(buf, size, "%" PRIu64, *(const uint64_t *)at);
	}
}

static int compare(const ProtobufCFieldDescriptor *d, const uint8_t *at, const struct ydoc_node *want, struct rs_err *e)
{
	const char *zero = d->type == PROTOBUF_C_TYPE_BOOL ? "false" : "0";
	char found[600];

	if (d->type == PROTOBUF_C_TYPE_STRING || d->type == PROTOBUF_C_TYPE_BYTES)
		zero = "";
	show(found, sizeof found, d, at);
	if (want && want->kind != YDOC_TEXT)
		return rs_fail(e, RS_EPROTO, "%s is not a value", d->name);
	if (strcmp(found, want ? want->text : zero) != 0)
		return rs_fail(e, RS_EPROTO, "%s is %s in hex", d->name, found);
	return RS_OK;
}

static int compare_list(const ProtobufCFieldDescriptor *d, const uint8_t *message, const struct ydoc_node *want,
			struct rs_err *e)
{
	size_t n = *(const size_t *)(message + d->quantifier_offset);
	size_t size = d->type == PROTOBUF_C_TYPE_UINT64 ? sizeof(uint64_t) : sizeof(uint32_t);
	const uint8_t *at = *(uint8_t *const *)(message + d->offset);
	const struct ydoc_node *v = want ? want->child : NULL;

	for (size_t i = 0; i < n; i++, v = v->next)
		if (!v || compare(d, at + i * size, v, e))
			return rs_fail(e, RS_EPROTO, "%s[%zu] differs", d->name, i);
	return v ? rs_fail(e, RS_EPROTO, "%s has too many elements", d->name) : RS_OK;
}

/* Checks a message against its fields in the file; want NULL: it has none. Messages
 * within messages are not nested further. */
static int compare_message(const ProtobufCMessageDescriptor *d, const ProtobufCMessage *m, const struct ydoc_node *want,
			   unsigned depth, struct rs_err *e)
{
	int rc = RS_OK;

	for (const struct ydoc_node *k = want ? want->child : NULL; !rc && k; k = k->next->next)
		if (k->kind != YDOC_TEXT || !protobuf_c_message_descriptor_get_field_by_name(d, k->text))
			rc = rs_fail(e, RS_EPROTO, "a field is unknown");
	for (unsigned i = 0; !rc && i < d->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];
		const struct ydoc_node *value = want ? vectors_get(want, f->name) : NULL;
		const uint8_t *at = (const uint8_t *)m + f->offset;

		if (f->type == PROTOBUF_C_TYPE_MESSAGE && depth == 0) {
			if (!*(ProtobufCMessage *const *)at != !value)
				rc = rs_fail(e, RS_EPROTO, "%s is there on one side alone", f->name);
			else if (value)
				rc = compare_message(f->descriptor, *(ProtobufCMessage *const *)at, value, 1, e);
		} else {
			rc = f->label == PROTOBUF_C_LABEL_REPEATED ? compare_list(f, (const uint8_t *)m, value, e)
								   : compare(f, at, value, e);
		}
	}
	return rc;
}

/* Checks a message against its fields in the file, and that the fields give the same
 * bytes. */
static int check_message(const ProtobufCMessageDescriptor *d, const struct ydoc_node *want, const uint8_t *payload,
			 size_t len, struct rs_err *e)
{
	ProtobufCMessage *m = protobuf_c_message_unpack(d, NULL, len, payload);
	uint8_t again[FRAME_CONTROL_MAX];
	int rc;

	if (!m)
		return rs_fail(e, RS_EPROTO, "the message cannot be decoded");
	rc = compare_message(d, m, want, 0, e);
	if (!rc && (protobuf_c_message_get_packed_size(m) != len || protobuf_c_message_pack(m, again) != len ||
		    memcmp(again, payload, len) != 0))
		rc = rs_fail(e, RS_EPROTO, "the fields give other bytes");
	protobuf_c_message_free_unpacked(m, NULL);
	return rc;
}

static const ProtobufCMessageDescriptor *descriptor(unsigned type)
{
	static const ProtobufCMessageDescriptor *const of[FRAME_TYPE_NR] = {
	    [FRAME_HELLO] = &reduction__v1__hello__descriptor,
	    [FRAME_CHALLENGE] = &reduction__v1__challenge__descriptor,
	    [FRAME_PROOF] = &reduction__v1__proof__descriptor,
	    [FRAME_WELCOME] = &reduction__v1__welcome__descriptor,
	    [FRAME_REFUSED] = &reduction__v1__refused__descriptor,
	    [FRAME_WAITING] = &reduction__v1__waiting__descriptor,
	    [FRAME_START] = &reduction__v1__start__descriptor,
	    [FRAME_ABORT] = &reduction__v1__abort__descriptor,
	    [FRAME_LATE] = &reduction__v1__late__descriptor,
	    [FRAME_NONFINITE] = &reduction__v1__nonfinite__descriptor,
	    [FRAME_LOAD] = &reduction__v1__load__descriptor,
	    [FRAME_VIEW] = &reduction__v1__view__descriptor,
	    [FRAME_RESUME] = &reduction__v1__view__descriptor,
	};

	return of[type];
}

/* Reads `header`, whose unknown keys are errors. */
static int take_header(const struct ydoc_node *header, struct frame *f, struct rs_err *e)
{
	static const char *const names[] = {"flags",       "priority", "dtype",       "op",         "chunk",
					    "seq",         "count",    "ack",         "generation", "name_hash",
					    "chunk_elems", "tensors",  "payload_sum", "up",         "down"};
	enum { N = sizeof names / sizeof names[0] };
	uint64_t v[N] = {0};

	if (!header || header->kind != YDOC_MAPPING)
		return rs_fail(e, RS_EPROTO, "there is no header");
	for (const struct ydoc_node *k = header->child; k; k = k->next->next) {
		unsigned i = 0;

		while (i < N && strcmp(names[i], k->text) != 0)
			i++;
		if (i == N || number(k->next, &v[i], e))
			return rs_fail(e, RS_EPROTO, "header.%s is unknown or not a number", k->text);
	}
	f->flags = (uint8_t)v[0];
	f->of.priority = (uint8_t)v[1];
	f->of.dtype = (uint8_t)v[2];
	f->of.op = (uint8_t)v[3];
	f->chunk = (uint32_t)v[4];
	f->of.seq = v[5];
	f->of.count = v[6];
	f->ack = v[7];
	f->generation = (uint32_t)v[8];
	f->of.name_hash = (uint32_t)v[9];
	f->chunk_elems = (uint32_t)v[10];
	if (f->of.op & 8) {
		f->of.sharded = 1;
		f->of.op &= 23;
		f->of.parts = (uint32_t)v[11];
	} else if (f->of.op == FRAME_OP_BROADCAST) {
		f->of.root = (uint32_t)v[11] - 1;
	} else {
		f->of.tensors = (uint32_t)v[11];
	}
	f->payload_sum = (uint32_t)v[12];
	f->of.up = v[13] & 15;
	f->of.down = v[14] & 7;
	return RS_OK;
}

static int check_payload(const struct ydoc_node *n, const struct frame *f, const uint8_t *payload, struct rs_err *e)
{
	const struct ydoc_node *message = vectors_get(n, "message");
	struct vectors_bytes want;

	if (!control_intact(f, payload))
		return rs_fail(e, RS_EPROTO, "payload_sum is wrong");
	if (message && message->kind == YDOC_MAPPING && descriptor(f->type))
		return check_message(descriptor(f->type), message, payload, f->payload_len, e);
	if (vectors_hex(&want, vectors_text(n, "payload"), e))
		return e->code;
	if (want.len != f->payload_len || memcmp(want.at, payload, want.len) != 0)
		return rs_fail(e, RS_EPROTO, "the payload differs");
	return RS_OK;
}

int vectors_check_frame(const struct ydoc_node *n, struct vectors_bytes *ret_raw, struct rs_err *e)
{
	const char *from = vectors_text(n, "from");
	uint8_t head[FRAME_HEADER];
	struct frame f = {0}, found;
	int rc = vectors_hex(ret_raw, vectors_text(n, "hex"), e);

	if (rc)
		return rc;
	if (ret_raw->len < FRAME_HEADER)
		return rs_fail(e, RS_EPROTO, "hex has no whole header");
	rc = frame_decode(ret_raw->at, &found, e);
	if (!rc)
		rc = take_header(vectors_get(n, "header"), &f, e);
	if (rc)
		return rc;
	f.type = found.type;
	f.payload_len = ret_raw->len - FRAME_HEADER;
	frame_encode(&f, head);
	if (memcmp(head, ret_raw->at, sizeof head) != 0)
		return rs_fail(e, RS_EPROTO, "header and hex differ");
	if (strcmp(frame_type_name(f.type), vectors_text(n, "type")) != 0)
		return rs_fail(e, RS_EPROTO, "the type is %s", frame_type_name(f.type));
	if (strcmp(from, "worker") != 0 && strcmp(from, "reducer") != 0)
		return rs_fail(e, RS_EPROTO, "%s is neither worker nor reducer", from);
	return check_payload(n, &f, ret_raw->at + FRAME_HEADER, e);
}
