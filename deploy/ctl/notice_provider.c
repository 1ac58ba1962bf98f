/* SPDX-License-Identifier: Apache-2.0 */
/* What each provider is asked, and what its answers mean:
 *
 * AWS, Instance Metadata Service version 2: PUT /latest/api/token gives a token of six
 * hours. spot/instance-action is 404 until two minutes before the end, then
 * {"action": "terminate", "time": "2017-09-18T08:22:00Z"}. A rebalance recommendation
 * often comes earlier, and says nothing certain.
 * GCP: instance/preempted is FALSE, and TRUE from 30 seconds before the end. With
 * wait_for_change the server answers when it changes.
 * Azure, Scheduled Events: a list, of events of all machines of the group. Preempt comes
 * at least 30 seconds before the end, Terminate some minutes, if it is switched on. */
#include "config/ydoc.h"
#include "deploy/ctl/notice.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
	ASK_MS = 5000,           /* for an answer that comes at once */
	GCP_WAIT_S = 60,         /* how long GCP's server waits for a change */
	GCP_NOTICE_S = 30,       /* from its notice to the end */
	AZURE_FIRST_MS = 130000, /* its first answer of all takes up to two minutes */
};

static const struct {
	const char *name;
	uint32_t pause_ms, most_pause_ms;
} providers[NOTICE_PROVIDERS] = {
    [NOTICE_AWS] = {"aws", 5000, 20000},
    [NOTICE_GCP] = {"gcp", 200, 5000},
    [NOTICE_AZURE] = {"azure", 1000, 5000},
};

const char *notice_provider_name(enum notice_provider provider)
{
	return providers[provider].name;
}

uint32_t notice_pause_ms(const struct notice_watch *w)
{
	return providers[w->provider].pause_ms;
}

uint32_t notice_most_pause_ms(const struct notice_watch *w)
{
	return providers[w->provider].most_pause_ms;
}

bool notice_provider_find(const char *folder, enum notice_provider *ret)
{
	static const struct {
		const char *file, *has;
		enum notice_provider provider;
	} rows[] = {
	    {"sys_vendor", "Amazon EC2", NOTICE_AWS},
	    {"bios_version", "amazon", NOTICE_AWS}, /* older ones, on Xen */
	    {"product_name", "Google Compute Engine", NOTICE_GCP},
	    {"chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77", NOTICE_AZURE},
	};

	for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char path[512], text[256] = "";
		FILE *f;

		snprintf(path, sizeof path, "%s/%s", folder, rows[i].file);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (!fgets(text, sizeof text, f))
			text[0] = '\0';
		fclose(f);
		if (strstr(text, rows[i].has)) {
			*ret = rows[i].provider;
			return true;
		}
	}
	return false;
}

static void aws_question(const struct notice_watch *w, struct notice_request *ret)
{
	static const char *const paths[] = {
	    [NOTICE_STEP_FIRST] = "/latest/api/token",
	    [NOTICE_STEP_EVENTS] = "/latest/meta-data/spot/instance-action",
	    [NOTICE_STEP_ADVICE] = "/latest/meta-data/events/recommendations/rebalance",
	};

	snprintf(ret->path, sizeof ret->path, "%s", paths[w->step]);
	if (w->step == NOTICE_STEP_FIRST) {
		ret->method = "PUT";
		snprintf(ret->headers, sizeof ret->headers, "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n");
	} else {
		snprintf(ret->headers, sizeof ret->headers, "X-aws-ec2-metadata-token: %s\r\n", w->token);
	}
}

static void gcp_question(const struct notice_watch *w, struct notice_request *ret)
{
	int n = snprintf(ret->path, sizeof ret->path, "/computeMetadata/v1/instance/preempted");

	if (w->step == NOTICE_STEP_EVENTS) {
		snprintf(ret->path + n, sizeof ret->path - (size_t)n,
			 "?wait_for_change=true&timeout_sec=%d&last_etag=%s", GCP_WAIT_S, w->etag);
		ret->timeout_ms = GCP_WAIT_S * 1000 + 2 * ASK_MS;
	}
	snprintf(ret->headers, sizeof ret->headers, "Metadata-Flavor: Google\r\n");
}

