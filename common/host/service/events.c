/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/service/events.h"

#include "common/utf8.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

void events_init(struct events *all)
{
	all->next = 1;
	all->counts_n = 0;
}

/* Gives the event at a place of the ring its number, and counts its name. */
static void event_number(struct events *all, struct event *ev)
{
	const char *name = ev->name;
	unsigned i = 0;

	ev->sequence = all->next++;
	while (i < all->counts_n && strcmp(all->counts[i].name, name) != 0)
		i++;
	if (i >= EVENTS_KINDS - 1) {
		i = EVENTS_KINDS - 1;
		name = "other";
	}
	if (i >= all->counts_n) {
		snprintf(all->counts[i].name, sizeof all->counts[i].name, "%s", name);
		all->counts[i].n = 0;
		all->counts_n = i + 1;
	}
	all->counts[i].n++;
}

/* Copies as much text as fits, cut at the end of a character. Bytes that are not valid
 * UTF-8 are replaced. Returns false if there is no room. */
static bool add_text(struct event *ev, const char *text)
{
	size_t room = sizeof ev->text - ev->text_len, n = strnlen(text, room);

	if (n == room) {
		if (room < 2)
			return false;
		n = room - 1;
		while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
			n--;
	}
	memcpy(ev->text + ev->text_len, text, n);
	ev->text[ev->text_len + n] = '\0';
	rs_utf8_clean(ev->text + ev->text_len);
	ev->text_len += (unsigned)n + 1;
	return true;
}

static void add_field(struct event *ev, const struct rs_kv *kv)
{
	unsigned before = ev->text_len;
	char number[40];
	const char *value = number;

	switch (kv->kind) {
	case RS_KV_STR:
		value = kv->s ? kv->s : "";
		break;
	case RS_KV_INT:
		snprintf(number, sizeof number, "%" PRId64, kv->i);
		break;
	case RS_KV_UINT:
		snprintf(number, sizeof number, "%" PRIu64, kv->u);
		break;
	case RS_KV_DBL:
		snprintf(number, sizeof number, "%.6g", kv->d);
		break;
	}
	if (add_text(ev, kv->key) && add_text(ev, value))
		ev->fields_n++;
	else
		ev->text_len = before;
}

void event_make(struct event *ev, int64_t unix_ms, enum rs_log_level level, const char *name, const struct rs_kv *kv,
		unsigned n)
{
	ev->sequence = 0;
	ev->unix_ms = unix_ms;
	ev->level = level;
	ev->fields_n = ev->text_len = 0;
	snprintf(ev->name, sizeof ev->name, "%s", name);
	for (unsigned i = 0; i < n; i++)
		add_field(ev, &kv[i]);
}

void events_put(struct events *all, const struct event *ev)
{
	struct event *place = &all->kept[all->next % EVENTS_KEPT];

	memcpy(place, ev, offsetof(struct event, text) + ev->text_len);
	event_number(all, place);
}

void events_add(struct events *all, int64_t unix_ms, enum rs_log_level level, const char *name, const struct rs_kv *kv,
		unsigned n)
{
	struct event *place = &all->kept[all->next % EVENTS_KEPT];

	event_make(place, unix_ms, level, name, kv, n);
	event_number(all, place);
}

uint64_t events_oldest(const struct events *all)
{
	return all->next > EVENTS_KEPT ? all->next - EVENTS_KEPT : 1;
}

const struct event *events_get(const struct events *all, uint64_t sequence)
{
	if (sequence < events_oldest(all) || sequence >= all->next)
		return NULL;
	return &all->kept[sequence % EVENTS_KEPT];
}

bool event_names_job(const struct event *ev, const char *job)
{
	const char *at = ev->text;

	for (unsigned i = 0; i < ev->fields_n; i++) {
		const char *value = at + strlen(at) + 1;

		if (strcmp(at, "job") == 0 && strcmp(value, job) == 0)
			return true;
		at = value + strlen(value) + 1;
	}
	return false;
}
