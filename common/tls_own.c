/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tls_own.h"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <time.h>

int tls_own_days(const SSL_CTX *ctx, char ret_date[TLS_EXPIRY_TEXT])
{
	const X509 *cert = SSL_CTX_get0_certificate(ctx);
	char names[TLS_NAMES_MAX];
	int days = 0, seconds = 0;

	tls_own_certificate(ctx, names, ret_date);
	if (cert && !ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(cert)))
		ERR_clear_error();
	return days;
}

int64_t tls_own_expiry(const SSL_CTX *ctx)
{
	const X509 *cert = ctx ? SSL_CTX_get0_certificate(ctx) : NULL;
	struct tm tm;

	if (cert && ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm))
		return timegm(&tm);
	ERR_clear_error();
	return 0;
}

bool tls_own_is_for(const SSL_CTX *ctx, const char *name)
{
	X509 *cert = SSL_CTX_get0_certificate(ctx);
	bool is = cert && (X509_check_ip_asc(cert, name, 0) == 1 ||
			   X509_check_host(cert, name, 0, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL) == 1);

	ERR_clear_error();
	return is;
}

int tls_own_verify(SSL_CTX *ctx, bool reducer, struct rs_err *e)
{
	X509_STORE_CTX *verify = X509_STORE_CTX_new();
	STACK_OF(X509) *chain = NULL;
	int rc = RS_OK;

	SSL_CTX_get0_chain_certs(ctx, &chain);
	if (!verify ||
	    !X509_STORE_CTX_init(verify, SSL_CTX_get_cert_store(ctx), SSL_CTX_get0_certificate(ctx), chain) ||
	    !X509_STORE_CTX_set_default(verify, reducer ? "ssl_server" : "ssl_client"))
		rc = rs_oom(e, 0, "TLS");
	else if (X509_verify_cert(verify) != 1)
		rc = rs_fail(e, RS_ECONFIG, "%s", X509_verify_cert_error_string(X509_STORE_CTX_get_error(verify)));
	X509_STORE_CTX_free(verify);
	ERR_clear_error();
	return rc;
}
