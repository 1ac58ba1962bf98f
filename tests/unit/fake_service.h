/* SPDX-License-Identifier: Apache-2.0 */
/* The control and health services of a reducer whose other parts are stubs. */
#ifndef RS_TESTS_UNIT_FAKE_SERVICE_H
#define RS_TESTS_UNIT_FAKE_SERVICE_H

#include "common/host/service/service.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#define FSERVICE_READ_TOKEN  "read-read-read-read"
#define FSERVICE_ADMIN_TOKEN "admin-admin-admin-admin"
#define FSERVICE_OTHER_USER  "127.0.0.66:7" /* a process on this machine of another user */

/* The service, and what the stubs have seen. */
struct fake_service {
	struct service *s;
	struct events events, jobs;
	unsigned drains, reloads, collects, wakes, denials, grants;
	uint32_t timeout_ms;
	char because[40]; /* of the last drain */
	bool reload_fails, trace_fails;
	unsigned traces, trace_ends;
	struct trace_request asked;
	char denied[512];
};

/* Opens the service, with both tokens or without. The caller frees w->s. */
void fservice_open(struct fake_service *w, bool tokens);

/* A caller on this machine. */
extern const struct service_peer fservice_here;
/* Begins a call of it. request NULL: an empty one. */
struct service_call *fservice_begin(struct fake_service *w, enum service_method m, const ProtobufCMessage *request);

/* What comes next: the end of the call, which is freed; a message, which the caller
 * frees; nothing yet. */
void fservice_expect_end(struct service_call *c, enum rpc_code code, const char *says);
void *fservice_expect_message(struct service_call *c, const ProtobufCMessageDescriptor *type);
void fservice_expect_wait(struct service_call *c);

#endif
