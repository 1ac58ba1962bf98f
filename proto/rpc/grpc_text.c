/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's messages as sentences for users. */
#include "proto/rpc/grpc_priv.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int text_hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Converts "ipv4:127.0.0.1:80" or "ipv6:%5B::1%5D:80" into the usual form. */
static void text_peer(const char *uri, char buf[RPC_PEER_MAX])
{
	const char *from = uri ? strchr(uri, ':') : NULL;
	size_t n = 0;

	if (from && strncmp(uri, "unix:", 5) == 0) { /* the other end of a UNIX socket has no name */
		snprintf(buf, RPC_PEER_MAX, "unix:");
		return;
	}
	if (!from || (strncmp(uri, "ipv4:", 5) != 0 && strncmp(uri, "ipv6:", 5) != 0)) {
		snprintf(buf, RPC_PEER_MAX, "?");
		return;
	}
	for (from++; *from && n + 1 < RPC_PEER_MAX; from++) {
		if (from[0] == '%' && text_hex(from[1]) >= 0 && text_hex(from[2]) >= 0) {
			buf[n++] = (char)(text_hex(from[1]) * 16 + text_hex(from[2]));
			from += 2;
		} else {
			buf[n++] = *from;
		}
	}
	buf[n] = '\0';
}

void call_peer_text(grpc_call *call, char buf[RPC_PEER_MAX])
{
	char *uri = grpc_call_get_peer(call);

	text_peer(uri, buf);
	gpr_free(uri);
}

void call_certificate_text(grpc_call *call, char buf[RPC_CERTIFICATE_MAX])
{
	grpc_auth_context *ctx = grpc_call_auth_context(call);
	const grpc_auth_property *p;
	grpc_auth_property_iterator it;

	buf[0] = '\0';
	if (!ctx)
		return;
	it = grpc_auth_context_find_properties_by_name(ctx, GRPC_X509_PEM_CERT_PROPERTY_NAME);
	p = grpc_auth_property_iterator_next(&it);
	if (p && p->value_length < RPC_CERTIFICATE_MAX && !memchr(p->value, 0, p->value_length)) {
		memcpy(buf, p->value, p->value_length);
		buf[p->value_length] = '\0';
	}
	grpc_auth_context_release(ctx);
}

void slice_text(grpc_slice s, char *buf, size_t size)
{
	size_t n = GRPC_SLICE_LENGTH(s);

	if (n >= size)
		n = size - 1;
	memcpy(buf, GRPC_SLICE_START_PTR(s), n);
	buf[n] = '\0';
}

static const char *text_code_name(grpc_status_code code)
{
	static const char *const names[] = {
	    "OK",        "CANCELLED",       "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
	    "NOT_FOUND", "ALREADY_EXISTS",  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
	    "ABORTED",   "OUT_OF_RANGE",    "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
	    "DATA_LOSS", "UNAUTHENTICATED",
	};

	return (unsigned)code < sizeof names / sizeof names[0] ? names[code] : "an unknown status";
}

/* Causes that users can act on, by a phrase in gRPC's details. permanent: another attempt
 * does not change them. */
static const struct {
	const char *phrase, *sentence;
	bool permanent;
} known[] = {
    {"http1.x server", "the peer does not speak gRPC", false},
    {"before receiving SETTINGS", "the peer does not speak gRPC, or is overloaded", false},
    {"parsing HTTP/2", "the peer does not speak gRPC", false},
    {"WRONG_VERSION_NUMBER", "the peer speaks no TLS, and this side does (security.tls)", true},
    {"wrong version number", "the peer speaks no TLS, and this side does (security.tls)", true},
    {"is not in peer certificate", "its certificate is for another name", true},
    {"CERTIFICATE_VERIFY_FAILED", "its certificate is not accepted", true},
    {"certificate verify failed", "its certificate is not accepted", true},
};

/* The system's reason for a failed connection is at the end of the details; returns it as
 * the end of our sentence. */
static bool text_connect(const char *details, struct rs_err *ret)
{
	static const char before[] = "Failed to connect to remote host: ";
	const char *at = strstr(details, before);

	if (!at)
		return false;
	at += sizeof before - 1;
	rs_fail(ret, RS_EIO, "%c%s", tolower((unsigned char)at[0]), at[0] ? at + 1 : "");
	return true;
}

/* Returns the likely cause if the peer has closed a connection before it spoke gRPC, else
 * NULL. gRPC does not name it: a server of TLS just closes a connection that begins
 * without TLS, and with TLS 1.3 it refuses a certificate after the client's side of the
 * handshake is complete. */
static const char *text_closed(const char *details, enum client_security own)
{
	static const char *const causes[] = {
	    [CLIENT_PLAIN] = "it closed the new connection, and may speak TLS only (security.tls; reductionctl: "
			     "--authority)",
	    [CLIENT_TLS] = "it closed the new connection, and may expect a certificate (security.tls: mutual; "
			   "reductionctl: --certificate and --key)",
	    [CLIENT_CERTIFICATE] = "it closed the new connection, and may not accept this side's certificate "
				   "(security.authority of the peer)",
	};
	bool closed = strstr(details, "Socket closed") || strstr(details, "Connection reset by peer") ||
		      strstr(details, "Broken pipe");

	return closed && strstr(details, "failed to connect to all addresses") ? causes[own] : NULL;
}

void status_text(grpc_status_code code, const char *details, enum client_security own, struct rs_err *ret)
{
	const char *closed = text_closed(details, own);
	const unsigned n = sizeof known / sizeof known[0];
	unsigned i = 0;

	if (text_connect(details, ret))
		return;
	while (i < n && !strstr(details, known[i].phrase))
		i++;
	if (i < n)
		rs_fail(ret, known[i].permanent ? RS_EREFUSED : RS_EIO, "%s (gRPC %s: %s)", known[i].sentence,
			text_code_name(code), details);
	else if (closed)
		rs_fail(ret, RS_EIO, "%s (gRPC %s: %s)", closed, text_code_name(code), details);
	else if (details[0])
		rs_fail(ret, RS_EIO, "gRPC %s: %s", text_code_name(code), details);
	else
		rs_fail(ret, RS_EIO, "gRPC %s", text_code_name(code));
}

/* gRPC has no number for it. */
enum rs_loss status_loss(const char *details)
{
	if (strstr(details, "Connection reset by peer"))
		return RS_LOSS_RESET;
	return strstr(details, "Connection timed out") || strstr(details, "ping timeout") ? RS_LOSS_SILENT
											  : RS_LOSS_OTHER;
}
