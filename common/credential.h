/* SPDX-License-Identifier: Apache-2.0 */
/* What messages say of the files of secrets, keys and tokens. */
#ifndef RS_COMMON_CREDENTIAL_H
#define RS_COMMON_CREDENTIAL_H

/* Returns what the error of a file that cannot be opened should add: "", or a sentence in
 * parentheses if the file would be a credential of systemd. Static storage. Any
 * thread. */
const char *rs_credential_hint(const char *file);

/* Returns the name of a file for a message; or a text in its place if it is not a path,
 * as where somebody has written the secret itself. Static storage or `file`. Any
 * thread. */
const char *rs_credential_name(const char *file);

#endif
