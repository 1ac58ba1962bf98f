/* SPDX-License-Identifier: Apache-2.0 */
/* The dual simplex method on a dense dictionary. With costs >= 0 the dictionary in which
 * all x are 0 is dual feasible, so there is no first phase: as long as a row is negative,
 * its variable becomes 0 in exchange for the one that raises the costs least. The best
 * solution is found when no row is negative. Chvatal, Linear Programming (1983), chapters
 * 2 and 10, has the terms. */
#include "deploy/ctl/plan/lp.h"

#include <math.h>
#include <stdlib.h>

/* Numbers up to these count as 0: in a row's value, and as a coefficient to divide by. */
static const double tiny = 1e-10, tiny_pivot = 1e-9;

/* Costs are raised by about this, each by another amount, so that no two exchanges cost
 * the same; otherwise the exchanges could form a circle. */
static const double distinct = 1e-9;

/* Exchanges that suffice for any program of this size in practice, for each row and
 * column. */
enum { EXCHANGES_EACH = 50 };

int lp_init(struct lp *ret, unsigned rows, unsigned columns, struct rs_err *e)
{
	struct lp lp = {.rows = rows, .columns = columns};

	lp.cell = calloc((rows + 1ul) * (columns + 1ul), sizeof *lp.cell);
	lp.basic = calloc(rows + 1ul, sizeof *lp.basic);
	lp.elsewhere = calloc(columns + 1ul, sizeof *lp.elsewhere);
	if (!lp.cell || !lp.basic || !lp.elsewhere) {
		lp_close(&lp);
		return rs_oom(e, 0, "a linear program of %u rows and %u columns", rows, columns);
	}
	*ret = lp;
	return RS_OK;
}

void lp_close(struct lp *lp)
{
	free(lp->cell);
	free(lp->basic);
	free(lp->elsewhere);
	*lp = (struct lp){.rows = 0};
}

double *lp_row(const struct lp *lp, unsigned r)
{
	return lp->cell + r * (lp->columns + 1ul);
}

/* Returns the row with the most negative value; rows if there is none. */
static unsigned leaving(const struct lp *lp)
{
	unsigned found = lp->rows;
	double least = -tiny;

	for (unsigned r = 0; r < lp->rows; r++) {
		if (lp_row(lp, r)[lp->columns] >= least)
			continue;
		least = lp_row(lp, r)[lp->columns];
		found = r;
	}
	return found;
}

/* Returns the column that raises the costs least for each unit of row r; columns if none
 * can raise the row. */
static unsigned entering(const struct lp *lp, unsigned r)
{
	const double *row = lp_row(lp, r), *cost = lp_row(lp, lp->rows);
	unsigned found = lp->columns;
	double least = INFINITY;

	for (unsigned c = 0; c < lp->columns; c++) {
		if (row[c] <= tiny_pivot || cost[c] / row[c] >= least)
			continue;
		least = cost[c] / row[c];
		found = c;
	}
	return found;
}

/* Exchanges the variables of row r and column c. */
static void exchange(struct lp *lp, unsigned r, unsigned c)
{
	double *row = lp_row(lp, r), pivot = row[c];
	unsigned variable = lp->basic[r];

	for (unsigned k = 0; k <= lp->columns; k++)
		row[k] /= -pivot;
	row[c] = 1 / pivot;
	for (unsigned i = 0; i <= lp->rows; i++) {
		double *other = lp_row(lp, i), factor = other[c];

		if (i == r || factor == 0)
			continue;
		other[c] = 0;
		for (unsigned k = 0; k <= lp->columns; k++)
			other[k] += factor * row[k];
	}
	lp->basic[r] = lp->elsewhere[c];
	lp->elsewhere[c] = variable;
}

bool lp_solve(struct lp *lp, double *x)
{
	unsigned left = EXCHANGES_EACH * (lp->rows + lp->columns), r;

	for (unsigned c = 0; c < lp->columns; c++) {
		lp->elsewhere[c] = c;
		lp_row(lp, lp->rows)[c] += distinct * (1 + fmod((c + 1) * 0.6180339887, 1));
	}
	for (r = 0; r < lp->rows; r++)
		lp->basic[r] = lp->columns + r;
	while ((r = leaving(lp)) < lp->rows) {
		unsigned c = entering(lp, r);

		if (c == lp->columns || left-- == 0)
			return false;
		exchange(lp, r, c);
	}
	for (unsigned c = 0; c < lp->columns; c++)
		x[c] = 0;
	for (r = 0; r < lp->rows; r++)
		if (lp->basic[r] < lp->columns)
			x[lp->basic[r]] = fmax(0, lp_row(lp, r)[lp->columns]);
	return true;
}
