/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates. gRPC asks for a server's certificates at every handshake, so that new
 * ones take effect without a restart. */
#include "proto/rpc/grpc_priv.h"

#include <stdlib.h>
#include <string.h>

static char *grpc_tls_copy(const char *text)
{
	return text ? strdup(text) : NULL;
}

/* Copies keys. True: all that was given was copied. */
static bool grpc_tls_pem_copy(struct pem *to, const struct rpc_tls *from)
{
	*to = (struct pem){grpc_tls_copy(from->certificate), grpc_tls_copy(from->key), grpc_tls_copy(from->authority)};
	return !(from->certificate && !to->certificate) && !(from->key && !to->key) &&
	       !(from->authority && !to->authority);
}

static void grpc_tls_pem_free(struct pem *p)
{
	if (p->key)
		explicit_bzero(p->key, strlen(p->key));
	free(p->certificate);
	free(p->key);
	free(p->authority);
}

int keys_init(struct keys *k, const struct rpc_tls *tls, struct rs_err *e)
{
	if (!grpc_tls_pem_copy(&k->pem, tls)) {
		grpc_tls_pem_free(&k->pem);
		return rs_oom(e, 0, "certificates");
	}
	pthread_mutex_init(&k->lock, NULL);
	k->set = k->fresh = true;
	return RS_OK;
}

void keys_close(struct keys *k)
{
	if (!k->set)
		return;
	grpc_tls_pem_free(&k->pem);
	pthread_mutex_destroy(&k->lock);
}

int keys_change(struct keys *k, const struct rpc_tls *tls, struct rs_err *e)
{
	struct pem fresh, old;

	if (!k->set)
		return rs_fail(e, RS_EINVAL, "the server has no TLS");
	if (!grpc_tls_pem_copy(&fresh, tls)) {
		grpc_tls_pem_free(&fresh);
		return rs_oom(e, 0, "certificates");
	}
	pthread_mutex_lock(&k->lock);
	old = k->pem;
	k->pem = fresh;
	k->fresh = true;
	pthread_mutex_unlock(&k->lock);
	grpc_tls_pem_free(&old);
	return RS_OK;
}

/* Called by gRPC before each handshake. */
static grpc_ssl_certificate_config_reload_status grpc_tls_fetch(void *user, grpc_ssl_server_certificate_config **config)
{
	struct keys *k = user;
	grpc_ssl_certificate_config_reload_status status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;

	pthread_mutex_lock(&k->lock);
	if (k->fresh) {
		grpc_ssl_pem_key_cert_pair own = {.private_key = k->pem.key, .cert_chain = k->pem.certificate};

		/* gRPC requires authorities even if clients need no certificates */
		*config = grpc_ssl_server_certificate_config_create(
		    k->pem.authority ? k->pem.authority : k->pem.certificate, &own, 1);
		k->fresh = false;
		status = *config ? GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW : GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
	}
	pthread_mutex_unlock(&k->lock);
	return status;
}

grpc_server_credentials *server_credentials(struct keys *k, struct rs_err *e)
{
	grpc_ssl_client_certificate_request_type ask = k->pem.authority
							   ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
							   : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
	grpc_server_credentials *creds = grpc_ssl_server_credentials_create_with_options(
	    grpc_ssl_server_credentials_create_options_using_config_fetcher(ask, grpc_tls_fetch, k));

	if (!creds)
		rs_fail(e, RS_ECONFIG, "gRPC cannot use the given certificates");
	return creds;
}

grpc_channel_credentials *client_credentials(const struct rpc_tls *tls, struct rs_err *e)
{
	grpc_ssl_pem_key_cert_pair own = {.private_key = tls->key, .cert_chain = tls->certificate};
	grpc_channel_credentials *creds =
	    grpc_ssl_credentials_create_ex(tls->authority, tls->certificate ? &own : NULL, NULL, NULL);

	if (!creds)
		rs_fail(e, RS_ECONFIG, "gRPC cannot use the given certificates");
	return creds;
}
