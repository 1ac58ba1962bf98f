/* SPDX-License-Identifier: Apache-2.0 */
/* Scripted homes for the uplinks of one lane, in memory: in place of lane_uplink.c and of
 * the reducers that it connects to. */
#ifndef RS_TESTS_UNIT_FAKE_HOME_H
#define RS_TESTS_UNIT_FAKE_HOME_H

#include "server/core/uplink.h"
#include "tests/unit/fake_worker.h"

enum { FAKE_HOMES_MAX = 8 };

/* One connection of an uplink. */
struct fh_home {
	struct uplink *u; /* NULL: closed, and freed for the next one */
	bool up;
	struct fw_buffer out, in; /* to and from the uplink */
	size_t room;              /* bytes that the socket still takes from the uplink; SIZE_MAX: any number */
	struct control_hello hello;
	uint8_t hello_bytes[FRAME_CONTROL_MAX]; /* as they came */
	uint32_t hello_len;
};

struct fh_homes {
	struct fw_world *fw;
	struct fh_home h[FAKE_HOMES_MAX];
	unsigned dialled, closed; /* connections so far */
	size_t piece;             /* most bytes of one call */
};

/* Serves the uplinks of the world's lane from now on. */
void fh_init(struct fh_homes *all, struct fw_world *fw);
/* Closes the world, too. */
void fh_close(struct fh_homes *all);
/* What a driver does after each event; called by fw_flush(). */
void fh_serve(void *homes);

/* Returns the connection that is being made to a reducer, or is up; NULL: none. */
struct fh_home *fh_find(struct fh_homes *all, unsigned reducer);
/* The connection that is being made is made; takes HELLO. */
struct fh_home *fh_accept(struct fh_homes *all, unsigned reducer);
/* The connection is made, the home admits it, and START is sent. */
struct fh_home *fh_join(struct fh_homes *all, unsigned reducer);
/* The connection cannot be made, or breaks. */
void fh_break(struct fh_homes *all, struct fh_home *h, const char *why);
/* Makes the socket take `room` more bytes. */
void fh_grant(struct fh_homes *all, struct fh_home *h, size_t room);

/* Sends bytes or a frame to the uplink. */
void fh_send_bytes(struct fh_homes *all, struct fh_home *h, const void *bytes, size_t len);
void fh_send(struct fh_homes *all, struct fh_home *h, struct frame f, const void *payload);
void fh_send_control(struct fh_homes *all, struct fh_home *h, unsigned type, const uint8_t *packed, uint32_t len);
void fh_send_start(struct fh_homes *all, struct fh_home *h, uint64_t start, uint32_t window);
void fh_send_resume(struct fh_homes *all, struct fh_home *h, const struct control_view *v);
/* RESULT of a contribution that came, with the payload of that. */
void fh_send_result(struct fh_homes *all, struct fh_home *h, struct frame data, const void *payload, uint32_t len);

/* The next frame of the uplink is of this type; returns it. */
struct frame fh_expect(struct fh_home *h, unsigned type, const uint8_t **payload);
void fh_expect_nothing(struct fh_home *h);

#endif
