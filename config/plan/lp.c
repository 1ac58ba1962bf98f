/* SPDX-License-Identifier: Apache-2.0 */
/* The linear program, solved by COIN-OR's Clp. Of the solvers in Debian only Clp has a licence that an Apache-2.0
 * binary may be linked with (EPL; GLPK is GPL, HiGHS is not in Debian 12) and a C interface with a pkg-config file
 * (which lp_solve lacks). Only reductionctl is linked with it. */
#include "config/plan/plan.h"

#ifdef HAVE_CLP
#include <Clp_C_Interface.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

/* The program in columns, as Clp takes it: column 0 is the time, then one column for each machine with reducers. Row 0
 * is the sum of shares, then one row for each of these machines. Times are in units of the time that the fastest link
 * needs for S. */
struct program {
	int columns, rows;
	int *start, *index;                 /* of columns + 1; of elements */
	double *value;                      /* of elements */
	double *cost, *least, *most;        /* of columns */
	double *row_least, *row_most, *all; /* of rows; `all` holds all numbers */
	double rate;                        /* of the fastest link */
	double bound;                       /* of the time, by machines without reducers */
};

static int program_init(struct program *p, const struct plan_net *net)
{
	int reducing = 0;
	size_t n;

	*p = (struct program){.rate = 0};
	for (unsigned m = 0; m < net->machines_n; m++) {
		p->rate = fmax(p->rate, net->machine[m].rate);
		reducing += net->machine[m].reducers > 0;
	}
	p->columns = p->rows = reducing + 1;
	n = (size_t)p->rows;
	p->start = calloc(n + 1 + 3 * n, sizeof *p->start);
	p->all = calloc(3 * n + 5 * n, sizeof *p->all);
	if (!p->start || !p->all)
		return -1;
	p->index = p->start + n + 1;
	p->value = p->all;
	p->cost = p->value + 3 * n;
	p->least = p->cost + n;
	p->most = p->least + n;
	p->row_least = p->most + n;
	p->row_most = p->row_least + n;
	return 0;
}

static void program_close(struct program *p)
{
	free(p->start);
	free(p->all);
}

/* Adds (n - 2w) x - rate t <= -w for each machine with reducers; machines without reducers only bound the time. */
static void program_fill(struct program *p, const struct plan_net *net)
{
	int elements = p->rows - 1, row = 1;

	p->cost[0] = 1;
	p->row_least[0] = p->row_most[0] = 1;
	for (unsigned m = 0; m < net->machines_n; m++) {
		const struct plan_machine *machine = &net->machine[m];
		double rate = machine->rate / p->rate, workers = machine->workers;

		if (machine->reducers == 0) {
			p->bound = fmax(p->bound, workers / rate);
			continue;
		}
		p->index[row - 1] = row;
		p->value[row - 1] = -rate;
		p->start[row] = elements;
		p->index[elements] = 0;
		p->value[elements++] = 1;
		p->index[elements] = row;
		p->value[elements++] = net->workers - 2 * workers;
		p->most[row] = 1;
		p->row_least[row] = -DBL_MAX;
		p->row_most[row] = -workers;
		row++;
	}
	p->start[row] = elements;
	p->least[0] = p->bound;
	p->most[0] = DBL_MAX;
}

int plan_lp(const struct plan_net *net, double *ret_time, struct rs_err *e)
{
	struct program p;
	Clp_Simplex *clp = NULL;
	int rc = RS_OK;

	if (program_init(&p, net) == 0)
		clp = Clp_newModel();
	if (!clp) {
		rc = rs_fail(e, RS_ENOMEM, "out of memory for the linear program of %u machines", net->machines_n);
		goto close_program;
	}
	program_fill(&p, net);
	Clp_setLogLevel(clp, 0);
	Clp_setPrimalTolerance(clp, 1e-9);
	Clp_loadProblem(clp, p.columns, p.rows, p.start, p.index, p.value, p.least, p.most, p.cost, p.row_least,
			p.row_most);
	Clp_initialSolve(clp);
	if (Clp_status(clp) == 0)
		*ret_time = Clp_objectiveValue(clp) / p.rate;
	else
		rc = rs_fail(e, RS_EINTERNAL, "Clp found no solution for the links of %u machines (status %d)",
			     net->machines_n, Clp_status(clp));
	Clp_deleteModel(clp);
close_program:
	program_close(&p);
	return rc;
}

#else

int plan_lp(const struct plan_net *net, double *ret_time, struct rs_err *e)
{
	(void)net;
	(void)ret_time;
	return rs_fail(e, RS_EUNSUPPORTED,
		       "found links that are not all equal, for which this reductionctl was built without a library: "
		       "install Debian's coinor-libclp-dev and build it again");
}
#endif
