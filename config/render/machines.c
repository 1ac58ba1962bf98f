/* SPDX-License-Identifier: Apache-2.0 */
#include "config/render/render.h"

#include <string.h>

const char render_machines_date[] = "2025-06";

/* Highest egress bandwidth of a machine in its own network, without Tier_1 networking, in Gbit/s. */
static const struct {
	const char *type;
	unsigned gbit;
} machines[] = {{"n1-standard-4", 10},  {"n1-standard-8", 16},  {"n1-standard-16", 32}, {"n1-standard-32", 32},
		{"n1-standard-64", 32}, {"n1-standard-96", 32}, {"n1-highcpu-8", 16},   {"n1-highcpu-16", 32},
		{"n1-highcpu-32", 32},  {"n1-highmem-8", 16},   {"n1-highmem-16", 32},  {"n1-highmem-32", 32},
		{"n2-standard-8", 16},  {"n2-standard-16", 32}, {"n2-standard-32", 32}, {"n2-highcpu-8", 16},
		{"n2-highcpu-16", 32},  {"n2-highcpu-32", 32},  {"c2-standard-8", 16},  {"c2-standard-16", 32},
		{"c2-standard-30", 32}, {"c2-standard-60", 32}, {"e2-standard-8", 16},  {"e2-standard-16", 16},
		{"e2-highcpu-8", 16},   {"e2-highcpu-16", 16},  {"e2-highcpu-32", 16},  {"a2-highgpu-1g", 24},
		{"a2-highgpu-2g", 32},  {"a2-highgpu-4g", 50},  {"a2-highgpu-8g", 100}, {"a2-megagpu-16g", 100},
		{"a2-ultragpu-1g", 24}, {"a2-ultragpu-2g", 32}, {"a2-ultragpu-4g", 50}, {"a2-ultragpu-8g", 100},
		{"g2-standard-8", 16},  {"g2-standard-16", 32}, {"g2-standard-32", 32}, {"g2-standard-48", 50},
		{"g2-standard-96", 100}};

uint64_t render_machine_rate(const char *type)
{
	for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++)
		if (strcmp(machines[i].type, type) == 0)
			return machines[i].gbit * UINT64_C(1000000000);
	return 0;
}
