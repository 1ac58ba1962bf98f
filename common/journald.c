/* SPDX-License-Identifier: Apache-2.0 */
#include "common/journald.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A message under construction. Invariant: len <= sizeof text; it consists of whole
 * fields. */
struct message {
	size_t len;
	char text[12 * 1024];
};

int rs_journald_open(void)
{
	const struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof at)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Appends a field whose value may contain any bytes: the name, a newline, its length in 8
 * bytes, the value, a newline. A field without room is left out. */
static void put_field(struct message *m, const char *name, const char *value, size_t len)
{
	size_t name_len = strlen(name);

	if (name_len + len + 10 > sizeof m->text - m->len)
		return;
	for (size_t i = 0; i < name_len; i++)
		m->text[m->len++] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 'a' + 'A' : name[i]);
	m->text[m->len++] = '\n';
	for (unsigned i = 0; i < 8; i++)
		m->text[m->len++] = (char)((uint64_t)len >> 8 * i & 0xff);
	memcpy(m->text + m->len, value, len);
	m->len += len;
	m->text[m->len++] = '\n';
}

static void put_pair(struct message *m, const struct rs_kv *kv)
{
	char num[40];
	int n = 0;

	switch (kv->kind) {
	case RS_KV_STR:
		put_field(m, kv->key, kv->s ? kv->s : "", kv->s ? strlen(kv->s) : 0);
		return;
	case RS_KV_INT:
		n = snprintf(num, sizeof num, "%" PRId64, kv->i);
		break;
	case RS_KV_UINT:
		n = snprintf(num, sizeof num, "%" PRIu64, kv->u);
		break;
	case RS_KV_DBL:
		n = snprintf(num, sizeof num, "%.6g", kv->d);
		break;
	}
	put_field(m, kv->key, num, (size_t)n);
}

int rs_journald_send(int fd, char priority, const char *event, const char *line, size_t len, const struct rs_kv *kv,
		     unsigned n)
{
	struct message m;

	m.len = 0;
	put_field(&m, "MESSAGE", line, len);
	put_field(&m, "PRIORITY", &priority, 1);
	put_field(&m, "SYSLOG_IDENTIFIER", program_invocation_short_name, strlen(program_invocation_short_name));
	put_field(&m, "EVENT", event, strlen(event));
	for (unsigned i = 0; i < n; i++)
		if (strcmp(kv[i].key, "event") != 0) /* of a line about other lines */
			put_pair(&m, &kv[i]);
	return send(fd, m.text, m.len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}
