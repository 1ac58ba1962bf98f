/* SPDX-License-Identifier: Apache-2.0 */
/* Small linear programs: the x >= 0 with the least cost c x for which A x >= b, where all
 * costs are >= 0. Any thread. */
#ifndef RS_DEPLOY_CTL_PLAN_LP_H
#define RS_DEPLOY_CTL_PLAN_LP_H

#include "common/error.h"

#include <stdbool.h>

/* A program. Its rows are set before lp_solve(), which overwrites them. */
struct lp {
	unsigned rows, columns;
	double *cell;                /* owned; rows + 1 rows of columns + 1 numbers, the costs last */
	unsigned *basic, *elsewhere; /* owned; the variables of the rows, and of the columns */
};

/* Makes a program with all coefficients, bounds and costs 0. Release it with lp_close().
 * Errors: RS_ENOMEM. */
int lp_init(struct lp *ret, unsigned rows, unsigned columns, struct rs_err *e);
void lp_close(struct lp *lp);

/* Returns the coefficients of row r, followed by its bound with the opposite sign; row
 * lp->rows has the costs, each >= 0. */
double *lp_row(const struct lp *lp, unsigned r);

/* Finds x[0..columns). Returns false if there is no solution. */
bool lp_solve(struct lp *lp, double *x);

#endif
