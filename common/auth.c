/* SPDX-License-Identifier: Apache-2.0 */
#include "common/auth.h"
#include "common/credential.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

void auth_secret_clear(struct auth_secret *s)
{
	OPENSSL_cleanse(s, sizeof *s);
}

/* Reads a secret into a buffer with room for more, so that a secret that is too long is
 * detected. */
static int read_secret(int fd, const char *file, uint8_t *buf, size_t size, size_t *ret_len, struct rs_err *e)
{
	size_t len = 0;
	ssize_t n;

	do {
		n = read(fd, buf + len, size - len);
		if (n < 0 && errno != EINTR)
			return rs_fail_sys(e, RS_EIO, errno, "%s cannot be read", file);
		len += n > 0 ? (size_t)n : 0;
	} while (n != 0 && len < size);
	*ret_len = len;
	return RS_OK;
}

static int take_secret(struct auth_secret *ret, int fd, const char *file, struct rs_err *e)
{
	uint8_t buf[AUTH_SECRET_MAX + 2];
	struct stat st;
	size_t len = 0;
	int rc;

	if (fstat(fd, &st))
		return rs_fail_sys(e, RS_EIO, errno, "%s cannot be read", file);
	if (!S_ISREG(st.st_mode))
		return rs_fail(e, RS_ECONFIG, "%s is not a regular file; expected a file with a secret", file);
	if (st.st_mode & (S_IROTH | S_IWOTH))
		return rs_fail(e, RS_ECONFIG, "%s has mode %04o, so everybody can %s it; expected a mode such as 0600",
			       file, (unsigned)st.st_mode & 07777, st.st_mode & S_IROTH ? "read" : "change");
	rc = read_secret(fd, file, buf, sizeof buf, &len, e);
	if (!rc && len > 0 && buf[len - 1] == '\n')
		len--;
	if (!rc && len > AUTH_SECRET_MAX)
		rc = rs_fail(e, RS_ECONFIG, "%s has more than %d bytes; expected a secret of %d to %d bytes", file,
			     AUTH_SECRET_MAX, AUTH_SECRET_MIN, AUTH_SECRET_MAX);
	else if (!rc && len < AUTH_SECRET_MIN)
		rc = rs_fail(e, RS_ECONFIG, "%s has %zu bytes; expected a secret of %d to %d bytes", file, len,
			     AUTH_SECRET_MIN, AUTH_SECRET_MAX);
	if (!rc) {
		ret->len = (uint32_t)len;
		memcpy(ret->bytes, buf, len);
	}
	OPENSSL_cleanse(buf, sizeof buf);
	return rc;
}

int auth_secret_load(struct auth_secret *ret, const char *file, struct rs_err *e)
{
	/* O_NONBLOCK: opening a named pipe must not block before fstat rejects it */
	int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int rc;

	if (fd < 0)
		return rs_fail_sys(e, RS_EIO, errno, "%s cannot be opened%s", rs_credential_name(file),
				   rs_credential_hint(file));
	rc = take_secret(ret, fd, file, e);
	close(fd);
	return rc;
}

int auth_token_load(struct auth_secret *ret, const char *file, struct rs_err *e)
{
	struct auth_secret s;
	int rc = auth_secret_load(&s, file, e);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < s.len && !rc; i++)
		if (s.bytes[i] <= ' ' || s.bytes[i] > '~')
			rc = rs_fail(e, RS_ECONFIG,
				     "%s has the byte 0x%02x at %u; a token must be printable ASCII without blanks",
				     file, s.bytes[i], i);
	if (!rc)
		*ret = s;
	auth_secret_clear(&s);
	return rc;
}

int auth_random(void *buf, size_t n, struct rs_err *e)
{
	if (getrandom(buf, n, 0) != (ssize_t)n)
		return rs_fail(e, RS_EIO, "getrandom() returned no random numbers");
	return RS_OK;
}

static bool add_bytes(EVP_MAC_CTX *ctx, const uint8_t *bytes, size_t len)
{
	uint64_t wire = htole64(len);

	return EVP_MAC_update(ctx, (const unsigned char *)&wire, sizeof wire) &&
	       (len == 0 || EVP_MAC_update(ctx, bytes, len));
}

static bool compute(EVP_MAC_CTX *ctx, uint8_t *ret, const struct auth_secret *s, enum auth_side side,
		    const struct auth_transcript *t)
{
	static const char worker[] = "reduction v1 worker", reducer[] = "reduction v1 reducer";
	char digest[] = "SHA256";
	const OSSL_PARAM params[] = {OSSL_PARAM_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, sizeof digest - 1),
				     OSSL_PARAM_END};
	const char *label = side == AUTH_WORKER ? worker : reducer;
	size_t len;

	/* each label is hashed with its terminating NUL */
	return EVP_MAC_init(ctx, s->bytes, s->len, params) &&
	       EVP_MAC_update(ctx, (const unsigned char *)label, strlen(label) + 1) &&
	       add_bytes(ctx, t->binding, t->binding_len) && add_bytes(ctx, t->hello, t->hello_len) &&
	       add_bytes(ctx, t->challenge, t->challenge_len) && EVP_MAC_final(ctx, ret, &len, AUTH_MAC) &&
	       len == AUTH_MAC;
}

int auth_mac(uint8_t ret[AUTH_MAC], const struct auth_secret *s, enum auth_side side, const struct auth_transcript *t,
	     struct rs_err *e)
{
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;
	bool good = ctx && compute(ctx, ret, s, side, t);

	EVP_MAC_CTX_free(ctx);
	EVP_MAC_free(mac);
	return good ? RS_OK : rs_fail(e, RS_ENOMEM, "OpenSSL has no memory or no HMAC-SHA256 for a proof");
}

bool auth_equal(const uint8_t a[AUTH_MAC], const uint8_t b[AUTH_MAC])
{
	return CRYPTO_memcmp(a, b, AUTH_MAC) == 0;
}
