/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a support bundle, without secrets. The configuration names files of
 * secrets, so their content is not needed at all; it is removed where another text, as a
 * line of the log, has it. */
#include "deploy/ctl/bundle.h"

#include "common/auth.h"

#include <dirent.h>
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void bundle_secret(struct bundle *b, const char *text, size_t n)
{
	struct bundle_secret *s;

	if (n < BUNDLE_SECRET_MIN)
		return;
	s = malloc(sizeof *s + n);
	if (!s) {
		b->no_memory = true;
		return;
	}
	s->n = n;
	memcpy(s->text, text, n);
	s->next = b->secrets;
	b->secrets = s;
}

void bundle_forget_secrets(struct bundle *b)
{
	while (b->secrets) {
		struct bundle_secret *s = b->secrets;

		b->secrets = s->next;
		OPENSSL_cleanse(s->text, s->n);
		free(s);
	}
}

void bundle_secret_file(struct bundle *b, const char *path)
{
	char text[AUTH_SECRET_MAX + 1];
	struct stat st;
	FILE *in = NULL;
	size_t n = 0;

	if (!stat(path, &st) && S_ISREG(st.st_mode) && st.st_size <= (off_t)sizeof text)
		in = fopen(path, "re");
	if (in) {
		n = fread(text, 1, sizeof text, in);
		fclose(in);
	}
	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		n--;
	bundle_secret(b, text, n);
	OPENSSL_cleanse(text, sizeof text);
}

/* Looks at the value of one key. A relative name of a file is read from the folder of the
 * configuration. */
static void take_key(struct bundle *b, char value[RS_PATH_LEN], const char *file, bool is_token)
{
	const char *slash = file ? strrchr(file, '/') : NULL, *text = value;
	size_t folder = slash ? (size_t)(slash - file) + 1 : 0;
	struct stat st;

	if (!value[0])
		return;
	if (stat(value, &st) == 0) {
		if (is_token)
			bundle_secret_file(b, value);
		return;
	}
	bundle_secret(b, value, strlen(value));
	if (folder && strncmp(value, file, folder) == 0)
		text += folder;
	bundle_secret(b, text, strlen(text));
	snprintf(value, RS_PATH_LEN, "left-out-because-it-names-no-file");
}

/* Remembers the secret of each job that has one, and what else lies beside them. */
static void take_folder(struct bundle *b, const char *path)
{
	DIR *dir = path[0] ? opendir(path) : NULL;
	const struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char file[RS_PATH_LEN + sizeof entry->d_name + 1];

		snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
		bundle_secret_file(b, file);
	}
	if (dir)
		closedir(dir);
}

void bundle_secrets_of(struct bundle *b, struct rs_config *cfg, const char *file)
{
	take_key(b, cfg->security.secret, file, true);
	take_key(b, cfg->security.read_token, file, true);
	take_key(b, cfg->security.admin_token, file, true);
	take_key(b, cfg->security.key, file, false);
	take_key(b, cfg->security.certificate, file, false);
	take_key(b, cfg->security.authority, file, false);
	take_key(b, cfg->server.secret, file, true);
	take_key(b, cfg->server.secrets_dir, file, false);
	take_folder(b, cfg->server.secrets_dir);
}

bool bundle_is_secret_name(const char *name)
{
	static const char *const words[] = {"SECRET", "TOKEN", "KEY", "PASS", "CREDENTIAL"};

	for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strstr(name, words[i]))
			return true;
	return false;
}

FILE *bundle_begin(struct bundle *b)
{
	b->text = NULL;
	b->text_n = 0;
	b->out = open_memstream(&b->text, &b->text_n);
	if (!b->out)
		b->no_memory = true;
	return b->out;
}

void bundle_end(struct bundle *b, const char *name, ...)
{
	char file[ARCHIVE_NAME], path[ARCHIVE_NAME + BUNDLE_NAME];
	va_list ap;

	if (!b->out)
		return;
	if (fclose(b->out) || !b->text)
		b->no_memory = true;
	else if (!bundle_redact(b->text, b->text_n, b->secrets))
		b->no_memory = true;
	if (!b->no_memory) {
		va_start(ap, name);
		vsnprintf(file, sizeof file, name, ap);
		va_end(ap);
		snprintf(path, sizeof path, "%s/%s", b->name, file);
		archive_add(b->archive, path, b->text, b->text_n, b->unix_s);
	}
	free(b->text);
	b->text = NULL;
	b->out = NULL;
}
