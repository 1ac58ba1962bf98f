/* SPDX-License-Identifier: Apache-2.0 */
/* The reply of the method Status while a daemon gathers it. The daemon fills the message
 * itself; this file gives the memory of everything that the message points to. One thread
 * at a time; nothing in it is shared. */
#ifndef RS_COMMON_HOST_SERVICE_STATUS_REPLY_H
#define RS_COMMON_HOST_SERVICE_STATUS_REPLY_H

#include "common/host/service/service_pack.h"
#include "proto/reduction.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

/* Invariant: what `m` points to is in the blocks, or outlives the reply. */
struct status_reply {
	Reduction__V1__StatusReply m;
	struct status_block *blocks; /* owned; a status has thousands of ranks, so each has room for many of them */
	bool failed;                 /* there was no memory for a part: the reply is not to be sent */
};

void status_reply_init(struct status_reply *r);
void status_reply_free(struct status_reply *r);

/* Each of these functions takes memory that is freed with the reply. NULL: no memory;
 * then `failed` is set. */
/* Takes n bytes with the value 0. */
void *status_reply_take(struct status_reply *r, size_t n);
/* Takes an empty message. */
void *status_reply_message(struct status_reply *r, const ProtobufCMessageDescriptor *type);
/* Takes an array of pointers to n empty messages. */
void *status_reply_messages(struct status_reply *r, const ProtobufCMessageDescriptor *type, size_t n);
/* Copies a text, and replaces what is not UTF-8. */
char *status_reply_text(struct status_reply *r, const char *text);

/* Packs the reply of a reducer or an agent, whose jobs have ranks[world_size] or
 * ranks[local_ranks]; sets n_ranks. job: the only job in it; NULL or empty: all jobs. */
struct service_bytes status_reply_pack(struct status_reply *r, const char *job, bool without_ranks);

#endif
