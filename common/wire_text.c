/* SPDX-License-Identifier: Apache-2.0 */
/* Why a connection failed, in words. OpenSSL's own are for those who know OpenSSL. */
#include "common/tls.h"
#include "common/wire.h"

#include <ctype.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>

enum { ALERTS = 1000 }; /* OpenSSL's reasons from here on are alerts of the peer */

/* The peer's last word. */
static void alert_text(int alert, char buf[WIRE_REASON])
{
	const char *text = SSL_alert_desc_string_long(alert);

	switch (alert) {
	case SSL_AD_BAD_CERTIFICATE:
	case SSL_AD_UNSUPPORTED_CERTIFICATE:
	case SSL_AD_CERTIFICATE_REVOKED:
	case SSL_AD_CERTIFICATE_EXPIRED:
	case SSL_AD_CERTIFICATE_UNKNOWN:
	case SSL_AD_UNKNOWN_CA:
		snprintf(buf, WIRE_REASON, "it does not accept the certificate that it was shown (%s)", text);
		break;
	case TLS13_AD_CERTIFICATE_REQUIRED:
		snprintf(buf, WIRE_REASON, "it asks for a certificate: its security.tls is mutual");
		break;
	case SSL_AD_PROTOCOL_VERSION:
		snprintf(buf, WIRE_REASON, "it does not speak this version of TLS");
		break;
	case TLS1_AD_NO_APPLICATION_PROTOCOL:
		snprintf(buf, WIRE_REASON, "it speaks another protocol than reduction/1 over TLS");
		break;
	default:
		snprintf(buf, WIRE_REASON, "it ended TLS with the alert \"%s\"", text);
	}
}

static void verify_text(const struct wire *w, char buf[WIRE_REASON])
{
	long result = SSL_get_verify_result(w->ssl);
	char names[TLS_NAMES_MAX];

	tls_names(w->unaccepted, names);
	if (result == X509_V_ERR_HOSTNAME_MISMATCH || result == X509_V_ERR_IP_ADDRESS_MISMATCH)
		snprintf(buf, WIRE_REASON,
			 "its certificate is for %.180s, not for the name or address it was asked for by",
			 names[0] ? names : "no name");
	else
		snprintf(buf, WIRE_REASON, "its certificate%s%.128s%s is not accepted: %.80s", names[0] ? " (" : "",
			 names, names[0] ? ")" : "", X509_verify_cert_error_string(result));
}

static void code_text(const struct wire *w, char buf[WIRE_REASON])
{
	int reason = ERR_GET_REASON(w->code);
	const char *text = ERR_reason_error_string(w->code);

	if (ERR_GET_LIB(w->code) == ERR_LIB_SSL && reason >= ALERTS) {
		alert_text(reason - ALERTS, buf);
		return;
	}
	switch (reason) {
	case SSL_R_CERTIFICATE_VERIFY_FAILED:
		verify_text(w, buf);
		break;
	case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
		snprintf(buf, WIRE_REASON, "it shows no certificate, and security.tls: mutual asks for one");
		break;
	case SSL_R_NO_APPLICATION_PROTOCOL:
		snprintf(buf, WIRE_REASON, "it speaks another protocol than reduction/1 over TLS");
		break;
	case SSL_R_UNSUPPORTED_PROTOCOL:
		snprintf(buf, WIRE_REASON, "it does not speak TLS 1.3");
		break;
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_HTTP_REQUEST:
	case SSL_R_PACKET_LENGTH_TOO_LONG:
		snprintf(buf, WIRE_REASON, "it does not speak TLS");
		break;
	default:
		snprintf(buf, WIRE_REASON, "TLS failed: %s", text ? text : "OpenSSL does not say why");
	}
}

const char *wire_reason(const struct wire *w, char buf[WIRE_REASON])
{
	if (w->foreign)
		snprintf(buf, WIRE_REASON, "it does not speak TLS");
	else if (w->error == ENOBUFS)
		snprintf(buf, WIRE_REASON, "it asks for new keys and does not read them");
	else if (w->error) {
		errno = w->error;
		snprintf(buf, WIRE_REASON, "%m"); /* strerror is not thread-safe */
		if (isupper((unsigned char)buf[0]) && islower((unsigned char)buf[1]))
			buf[0] = (char)tolower((unsigned char)buf[0]);
	} else if (w->code) {
		code_text(w, buf);
	} else {
		snprintf(buf, WIRE_REASON, "it closed the connection%s",
			 !w->ssl ? ""
			 : w->up ? " without ending TLS first"
				 : " during the TLS handshake");
	}
	return buf;
}
