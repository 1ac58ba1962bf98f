/* SPDX-License-Identifier: Apache-2.0 */
#include "deploy/ctl/show.h"

#include "common/utf8.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

/* "820 ms", "42 s", "3 min", "5.2 h", "2.1 d" */
const char *show_duration(uint64_t ms, char buf[CELL])
{
	double s = (double)ms / 1000;

	if (ms < 1000)
		snprintf(buf, CELL, "%" PRIu64 " ms", ms);
	else if (s < 120)
		snprintf(buf, CELL, "%.0f s", s);
	else if (s < 7200)
		snprintf(buf, CELL, "%.0f min", s / 60);
	else if (s < 172800)
		snprintf(buf, CELL, "%.1f h", s / 3600);
	else
		snprintf(buf, CELL, "%.1f d", s / 86400);
	return buf;
}

/* Writes a number with three digits, in steps of `step` with these unit names. */
static void scaled(double v, double step, const char *const names[5], char buf[CELL])
{
	unsigned i = 0;

	for (; v >= step * 0.9995 && i < 4; i++)
		v /= step;
	snprintf(buf, CELL, i == 0 || v >= 99.95 ? "%.0f %s" : v >= 9.995 ? "%.1f %s" : "%.2f %s", v, names[i]);
}

const char *show_rate(uint64_t bytes, char buf[CELL])
{
	static const char *const names[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};

	scaled((double)bytes, 1000, names, buf);
	return buf;
}

const char *show_memory(uint64_t bytes, char buf[CELL])
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};

	scaled((double)bytes, 1024, names, buf);
	return buf;
}

/* Writes text from the network into a cell: cleaned, and cut to size. */
const char *show_text(const char *from, char buf[CELL])
{
	size_t n = strnlen(from, CELL - 1);

	while (from[n] && n && ((unsigned char)from[n] & 0xc0) == 0x80)
		n--;
	memcpy(buf, from, n);
	buf[n] = '\0';
	rs_utf8_clean(buf);
	return buf;
}

/* Returns the number of characters, not bytes. */
static unsigned width_of(const char *cell)
{
	unsigned n = 0;

	for (; *cell; cell++)
		n += ((unsigned char)*cell & 0xc0) != 0x80;
	return n;
}

void show_rows(row *rows, size_t n, unsigned columns, unsigned left)
{
	unsigned width[COLUMNS] = {0};

	for (size_t i = 0; i < n; i++)
		for (unsigned c = 0; c < columns; c++)
			if (width_of(rows[i][c]) > width[c])
				width[c] = width_of(rows[i][c]);
	for (size_t i = 0; i < n; i++) {
		for (unsigned c = 0; c < columns; c++) {
			int pad = (int)(width[c] - width_of(rows[i][c]));

			if (c == columns - 1) /* the last column: no blanks at the end of a line */
				printf("%s%s", rows[i][c][0] ? "  " : "", rows[i][c]);
			else if (left >> c & 1)
				printf("  %s%*s", rows[i][c], pad, "");
			else
				printf("  %*s%s", pad, "", rows[i][c]);
		}
		fputc('\n', stdout);
	}
}

const char *show_since(int64_t now_unix_ms, uint64_t for_ms, char buf[CELL])
{
	time_t t = (time_t)((now_unix_ms - (int64_t)for_ms) / 1000);
	char clock[CELL / 2] = "?", passed[CELL];
	struct tm tm;

	if (localtime_r(&t, &tm))
		strftime(clock, sizeof clock, for_ms < 86400000 ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &tm);
	show_duration(for_ms, passed);
	snprintf(buf, CELL, "%s (%.20s)", clock, passed);
	return buf;
}