static void azure_question(const struct notice_watch *w, struct notice_request *ret)
{
	snprintf(ret->path, sizeof ret->path, "%s",
		 w->step == NOTICE_STEP_FIRST ? "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
					      : "/metadata/scheduledevents?api-version=2020-07-01");
	snprintf(ret->headers, sizeof ret->headers, "Metadata: true\r\n");
	if (w->step == NOTICE_STEP_EVENTS && !w->answered)
		ret->timeout_ms = AZURE_FIRST_MS;
}

void notice_question(const struct notice_watch *w, struct notice_request *ret)
{
	static void (*const ask[NOTICE_PROVIDERS])(const struct notice_watch *, struct notice_request *) = {
	    aws_question, gcp_question, azure_question};

	*ret = (struct notice_request){.method = "GET", .timeout_ms = ASK_MS};
	ask[w->provider](w, ret);
}

void notice_acknowledgement(const struct notice_watch *w, struct notice_request *ret)
{
	*ret = (struct notice_request){.method = "POST", .timeout_ms = ASK_MS};
	snprintf(ret->path, sizeof ret->path, "/metadata/scheduledevents?api-version=2020-07-01");
	snprintf(ret->headers, sizeof ret->headers, "Metadata: true\r\nContent-Type: application/json\r\n");
	snprintf(ret->body, sizeof ret->body, "{\"StartRequests\":[{\"EventId\":\"%s\"}]}", w->event);
}

/* Returns the value of a key; NULL: the node is no mapping, or has none. */
static const struct ydoc_node *json_get(const struct ydoc_node *n, const char *key)
{
	if (!n || n->kind != YDOC_MAPPING)
		return NULL;
	for (const struct ydoc_node *k = n->child; k && k->next; k = k->next->next)
		if (k->kind == YDOC_TEXT && strcmp(k->text, key) == 0)
			return k->next;
	return NULL;
}

static const char *json_text(const struct ydoc_node *n, const char *key)
{
	const struct ydoc_node *value = json_get(n, key);

	return value && value->kind == YDOC_TEXT ? value->text : "";
}

/* Returns a time as the providers write it, in seconds since 1970; 0: it is none. */
static int64_t time_of(const char *text)
{
	static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S", "%a, %d %b %Y %H:%M:%S"};

	for (unsigned i = 0; i < sizeof forms / sizeof forms[0]; i++) {
		struct tm tm = {0};

		if (strptime(text, forms[i], &tm))
			return timegm(&tm);
	}
	return 0;
}

/* Copies letters, digits and some signs of a word of the server. */
static void take_word(char *to, size_t size, const char *from)
{
	size_t n = 0;

	for (; *from && n + 1 < size; from++)
		if (isalnum((unsigned char)*from) || strchr("-_.=+/:", *from))
			to[n++] = *from;
	to[n] = '\0';
}

static enum notice_word failed(const struct notice_answer *a, const char *what, struct rs_err *e)
{
	rs_fail(e, RS_EPROTO, "%s: its answer has the status %d%s", what, a->status,
		a->status == 429 || a->status == 503 ? " (too many requests)"
		: a->status == 403                   ? " (the service is switched off for this machine)"
						     : "");
	return NOTICE_FAILED;
}

static enum notice_word aws_take_notice(struct notice_watch *w, const struct notice_answer *a, struct rs_err *e)
{
	struct ydoc doc;

	if (ydoc_parse(&doc, "spot/instance-action", "JSON", a->body, a->body_len, e))
		return NOTICE_FAILED;
	take_word(w->what, sizeof w->what, json_text(doc.root, "action"));
	w->at_s = time_of(json_text(doc.root, "time"));
	ydoc_close(&doc);
	return NOTICE_STANDS;
}

static enum notice_word aws_take_hint(struct notice_watch *w, const struct notice_answer *a)
{
	char body[NOTICE_NAME];

	take_word(body, sizeof body, a->body);
	if (strcmp(body, w->hinted) == 0)
		return NOTICE_NONE;
	memcpy(w->hinted, body, sizeof body);
	snprintf(w->what, sizeof w->what, "rebalance");
	return NOTICE_HINT;
}

static enum notice_word aws_take(struct notice_watch *w, const struct notice_answer *a, int64_t now_s, struct rs_err *e)
{
	bool notice = w->step == NOTICE_STEP_EVENTS;

