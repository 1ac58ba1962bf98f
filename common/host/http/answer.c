/* SPDX-License-Identifier: Apache-2.0 */
#include "common/host/http/answer.h"

#include "common/address.h"
#include "common/host/http/json.h"
#include "common/host/http/metrics.h"
#include "common/host/http/page_html.h"
#include "proto/health.pb-c.h"
#include "proto/reduction.pb-c.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TEXT "text/plain; charset=utf-8"

static const struct http_path paths[] = {
    {"/", SERVICE_METHODS, false},       {"/metrics", SERVICE_STATUS, false}, {"/status", SERVICE_STATUS, false},
    {"/history", SERVICE_STATUS, false}, {"/events", SERVICE_EVENTS, true},   {"/jobs", SERVICE_EVENTS, true},
    {"/healthz", SERVICE_CHECK, false},  {"/readyz", SERVICE_CHECK, false},
};

const struct http_path *http_path_find(const char *path)
{
	for (unsigned i = 0; i < sizeof paths / sizeof paths[0]; i++)
		if (strcmp(paths[i].path, path) == 0)
			return &paths[i];
	return NULL;
}

bool http_result_add(struct http_result *r, const void *message, size_t len)
{
	uint32_t n = (uint32_t)len;

	if (r->size - r->len < sizeof n + len) {
		size_t size = 2 * r->size + sizeof n + len;
		uint8_t *more = realloc(r->messages, size);

		if (!more)
			return false;
		r->messages = more;
		r->size = size;
	}
	memcpy(r->messages + r->len, &n, sizeof n);
	memcpy(r->messages + r->len + sizeof n, message, len);
	r->len += sizeof n + len;
	return true;
}

/* Unpacks the message at *at and moves *at behind it; the caller frees it. NULL: there is
 * none, or no memory. */
static ProtobufCMessage *next_message(const struct http_result *r, size_t *at, const ProtobufCMessageDescriptor *type)
{
	ProtobufCMessage *m;
	uint32_t n;

	if (*at == r->len)
		return NULL;
	memcpy(&n, r->messages + *at, sizeof n);
	m = protobuf_c_message_unpack(type, NULL, n, r->messages + *at + sizeof n);
	*at += sizeof n + n;
	return m;
}

void http_answer_text(struct http_answer *ret, unsigned status, const char *text)
{
	size_t len = strlen(text);

	*ret = (struct http_answer){.status = status, .type = TEXT, .body = malloc(len + 2)};
	if (!ret->body) {
		*ret = (struct http_answer){
		    .status = 503, .type = TEXT, .body = (char *)"out of memory\n", .constant = true};
		ret->len = strlen(ret->body);
		return;
	}
	memcpy(ret->body, text, len);
	memcpy(ret->body + len, "\n", 2);
	ret->len = len + 1;
}

static unsigned status_of(enum rpc_code code)
{
	switch (code) {
	case RPC_CODE_OK:
		return 200;
	case RPC_CODE_UNAUTHENTICATED:
		return 401;
	case RPC_CODE_PERMISSION_DENIED:
		return 403;
	case RPC_CODE_INVALID_ARGUMENT:
		return 400;
	default:
		return 503;
	}
}

static void write_events(const struct http_result *r, FILE *out)
{
	ProtobufCMessage *m;
	size_t at = 0;

	fputc('[', out);
	while ((m = next_message(r, &at, &reduction__v1__event__descriptor))) {
		json_message(m, out);
		protobuf_c_message_free_unpacked(m, NULL);
		fputs(at < r->len ? ",\n" : "", out);
	}
	fputs("]\n", out);
}

static bool write_status(const struct http_result *r, const char *path, bool openmetrics, FILE *out)
{
	size_t at = 0;
	ProtobufCMessage *m = next_message(r, &at, &reduction__v1__status_reply__descriptor);

	if (!m)
		return false;
	if (strcmp(path, "/metrics") == 0) {
		metrics_write((const Reduction__V1__StatusReply *)m, openmetrics, out);
	} else {
		json_message(m, out);
		fputc('\n', out);
	}
	protobuf_c_message_free_unpacked(m, NULL);
	return true;
}

static void answer_health(struct http_answer *ret, const struct http_path *path, const struct http_result *r)
{
	size_t at = 0;
	ProtobufCMessage *m = next_message(r, &at, &grpc__health__v1__health_check_response__descriptor);
	bool ready = m && ((Grpc__Health__V1__HealthCheckResponse *)m)->status ==
			      GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;

	if (m)
		protobuf_c_message_free_unpacked(m, NULL);
	/* the process is alive, since its loop has answered */
	if (ready || strcmp(path->path, "/healthz") == 0)
		http_answer_text(ret, 200, "ok");
	else
		http_answer_text(ret, 503, "no new jobs are taken: it drains");
}

void http_answer_make(struct http_answer *ret, const struct http_path *path, const char *accept,
		      const struct http_result *r)
{
	bool openmetrics = strcmp(path->path, "/metrics") == 0 && http_accepts_openmetrics(accept), good = true;
	FILE *out;

	*ret = (struct http_answer){.status = status_of(r->code)};
	if (path->method == SERVICE_METHODS) {
		*ret = (struct http_answer){200, "text/html; charset=utf-8", (char *)page_html, sizeof page_html, true};
		return;
	}
	if (r->code) {
		http_answer_text(ret, ret->status, r->why);
		return;
	}
	if (path->method == SERVICE_CHECK) {
		answer_health(ret, path, r);
		return;
	}

	out = open_memstream(&ret->body, &ret->len);
	if (out && path->method == SERVICE_EVENTS)
		write_events(r, out);
	else if (out)
		good = write_status(r, path->path, openmetrics, out);
	if (!out || fclose(out) || !good) {
		free(ret->body);
		http_answer_text(ret, 503, "out of memory for the answer");
		return;
	}

	ret->type = strcmp(path->path, "/metrics") != 0 ? "application/json"
		    : openmetrics                       ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
							: "text/plain; version=0.0.4; charset=utf-8";
}

/* Returns the weight q of the entry for a type in a header Accept; -1: there is none. */
static double accept_weight(const char *accept, const char *type)
{
	double best = -1;

	while (accept && *accept) {
		size_t n = strcspn(accept, ","), skip = strspn(accept, " \t");
		const char *q = NULL;
		double weight = 1;

		if (skip < n && strncasecmp(accept + skip, type, strlen(type)) == 0) {
			for (const char *at = accept; at && at < accept + n; at = strchr(at + 1, ';'))
				if (strncmp(at, ";q=", 3) == 0 || strncmp(at, "; q=", 4) == 0)
					q = strchr(at, '=') + 1;
			if (q)
				weight = strtod(q, NULL);
			best = weight > best ? weight : best;
		}
		accept += n + (accept[n] == ',');
	}
	return best;
}

bool http_accepts_openmetrics(const char *accept)
{
	double open = accept_weight(accept, "application/openmetrics-text");

	return open > 0 && open >= accept_weight(accept, "text/plain");
}

bool http_host_is_plain(const char *host)
{
	char text[300];
	size_t n = strcspn(host, ":");
	struct rs_endpoint end;

	if (n == strlen("localhost") && strncasecmp(host, "localhost", n) == 0)
		return true;
	snprintf(text, sizeof text, "%s", host);
	if (rs_endpoint_of_text(&end, text))
		return true;
	snprintf(text, sizeof text, "%s:80", host);
	return rs_endpoint_of_text(&end, text);
}
