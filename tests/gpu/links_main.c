/* SPDX-License-Identifier: Apache-2.0 */
/* gpu-links N MBIT: makes hosts with shaped links, prints a process id and an address for
 * each and then "ready". They are there until standard input ends. */
#include "tests/gpu/links.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int n = argc == 3 ? atoi(argv[1]) : 0, mbit = argc == 3 ? atoi(argv[2]) : 0;
	char why[320], address[32], byte;
	struct links l;

	if (n < 1 || n > LINKS_HOSTS_MAX || mbit < 1) {
		fprintf(stderr, "Usage: gpu-links N MBIT    N is at most %d\n", LINKS_HOSTS_MAX);
		return 2;
	}
	if (!links_start(&l, n, mbit, why, sizeof why)) {
		fprintf(stderr, "gpu-links: %s\n", why);
		return 1;
	}
	for (int i = 0; i < n; i++) {
		links_address(address, sizeof address, i);
		printf("%d %s\n", (int)l.hosts[i], address);
	}
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	links_stop(&l);
	return 0;
}
