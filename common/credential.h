/* SPDX-License-Identifier: Apache-2.0 */
/* Files that systemd passes to a unit as credentials. */
#ifndef RS_COMMON_CREDENTIAL_H
#define RS_COMMON_CREDENTIAL_H

/* Returns what the error of a file that cannot be opened should add: "", or a sentence in
 * parentheses if the file would be a credential of systemd. Static storage. Any
 * thread. */
const char *rs_credential_hint(const char *file);

#endif
