/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/nccl_log.h"

#include <stdio.h>
#include <string.h>

/* Returns whether an algorithm is CollNet's chain. NCCL 2.23 writes its number, later
 * versions its name. */
static bool is_chain(const char *algo)
{
	static const char name[] = "COLLNET_CHAIN ", number[] = "3 ";

	return strncmp(algo, name, strlen(name)) == 0 || strncmp(algo, number, strlen(number)) == 0;
}

/* Copies the line around `at`. */
static void log_line(char *to, size_t room, const char *text, const char *at)
{
	const char *from = at;

	while (from > text && from[-1] != '\n')
		from--;
	snprintf(to, room, "%.*s", (int)strcspn(from, "\n"), from);
}

bool nccl_log_proves(const char *text, char *why, size_t room)
{
	static const char done[] = "AllReduce: ", algo[] = "Algo ";
	const char *proof = NULL, *at = strstr(text, "Cannot initialize CollNet");

	if (at) {
		log_line(why, room, text, at);
		return false;
	}
	if (!strstr(text, "via COLLNET/reduction/")) {
		snprintf(why, room, "no line has \"via COLLNET/reduction/\"");
		return false;
	}
	for (at = strstr(text, done); at; at = strstr(at + 1, done)) {
		size_t line = strcspn(at, "\n");
		const char *said = strstr(at, algo);

		if (!said || said >= at + line)
			continue;
		if (!is_chain(said + strlen(algo))) {
			log_line(why, room, text, at);
			return false;
		}
		proof = at;
	}
	if (!proof) {
		snprintf(why, room, "no line has \"AllReduce: ... Algo COLLNET_CHAIN\"");
		return false;
	}
	log_line(why, room, text, proof);
	return true;
}
