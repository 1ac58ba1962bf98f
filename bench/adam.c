/* SPDX-License-Identifier: Apache-2.0 */
/* adam: how fast one core updates parameters with AdamW, whose state does not fit its
 * caches. It reads a gradient, two moments and a parameter, and writes the last three:
 * 28 bytes. Beside it the sum of two vectors, which a reducer does now. Prints a JSON
 * line for each: ns for a parameter, GB/s of memory. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ELEMS = 16 << 20, REPEATS = 7 };

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The arrays: gradients, first and second moments, parameters. */
struct state {
	float *g, *m, *v, *p;
};

static void adam(const struct state *s, int step)
{
	const float b1 = 0.9f, b2 = 0.999f, rate = 1e-3f, decay = 1e-2f;
	const float c1 = 1 / (1 - powf(b1, (float)step)), c2 = 1 / (1 - powf(b2, (float)step));
	const float *restrict g = s->g;
	float *restrict m = s->m, *restrict v = s->v, *restrict p = s->p;

	for (size_t i = 0; i < ELEMS; i++) {
		m[i] = b1 * m[i] + (1 - b1) * g[i];
		v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
		p[i] -= rate * (m[i] * c1 / (sqrtf(v[i] * c2) + 1e-8f) + decay * p[i]);
	}
}

static void sum(const struct state *s, int step)
{
	const float *restrict g = s->g;
	float *restrict p = s->p;

	(void)step;
	for (size_t i = 0; i < ELEMS; i++)
		p[i] += g[i];
}

static int by_time(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1 : 1;
}

static void measure(const char *name, void (*run)(const struct state *, int), const struct state *s, double bytes)
{
	double took[REPEATS];

	for (int i = 0; i < REPEATS; i++) {
		double start = now_s();

		run(s, i + 1);
		took[i] = now_s() - start;
	}
	qsort(took, REPEATS, sizeof took[0], by_time);
	printf("{\"row\": \"%s\", \"ns\": %.3f, \"GB_s\": %.2f, \"ns_spread\": [%.3f, %.3f]}\n", name,
	       took[REPEATS / 2] / ELEMS * 1e9, bytes * ELEMS / took[REPEATS / 2] / 1e9, took[0] / ELEMS * 1e9,
	       took[REPEATS - 1] / ELEMS * 1e9);
}

int main(void)
{
	struct state s;
	float **all[] = {&s.g, &s.m, &s.v, &s.p};

	for (unsigned a = 0; a < 4; a++) {
		float *x = malloc(ELEMS * sizeof(float));

		if (!x) {
			fprintf(stderr, "adam: out of memory\n");
			return 1;
		}
		for (size_t i = 0; i < ELEMS; i++)
			x[i] = (float)(i % 255) / 255;
		*all[a] = x;
	}
	measure("adamw", adam, &s, 28);
	measure("sum", sum, &s, 12);
	for (unsigned a = 0; a < 4; a++)
		free(*all[a]);
	return 0;
}
