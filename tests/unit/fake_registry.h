/* SPDX-License-Identifier: Apache-2.0 */
/* A registry without lanes, and workers that come to it: job "train" of two ranks with two lanes each. */
#ifndef RS_TESTS_UNIT_FAKE_REGISTRY_H
#define RS_TESTS_UNIT_FAKE_REGISTRY_H

#include "server/jobs/registry.h"

enum {
	FR_CHUNK = 1024,
	FR_WINDOW = 2,
	FR_PRIORITIES = 3,
	/* half types take twice, slots are two windows of each priority */
	FR_JOB_BYTES = FR_CHUNK * 2 * 2 * FR_WINDOW * FR_PRIORITIES,
	FR_CONNECTION_BYTES = 3000,
};

/* A registry with a recorder in place of the lanes and of the operating system's memory. */
struct fr_world {
	struct registry *r;
	unsigned n[REGISTRY_LATE + 1]; /* of each type */
	struct registry_action last;
	char name[CONTROL_JOB]; /* of the last action's job */
	uint8_t frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	uint64_t allocated;
	bool no_memory;
};

void fr_open(struct fr_world *w, unsigned jobs, unsigned workers, uint64_t memory);
/* All memory has been given back. */
void fr_close(struct fr_world *w);

struct control_hello fr_hello(unsigned rank, unsigned lane);
/* As the accept loop does it. Returns the job's number. */
uint64_t fr_admit(struct fr_world *w, const struct control_hello *h);
void fr_refused(struct fr_world *w, const struct control_hello *h, int code, bool retry, const char *says);
/* Both ranks with both lanes: the job starts. */
uint64_t fr_admit_all(struct fr_world *w);
/* And go: it closes. */
void fr_all_gone(struct fr_world *w, uint64_t id, bool clean);

#endif
