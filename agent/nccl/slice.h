/* SPDX-License-Identifier: Apache-2.0 */
/* Slices of NCCL's all-gathers and reduce-scatters. The parts of all ranks, one behind
 * the other, are the buffer of the collective; NCCL hands it over in slices that begin
 * and end anywhere. A sharded operation has equal parts. So a slice is up to three of
 * them: the end of a part, whole parts, the beginning of one. A rank's bytes in a slice
 * are in one of these runs. */
#ifndef RS_AGENT_NCCL_SLICE_H
#define RS_AGENT_NCCL_SLICE_H

#include <stddef.h>

enum { SLICE_RUNS = 3 };

/* A slice, in bytes. */
struct slice {
	size_t part;   /* of each rank */
	size_t offset; /* in the buffer of the collective */
	size_t bytes;
};

/* Equally many bytes of each of some neighbouring ranks. */
struct slice_run {
	size_t at;   /* in the slice */
	size_t part; /* of each of these ranks */
	unsigned first, parts;
};

/* Splits a slice into runs. Returns their number, 0 for a slice without bytes. part > 0
 * if there are bytes. */
unsigned slice_split(const struct slice *w, struct slice_run runs[SLICE_RUNS]);
/* Returns the bytes of a rank in a slice. */
size_t slice_own(const struct slice *w, unsigned rank);

#endif
