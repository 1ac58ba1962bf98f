/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/core/protocol.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	size_t bytes;
	enum { CLIENT = 1, AGENT = 2, BOTH = CLIENT | AGENT } from;
} types[LOCAL_TYPE_NR] = {
    [LOCAL_HELLO] = {"HELLO", sizeof(struct local_hello), CLIENT},
    [LOCAL_WELCOME] = {"WELCOME", sizeof(struct local_welcome), AGENT},
    [LOCAL_REFUSED] = {"REFUSED", sizeof(struct local_failure), AGENT},
    [LOCAL_READY] = {"READY", sizeof(struct local_ready), AGENT},
    [LOCAL_ALLOC] = {"ALLOC", sizeof(struct local_alloc), CLIENT},
    [LOCAL_ALLOCED] = {"ALLOCED", sizeof(struct local_alloced), AGENT},
    [LOCAL_FREE] = {"FREE", sizeof(struct local_free), CLIENT},
    [LOCAL_SUBMIT] = {"SUBMIT", sizeof(struct local_submit), CLIENT},
    [LOCAL_DONE] = {"DONE", sizeof(struct local_done), AGENT},
    [LOCAL_ABORT] = {"ABORT", sizeof(struct local_failure), BOTH},
    [LOCAL_STATS] = {"STATS", sizeof(struct local_head), CLIENT},
    [LOCAL_COUNTERS] = {"COUNTERS", sizeof(struct local_counters), AGENT},
    [LOCAL_GOODBYE] = {"GOODBYE", sizeof(struct local_head), CLIENT},
    [LOCAL_FILLED] = {"FILLED", sizeof(struct local_filled), CLIENT},
    [LOCAL_LANDED] = {"LANDED", sizeof(struct local_head), AGENT},
    [LOCAL_PING] = {"PING", sizeof(struct local_head), AGENT},
    [LOCAL_PONG] = {"PONG", sizeof(struct local_head), CLIENT},
};

static bool local_is_type(unsigned type)
{
	return type < LOCAL_TYPE_NR && types[type].name;
}

const char *local_type_name(unsigned type)
{
	return local_is_type(type) ? types[type].name : "type?";
}

void local_init(union local_message *m, enum local_type type)
{
	memset(m, 0, sizeof *m);
	m->head.version = LOCAL_VERSION;
	m->head.type = (uint16_t)type;
	m->head.bytes = (uint32_t)types[type].bytes;
}

static void local_terminate_strings(union local_message *m)
{
	switch (m->head.type) {
	case LOCAL_HELLO:
		m->hello.job[sizeof m->hello.job - 1] = 0;
		m->hello.run[sizeof m->hello.run - 1] = 0;
		m->hello.evidence[sizeof m->hello.evidence - 1] = 0;
		break;
	case LOCAL_SUBMIT:
		m->submit.name[sizeof m->submit.name - 1] = 0;
		break;
	case LOCAL_REFUSED:
	case LOCAL_ABORT:
		m->failure.message[sizeof m->failure.message - 1] = 0;
		break;
	case LOCAL_ALLOCED:
		m->alloced.message[sizeof m->alloced.message - 1] = 0;
		break;
	case LOCAL_DONE:
		m->done.message[sizeof m->done.message - 1] = 0;
		break;
	default:
		break;
	}
}

int local_check(union local_message *m, size_t n, bool from_client, struct rs_err *e)
{
	size_t expected;

	if (n < sizeof m->head)
		return rs_fail(e, RS_EPROTO, "a message of %zu bytes, expected at least %zu", n, sizeof m->head);
	if (m->head.version != LOCAL_VERSION)
		return rs_fail(e, RS_EPROTO, "version %u of the local protocol, expected version %d", m->head.version,
			       LOCAL_VERSION);
	if (!local_is_type(m->head.type))
		return rs_fail(e, RS_EPROTO, "a message of unknown type %u", m->head.type);
	if (!(types[m->head.type].from & (from_client ? CLIENT : AGENT)))
		return rs_fail(e, RS_EPROTO, "%s, which only the other side sends", local_type_name(m->head.type));
	expected = types[m->head.type].bytes;
	if (n != expected || m->head.bytes != n)
		return rs_fail(e, RS_EPROTO, "a %s of %zu bytes that says %u, expected %zu",
			       local_type_name(m->head.type), n, m->head.bytes, expected);
	local_terminate_strings(m);
	return RS_OK;
}

void local_put_text(char out[LOCAL_TEXT], const char *message)
{
	snprintf(out, LOCAL_TEXT, "%s", message);
}

socklen_t local_address(struct sockaddr_un *ret, const char *path)
{
	size_t len = strlen(path);

	if (len >= sizeof ret->sun_path)
		return 0;
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(ret->sun_path, path, len);
	if (!local_is_abstract(path))
		return sizeof *ret;
	ret->sun_path[0] = 0;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}
