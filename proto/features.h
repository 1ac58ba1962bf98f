/* SPDX-License-Identifier: Apache-2.0 */
/* Features: what a release can do that an older one cannot. HELLO and WELCOME announce
 * them, and a job uses those that all of its ranks and reducers have ("Features" in
 * proto/README.md). A number, once given, is never given again. */
#ifndef RS_PROTO_FEATURES_H
#define RS_PROTO_FEATURES_H

#include <stddef.h>
#include <stdint.h>

/* A set of features. Release 0.1 announces none. */
#define FEATURE_START     UINT64_C(1) /* START says what the job uses, and which start it is */
#define FEATURE_PROBE     UINT64_C(2) /* a connection with `rejoin` first shows that large messages pass both ways */
#define FEATURE_NONFINITE UINT64_C(4) /* workers tell reducers of NaN and infinity that they send */
#define FEATURE_ENCODINGS UINT64_C(8) /* contributions and results may be encoded, see common/wire.h */

#define FEATURE_RECONFIGURE UINT64_C(16)   /* a connection outlives its job, for HELLO of the next generation */
#define FEATURE_WINDOWS     UINT64_C(32)   /* START may allow more chunks in flight than HELLO, on long links */
#define FEATURE_SHARES      UINT64_C(64)   /* views may have shares */
#define FEATURE_SLOTS       UINT64_C(128)  /* few shards move when a reducer comes or goes, and D is bounded */
#define FEATURE_SHARDED     UINT64_C(256)  /* operations may be sharded: reduce-scatter and all-gather */
#define FEATURE_DECOUPLED   UINT64_C(512)  /* reducers say with CREDIT what they have added; only announced if wanted */
#define FEATURE_RELAYS      UINT64_C(1024) /* chunks may go through relays; only announced if there are groups */

/* what this release has */
#define FEATURES_ALL                                                                                                   \
	(FEATURE_START | FEATURE_PROBE | FEATURE_NONFINITE | FEATURE_ENCODINGS | FEATURE_RECONFIGURE |                 \
	 FEATURE_WINDOWS | FEATURE_SHARES | FEATURE_SLOTS | FEATURE_SHARDED | FEATURE_DECOUPLED | FEATURE_RELAYS)

/* Writes the names of a set into buf, "start, ..."; of features that this release does
 * not know, "feature N". */
const char *features_text(char *buf, size_t size, uint64_t set);

#endif
