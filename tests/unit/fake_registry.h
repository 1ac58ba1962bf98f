/* SPDX-License-Identifier: Apache-2.0 */
/* A registry without lanes, and its workers: job "train" of two ranks with two lanes
 * each. */
#ifndef RS_TESTS_UNIT_FAKE_REGISTRY_H
#define RS_TESTS_UNIT_FAKE_REGISTRY_H

#include "server/jobs/registry.h"

enum {
	FR_CHUNK = 1024,
	FR_WINDOW = 2,
	FR_PRIORITIES = 3,
	/* half types need twice the bytes; slots are two windows of each priority */
	FR_JOB_BYTES = FR_CHUNK * 2 * 2 * FR_WINDOW * FR_PRIORITIES,
	FR_CONNECTION_BYTES = 3000,
	FR_FEATURES = 1 + 2 + 8, /* of the reducer */
};

/* A registry with a recorder that replaces the lanes and the operating system's
 * memory. */
struct fr_world {
	struct registry *r;
	unsigned n[REGISTRY_LATE + 1]; /* of each type */
	struct registry_action last;
	uint64_t question;      /* of the last REGISTRY_ASK */
	char name[CONTROL_JOB]; /* of the last action's job */
	uint8_t frame[FRAME_HEADER + FRAME_CONTROL_MAX];
	uint64_t allocated;
	bool no_memory;
};

void fr_open(struct fr_world *w, unsigned jobs, unsigned workers, uint64_t memory);
/* The same of a reducer that relays if a job has these reducers; 0: it does not. */
void fr_open_relay(struct fr_world *w, uint64_t reducers_digest);
/* Checks that all memory has been freed. */
void fr_close(struct fr_world *w);

struct control_hello fr_hello(unsigned rank, unsigned lane);
/* Admits a worker as the accept loop does. Returns the job's number. */
uint64_t fr_admit(struct fr_world *w, const struct control_hello *h);
void fr_refused(struct fr_world *w, const struct control_hello *h, int code, bool retry, const char *says);
/* Joins both ranks with both lanes: the job starts. */
uint64_t fr_admit_all(struct fr_world *w);
/* Lets both ranks leave: the job closes. */
void fr_all_gone(struct fr_world *w, uint64_t id, bool clean);

#endif
