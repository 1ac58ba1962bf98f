/* SPDX-License-Identifier: Apache-2.0 */
#include "common/credential.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_below(const char *file, const char *folder)
{
	size_t len = strlen(folder);

	return len > 0 && strncmp(file, folder, len) == 0 && file[len] == '/';
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
