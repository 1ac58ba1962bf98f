/* SPDX-License-Identifier: Apache-2.0 */
/* Text and tables of `reductionctl status`. */
#ifndef RS_DEPLOY_CTL_SHOW_H
#define RS_DEPLOY_CTL_SHOW_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
	CELL = 48,   /* bytes of a cell */
	COLUMNS = 9, /* most columns of a table */
};

/* One row of a table. */
typedef char row[COLUMNS][CELL];

/* Each of these functions writes into buf and returns it. */
/* "820 ms", "42 s", "3 min", "5.2 h", "2.1 d" */
const char *show_duration(uint64_t ms, char buf[CELL]);
/* "12:03:04 (5 min)": when something began that has lasted for_ms, in local time; the
 * date too after a day. */
const char *show_since(int64_t now_unix_ms, uint64_t for_ms, char buf[CELL]);
const char *show_rate(uint64_t bytes, char buf[CELL]);
const char *show_memory(uint64_t bytes, char buf[CELL]);
/* Text from the network: cleaned, and cut to size. */
const char *show_text(const char *from, char buf[CELL]);

/* Prints rows with so many columns. Columns whose bit is set in `left` are aligned left
 * (names), the others right (numbers); the last column is not padded. */
void show_rows(row *rows, size_t n, unsigned columns, unsigned left);

#endif
