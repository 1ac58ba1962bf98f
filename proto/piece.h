/* SPDX-License-Identifier: Apache-2.0 */
/* The message that carries a connection's bytes over gRPC: Piece { bytes data = 1; }. It
 * is encoded by hand, since protobuf libraries would copy every byte once more. */
#ifndef RS_PROTO_PIECE_H
#define RS_PROTO_PIECE_H

#include <stddef.h>
#include <stdint.h>

enum { PIECE_HEAD_MAX = 6 }; /* bytes before the data: the field's tag, and its length in at most five */

/* Writes what precedes `len` bytes of data, and returns its length. */
unsigned piece_head(uint8_t out[PIECE_HEAD_MAX], uint32_t len);

/* Reads the same from the first `have` bytes of a message of `message` bytes, which is
 * not empty. > 0: so many bytes precede the data, which fill the rest; 0: more bytes are
 * needed; -1: it is not a Piece that holds only data. */
int piece_parse(const uint8_t *in, size_t have, size_t message);

#endif
