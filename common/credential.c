/* SPDX-License-Identifier: Apache-2.0 */
#include "common/credential.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_ENDING = 10, FILE_SHORT = 100 /* bytes; a JSON web token is longer */ };

static bool is_below(const char *file, const char *folder)
{
	size_t len = strlen(folder);

	return len > 0 && strncmp(file, folder, len) == 0 && file[len] == '/';
}

/* Returns whether the first folder of a path exists. */
static bool has_folder(const char *file)
{
	size_t n = strcspn(file + 1, "/") + 1;
	char folder[64];
	struct stat st;

	if (file[n] != '/' || n >= sizeof folder)
		return false;
	memcpy(folder, file, n);
	folder[n] = '\0';
	return stat(folder, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Returns whether a text looks like "job.secret". */
static bool has_ending(const char *file)
{
	const char *name = strrchr(file, '/'), *dot;
	size_t n;

	dot = strrchr(name ? name : file, '.');
	n = dot ? strlen(dot + 1) : 0;
	return n > 0 && n <= FILE_ENDING && strlen(file) <= FILE_SHORT && !strpbrk(file, " \n=+");
}

const char *rs_credential_name(const char *file)
{
	struct stat st;

	if (!file[0] || has_folder(file) || has_ending(file) || stat(file, &st) == 0)
		return file;
	return "the file with this name (not shown: is it the secret itself? expected a path)";
}

const char *rs_credential_hint(const char *file)
{
	const char *folder = getenv("CREDENTIALS_DIRECTORY");

	/* where containers of LXC forbid it, systemd passes none, also those of
	 * LoadCredential= */
	if (is_below(file, "/run/credentials") || (folder && is_below(file, folder)))
		return " (systemd passed no such credential: see LoadCredential= of this unit; if it is cleared, as in "
		       "containers of LXC and Proxmox, name the file itself)";
	return "";
}
