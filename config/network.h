/* SPDX-License-Identifier: Apache-2.0 */
/* Networks as text, such as 10.1.0.0/16 or fd00::/8, and which addresses are in them. */
#ifndef RS_CONFIG_NETWORK_H
#define RS_CONFIG_NETWORK_H

#include "config/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NETWORK_TEXT = sizeof "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255/128" };

/* Reads an address and the number of its first bits, by default all of them. *ret_exact
 * is false if the address has other bits than those, which *ret does not have. Returns
 * false, with nothing stored, for any other text. */
bool network_parse(struct rs_network *ret, bool *ret_exact, const char *text);

void network_format(const struct rs_network *net, char ret[static NETWORK_TEXT]);

/* Returns whether an address, as in struct rs_endpoint, is in the network. */
bool network_contains(const struct rs_network *net, const uint8_t ip[static 16]);

/* Returns whether some address is in both networks. */
bool network_overlaps(const struct rs_network *a, const struct rs_network *b);

#endif
