/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_certs.h"

#include <check.h>
#include <dirent.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define must(condition) ((condition) ? (void)0 : ck_abort_msg("this does not hold: %s", #condition))

void certs_init(struct certs *c)
{
	snprintf(c->dir, sizeof c->dir, "/tmp/reduction-certs-XXXXXX");
	must(mkdtemp(c->dir));
}

void certs_close(struct certs *c)
{
	char path[sizeof c->dir + 256];
	struct dirent *entry;
	DIR *dir = opendir(c->dir);

	must(dir);
	while ((entry = readdir(dir))) {
		snprintf(path, sizeof path, "%s/%s", c->dir, entry->d_name);
		if (entry->d_name[0] != '.')
			unlink(path);
	}
	closedir(dir);
	rmdir(c->dir);
}

const char *certs_file(const struct certs *c, const char *name, const char *suffix)
{
	static char paths[8][128];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof paths[0], "%s/%s%s", c->dir, name, suffix);
	return path;
}

static void *load(const struct certs *c, const char *name, const char *suffix)
{
	FILE *f = fopen(certs_file(c, name, suffix), "r");
	void *ret;

	must(f);
	ret = strcmp(suffix, ".key") == 0 ? (void *)PEM_read_PrivateKey(f, NULL, NULL, NULL)
					  : (void *)PEM_read_X509(f, NULL, NULL, NULL);
	must(ret);
	fclose(f);
	return ret;
}

static void extend(X509 *cert, int nid, const char *value)
{
	X509_EXTENSION *ext = X509V3_EXT_nconf_nid(NULL, NULL, nid, value);

	must(ext && X509_add_ext(cert, ext, -1));
	X509_EXTENSION_free(ext);
}

void certs_make(const struct certs *c, const struct cert *what)
{
	EVP_PKEY *key = EVP_EC_gen("P-256"), *signer = what->issuer ? load(c, what->issuer, ".key") : key;
	X509 *cert = X509_new(), *issuer = what->issuer ? load(c, what->issuer, ".pem") : cert;
	bool dated = what->from_s || what->till_s;
	FILE *f;
	int serial;

	must(key && cert && RAND_bytes((unsigned char *)&serial, sizeof serial) == 1);
	X509_set_version(cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), serial & 0x7fffffff);
	X509_gmtime_adj(X509_getm_notBefore(cert), dated ? what->from_s : -3600);
	X509_gmtime_adj(X509_getm_notAfter(cert), dated ? what->till_s : 3600);
	X509_set_pubkey(cert, key);
	if (what->cn)
		must(X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_UTF8,
						(const unsigned char *)what->cn, -1, -1, 0));
	X509_set_issuer_name(cert, X509_get_subject_name(issuer));
	extend(cert, NID_basic_constraints, what->issuer ? "critical,CA:FALSE" : "critical,CA:TRUE");
	if (what->sans)
		extend(cert, NID_subject_alt_name, what->sans);
	must(X509_sign(cert, signer, EVP_sha256()));
	umask(077);
	f = fopen(certs_file(c, what->name, ".pem"), "w");
	must(f && PEM_write_X509(f, cert));
	fclose(f);
	f = fopen(certs_file(c, what->name, ".key"), "w");
	must(f && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL));
	fclose(f);
	if (what->issuer) {
		X509_free(issuer);
		EVP_PKEY_free(signer);
	}
	X509_free(cert);
	EVP_PKEY_free(key);
}

static struct tls_files files(const struct certs *c, const char *own, const char *authority)
{
	return (struct tls_files){.certificate = own ? certs_file(c, own, ".pem") : "",
				  .key = own ? certs_file(c, own, ".key") : "",
				  .authority = authority ? certs_file(c, authority, ".pem") : ""};
}

SSL_CTX *certs_reducer(const struct certs *c, enum tls_mode mode, const char *own, const char *authority)
{
	struct tls_files f = files(c, own, authority);
	struct rs_err e = {0};
	SSL_CTX *ctx;

	ck_assert_msg(tls_reducer(&ctx, mode, &f, &e) == RS_OK, "%s", e.msg);
	return ctx;
}

SSL_CTX *certs_worker(const struct certs *c, const char *own, const char *authority)
{
	struct tls_files f = files(c, own, authority);
	struct rs_err e = {0};
	SSL_CTX *ctx;

	ck_assert_msg(tls_worker(&ctx, own ? TLS_MUTUAL : TLS_ON, &f, &e) == RS_OK, "%s", e.msg);
	return ctx;
}
