/* SPDX-License-Identifier: Apache-2.0 */
/* The providers' notices that a machine is about to end. notice_provider.c knows what to
 * ask and what an answer means, notice_http.c reads answers; both do no I/O.
 * notice_ask.c asks, and notice.c is the command. One thread. */
#ifndef RS_DEPLOY_CTL_NOTICE_H
#define RS_DEPLOY_CTL_NOTICE_H

#include "common/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum notice_provider { NOTICE_AWS, NOTICE_GCP, NOTICE_AZURE, NOTICE_PROVIDERS };

enum {
	NOTICE_BODY = 64 << 10, /* most bytes of an answer, with its header */
	NOTICE_TOKEN = 256,
	NOTICE_ETAG = 80,
	NOTICE_NAME = 128,
	NOTICE_WHAT = 64,
};

/* A request. */
struct notice_request {
	const char *method;
	char path[256];    /* with the query */
	char headers[512]; /* lines with their ends */
	char body[256];
	uint32_t timeout_ms; /* for the whole answer */
};

/* An answer. `body` is in the buffer it was read into. */
struct notice_answer {
	int status;
	bool google; /* it has the header Metadata-Flavor: Google */
	char etag[NOTICE_ETAG];
	char *body; /* terminated */
	size_t body_len;
};

/* What an answer means. */
enum notice_word {
	NOTICE_NEXT,   /* nothing yet: ask the next question at once */
	NOTICE_NONE,   /* there is no notice: ask again after pause_ms */
	NOTICE_STANDS, /* there is one: what, at_s, event; ask again after pause_ms */
	NOTICE_HINT,   /* none, but `what` is worth a line in the log; ask again after pause_ms */
	NOTICE_FAILED, /* the error says why; ask again after a growing pause, at most most_pause_ms */
};

/* The watch of one machine. The caller sets the provider only. */
struct notice_watch {
	enum notice_provider provider;
	enum { NOTICE_STEP_FIRST, NOTICE_STEP_EVENTS, NOTICE_STEP_ADVICE } step;
	char token[NOTICE_TOKEN]; /* AWS */
	bool fresh;               /* AWS: the token has not been accepted yet */
	char etag[NOTICE_ETAG];   /* GCP */
	char name[NOTICE_NAME];   /* Azure: of this machine */
	bool answered;            /* Azure: its first answer takes up to two minutes */
	char what[NOTICE_WHAT];   /* "terminate", "Preempt", ... */
	char event[NOTICE_NAME];  /* Azure: the id */
	char hinted[NOTICE_NAME]; /* the last hint, which is not repeated */
	int64_t at_s;             /* when the machine ends, seconds since 1970; 0: not known */
};

/* Returns "aws", "gcp" or "azure". */
const char *notice_provider_name(enum notice_provider provider);
/* Finds the provider by what the firmware says of the machine, in files of `folder`
 * (/sys/class/dmi/id). Returns whether it is one of them. */
bool notice_provider_find(const char *folder, enum notice_provider *ret);

uint32_t notice_pause_ms(const struct notice_watch *w);
uint32_t notice_most_pause_ms(const struct notice_watch *w);
/* Writes the next question. */
void notice_question(const struct notice_watch *w, struct notice_request *ret);
/* Takes the answer to it, at a time in seconds since 1970. Errors: NOTICE_FAILED. */
enum notice_word notice_take(struct notice_watch *w, const struct notice_answer *a, int64_t now_s, struct rs_err *e);
/* Writes the request that lets Azure start the event of the notice. */
void notice_acknowledgement(const struct notice_watch *w, struct notice_request *ret);

/* Reads an answer of len bytes, which it changes; text[len] is writable. `ended`: the
 * peer has closed. Returns 1: complete; 0: more bytes must follow; negative: an error. */
int notice_http_read(char *text, size_t len, bool ended, struct notice_answer *ret, struct rs_err *e);

/* Sends a request to "host:port" and waits for the answer, in `text` of NOTICE_BODY + 1
 * bytes. Errors: RS_EIO, RS_ETIMEOUT, RS_EPROTO. */
int notice_ask(const char *address, const struct notice_request *q, char *text, struct notice_answer *ret,
	       struct rs_err *e);
/* Returns whether nothing listens on "host:port". */
bool notice_is_free(const char *address);

#endif
