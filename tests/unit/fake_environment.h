/* SPDX-License-Identifier: Apache-2.0 */
/* Environment variables of a test's table. */
#ifndef RS_TESTS_UNIT_FAKE_ENVIRONMENT_H
#define RS_TESTS_UNIT_FAKE_ENVIRONMENT_H

/* As rs_getenv_fn. ctx: an array of "NAME=value" that ends with NULL. */
const char *fake_getenv(void *ctx, const char *name);

#endif
