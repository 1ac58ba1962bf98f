/* SPDX-License-Identifier: Apache-2.0 */
/* What the HTTP port answers. Any thread. */
#ifndef RS_COMMON_HOST_HTTP_ANSWER_H
#define RS_COMMON_HOST_HTTP_ANSWER_H

#include "common/host/service/service.h"

/* One path of the port. */
struct http_path {
	const char *path;
	enum service_method method; /* SERVICE_METHODS: it needs no call, and is the page */
	bool past_events;           /* the request is for the events so far */
};

/* Returns the entry of a path; NULL: there is none. */
const struct http_path *http_path_find(const char *path);

/* The result of a call: its messages, each behind its length in 4 bytes of this machine's
 * order. */
struct http_result {
	enum rpc_code code;
	char why[512];
	uint8_t *messages;
	size_t len, size;
};

/* Adds a message. Returns false without memory. */
bool http_result_add(struct http_result *r, const void *message, size_t len);

/* An answer. The caller frees `body`, unless it is constant. */
struct http_answer {
	unsigned status;
	const char *type; /* of the content */
	char *body;
	size_t len;
	bool constant;
};

/* Makes the answer for a path. accept: the header of that name, or NULL. */
void http_answer_make(struct http_answer *ret, const struct http_path *path, const char *accept,
		      const struct http_result *r);
/* Makes an answer with a sentence. */
void http_answer_text(struct http_answer *ret, unsigned status, const char *text);

/* Returns whether a header Accept asks for OpenMetrics rather than for Prometheus'
 * text. */
bool http_accepts_openmetrics(const char *accept);
/* Returns whether a header Host names this machine by an address or as localhost. A page
 * of another site, whose name was made to lead here, sends that name. */
bool http_host_is_plain(const char *host);

#endif
