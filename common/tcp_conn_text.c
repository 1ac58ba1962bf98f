/* SPDX-License-Identifier: Apache-2.0 */
/* Why a connection failed, as a sentence for users; OpenSSL's own texts need knowledge of
 * OpenSSL. */
#include "common/tcp_conn.h"
#include "common/tls.h"

#include <ctype.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>

enum { ALERTS = 1000 }; /* reasons of OpenSSL from this number on are alerts of the peer */

/* Describes the alert with which the peer ended the connection. */
static void alert_text(int alert, char buf[TCP_CONN_REASON])
{
	const char *text = SSL_alert_desc_string_long(alert);

	switch (alert) {
	case SSL_AD_BAD_CERTIFICATE:
	case SSL_AD_UNSUPPORTED_CERTIFICATE:
	case SSL_AD_CERTIFICATE_REVOKED:
	case SSL_AD_CERTIFICATE_EXPIRED:
	case SSL_AD_CERTIFICATE_UNKNOWN:
	case SSL_AD_UNKNOWN_CA:
		snprintf(buf, TCP_CONN_REASON, "it does not accept the certificate that it was shown (%s)", text);
		break;
	case TLS13_AD_CERTIFICATE_REQUIRED:
		snprintf(buf, TCP_CONN_REASON, "it asks for a certificate: its security.tls is mutual");
		break;
	case SSL_AD_PROTOCOL_VERSION:
		snprintf(buf, TCP_CONN_REASON, "it does not speak this version of TLS");
		break;
	case TLS1_AD_NO_APPLICATION_PROTOCOL:
		snprintf(buf, TCP_CONN_REASON, "it speaks another protocol than reduction/1 over TLS");
		break;
	default:
		snprintf(buf, TCP_CONN_REASON, "it ended TLS with the alert \"%s\"", text);
	}
}

static void verify_text(const struct tcp_conn *c, char buf[TCP_CONN_REASON])
{
	long result = SSL_get_verify_result(c->ssl);
	char names[TLS_NAMES_MAX];

	tls_names(c->rejected, names);
	if (result == X509_V_ERR_HOSTNAME_MISMATCH || result == X509_V_ERR_IP_ADDRESS_MISMATCH)
		snprintf(buf, TCP_CONN_REASON,
			 "its certificate is for %.180s, not for the name or address that was connected to",
			 names[0] ? names : "no name");
	else
		snprintf(buf, TCP_CONN_REASON, "its certificate%s%.128s%s is not accepted: %.80s", names[0] ? " (" : "",
			 names, names[0] ? ")" : "", X509_verify_cert_error_string(result));
}

static void code_text(const struct tcp_conn *c, char buf[TCP_CONN_REASON])
{
	int reason = ERR_GET_REASON(c->code);
	const char *text = ERR_reason_error_string(c->code);

	if (ERR_GET_LIB(c->code) == ERR_LIB_SSL && reason >= ALERTS) {
		alert_text(reason - ALERTS, buf);
		return;
	}
	switch (reason) {
	case SSL_R_CERTIFICATE_VERIFY_FAILED:
		verify_text(c, buf);
		break;
	case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
		snprintf(buf, TCP_CONN_REASON, "it shows no certificate, and security.tls: mutual asks for one");
		break;
	case SSL_R_NO_APPLICATION_PROTOCOL:
		snprintf(buf, TCP_CONN_REASON, "it speaks another protocol than reduction/1 over TLS");
		break;
	case SSL_R_UNSUPPORTED_PROTOCOL:
		snprintf(buf, TCP_CONN_REASON, "it does not speak TLS 1.3");
		break;
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_HTTP_REQUEST:
	case SSL_R_PACKET_LENGTH_TOO_LONG:
		snprintf(buf, TCP_CONN_REASON, "it does not speak TLS");
		break;
	default:
		snprintf(buf, TCP_CONN_REASON, "TLS failed: %s", text ? text : "OpenSSL gives no reason");
	}
}

const char *tcp_conn_reason(const struct tcp_conn *c, char buf[TCP_CONN_REASON])
{
	if (c->not_tls)
		snprintf(buf, TCP_CONN_REASON, "it does not speak TLS");
	else if (c->error == ENOBUFS)
		snprintf(buf, TCP_CONN_REASON, "it asks for new TLS keys and does not read them");
	else if (c->error) {
		errno = c->error;
		snprintf(buf, TCP_CONN_REASON, "%m"); /* strerror is not thread-safe */
		if (isupper((unsigned char)buf[0]) && islower((unsigned char)buf[1]))
			buf[0] = (char)tolower((unsigned char)buf[0]);
	} else if (c->code) {
		code_text(c, buf);
	} else {
		snprintf(buf, TCP_CONN_REASON, "it closed the connection%s",
			 !c->ssl ? ""
			 : c->up ? " without ending TLS first"
				 : " during the TLS handshake");
	}
	return buf;
}
