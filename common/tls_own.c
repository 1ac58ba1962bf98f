/* SPDX-License-Identifier: Apache-2.0 */
#include "common/tls_own.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <time.h>

enum { RENEW_DAYS = 30 };

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

static struct tls_validity tls_own_of(const X509 *cert)
{
	struct tls_validity v = {.expires_s = 0};
	int64_t third, month = (int64_t)RENEW_DAYS * 86400;
	struct tm from, to;

	if (cert && ASN1_TIME_to_tm(X509_get0_notBefore(cert), &from) &&
	    ASN1_TIME_to_tm(X509_get0_notAfter(cert), &to)) {
		v.expires_s = timegm(&to);
		third = (v.expires_s - timegm(&from)) / 3;
		v.renew_s = v.expires_s - (third < month ? third : month);
	}
	ERR_clear_error();
	return v;
}

struct tls_validity tls_own_validity(const SSL_CTX *ctx)
{
	return tls_own_of(ctx ? SSL_CTX_get0_certificate(ctx) : NULL);
}

struct tls_validity tls_pem_validity(const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	X509 *cert = bio ? PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL) : NULL;
	struct tls_validity v = tls_own_of(cert);

	X509_free(cert);
	BIO_free(bio);
	return v;
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