	(void)now_s;
	if (w->step == NOTICE_STEP_FIRST) {
		if (a->status != 200)
			return failed(a, "the token", e);
		take_word(w->token, sizeof w->token, a->body);
		w->fresh = true;
		w->step = NOTICE_STEP_EVENTS;
		return NOTICE_NEXT;
	}
	w->step = NOTICE_STEP_EVENTS;
	if (a->status == 401) {
		w->step = NOTICE_STEP_FIRST; /* the token has expired */
		return w->fresh ? failed(a, "the token is refused", e) : NOTICE_NEXT;
	}
	w->fresh = false;
	if (a->status != 200 && a->status != 404)
		return failed(a, notice ? "the notice" : "the recommendation", e);
	if (a->status == 200)
		return notice ? aws_take_notice(w, a, e) : aws_take_hint(w, a);
	if (!notice)
		return NOTICE_NONE;
	w->step = NOTICE_STEP_ADVICE;
	return NOTICE_NEXT;
}

static enum notice_word gcp_take(struct notice_watch *w, const struct notice_answer *a, int64_t now_s, struct rs_err *e)
{
	bool preempted = strncmp(a->body, "TRUE", 4) == 0;

	if (a->status != 200)
		return failed(a, "the notice", e);
	if (!a->google || (!preempted && strncmp(a->body, "FALSE", 5) != 0)) {
		rs_fail(e, RS_EPROTO, "another server than Google's answers");
		return NOTICE_FAILED;
	}
	take_word(w->etag, sizeof w->etag, a->etag);
	w->step = w->etag[0] ? NOTICE_STEP_EVENTS : NOTICE_STEP_FIRST;
	if (!preempted) {
		w->at_s = 0;
		return NOTICE_NONE;
	}
	snprintf(w->what, sizeof w->what, "preempted");
	w->at_s = w->at_s ? w->at_s : now_s + GCP_NOTICE_S;
	return NOTICE_STANDS;
}

/* Returns whether an event is for this machine. */
static bool azure_is_mine(const struct notice_watch *w, const struct ydoc_node *event)
{
	const struct ydoc_node *names = json_get(event, "Resources");

	for (const struct ydoc_node *n = names && names->kind == YDOC_LIST ? names->child : NULL; n; n = n->next)
		if (n->kind == YDOC_TEXT && strcmp(n->text, w->name) == 0)
			return true;
	return false;
}

static enum notice_word azure_take_events(struct notice_watch *w, const struct ydoc_node *root)
{
	const struct ydoc_node *list = json_get(root, "Events");
	const char *other = "", *id = "";

	for (const struct ydoc_node *n = list && list->kind == YDOC_LIST ? list->child : NULL; n; n = n->next) {
		const char *type = json_text(n, "EventType");

		if (!azure_is_mine(w, n))
			continue;
		if (strcmp(type, "Preempt") == 0 || strcmp(type, "Terminate") == 0) {
			take_word(w->what, sizeof w->what, type);
			take_word(w->event, sizeof w->event, json_text(n, "EventId"));
			w->at_s = time_of(json_text(n, "NotBefore")); /* empty once it has started */
			return NOTICE_STANDS;
		}
		other = type;
		id = json_text(n, "EventId");
	}
	if (!*other || strcmp(id, w->hinted) == 0)
		return NOTICE_NONE;
	snprintf(w->hinted, sizeof w->hinted, "%s", id);
	take_word(w->what, sizeof w->what, other);
	return NOTICE_HINT;
}

static enum notice_word azure_take(struct notice_watch *w, const struct notice_answer *a, int64_t now_s,
				   struct rs_err *e)
{
	enum notice_word word;
	struct ydoc doc;

	(void)now_s;
	if (a->status != 200)
		return failed(a, w->step == NOTICE_STEP_FIRST ? "the name of this machine" : "the events", e);
	if (w->step == NOTICE_STEP_FIRST) {
		take_word(w->name, sizeof w->name, a->body);
		w->step = NOTICE_STEP_EVENTS;
		return NOTICE_NEXT;
	}
	w->answered = true;
	if (ydoc_parse(&doc, "scheduledevents", "JSON", a->body, a->body_len, e))
		return NOTICE_FAILED;
	word = azure_take_events(w, doc.root);
	ydoc_close(&doc);
	return word;
}

enum notice_word notice_take(struct notice_watch *w, const struct notice_answer *a, int64_t now_s, struct rs_err *e)
{
	static enum notice_word (*const take[NOTICE_PROVIDERS])(struct notice_watch *, const struct notice_answer *,
								int64_t,
								struct rs_err *) = {aws_take, gcp_take, azure_take};

	return take[w->provider](w, a, now_s, e);
}
