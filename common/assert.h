/* SPDX-License-Identifier: Apache-2.0 */
/* Assertions that are always on, whatever NDEBUG says. They stand where one part relies
 * on another: bounds, positions, counts. A process that has lost track of its data must
 * end before it sends a wrong sum: the others then see a lost peer, and continue without
 * it where they can. Conditions are cheap and have no side effects. */
#ifndef RS_COMMON_ASSERT_H
#define RS_COMMON_ASSERT_H

#include <stddef.h>

/* Ends the process with a sentence that names the place and the condition, if the
 * condition is false. Any thread. bench/assertions.py builds without them, to measure
 * what they cost. */
#ifdef RS_WITHOUT_ASSERTIONS
#define rs_assert(condition) ((void)sizeof(condition))
#else
#define rs_assert(condition)                                                                                           \
	(__builtin_expect(!(condition), 0) ? rs_assert_failed(__FILE__, __LINE__, #condition) : (void)0)
#endif

/* Writes "reduction: FILE:LINE: a bug: CONDITION does not hold" to standard error and
 * aborts. */
_Noreturn void rs_assert_failed(const char *file, int line, const char *condition);

/* The same for the sentence of a check.h, where `broken` is what one of its functions
 * returned: NULL is success. */
void rs_assert_sound(const char *file, int line, const char *broken);

#endif
