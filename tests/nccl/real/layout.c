/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/real/fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

long layout[LAYOUT_NR];

static const char *const names[LAYOUT_NR] = {
    [ARGS_SIZE] = "ARGS_SIZE",
    [ARGS_MASK] = "ARGS_MASK",
    [ARGS_STORAGE] = "ARGS_STORAGE",
    [ARGS_WORK_MASK] = "ARGS_WORK_MASK",
    [ARGS_WORK] = "ARGS_WORK",
    [COMM_RANKS] = "COMM_RANKS",
    [COMM_ABORT] = "COMM_ABORT",
    [COMM_BUFFER_SIZES] = "COMM_BUFFER_SIZES",
    [COMM_CHANNELS] = "COMM_CHANNELS",
    [CHANNEL_SIZE] = "CHANNEL_SIZE",
    [CHANNEL_PEERS] = "CHANNEL_PEERS",
    [CHANNEL_CHAIN] = "CHANNEL_CHAIN",
    [CHANNEL_FIFO_DONE] = "CHANNEL_FIFO_DONE",
    [TREE_UP] = "TREE_UP",
    [TREE_DOWN] = "TREE_DOWN",
    [PEER_SEND] = "PEER_SEND",
    [PEER_RECV] = "PEER_RECV",
    [CONN_SIZE] = "CONN_SIZE",
    [CONN_BUFFERS] = "CONN_BUFFERS",
    [CONN_TAIL] = "CONN_TAIL",
    [CONN_HEAD] = "CONN_HEAD",
    [CONN_STEP_SIZE] = "CONN_STEP_SIZE",
    [CONN_FIFO] = "CONN_FIFO",
    [CONN_STEP] = "CONN_STEP",
    [FIFO_SIZE] = "FIFO_SIZE",
    [FIFO_MODE] = "FIFO_MODE",
    [FIFO_OFFSET] = "FIFO_OFFSET",
    [FIFO_BYTES] = "FIFO_BYTES",
    [WORK_SIZE] = "WORK_SIZE",
    [WORK_SEND] = "WORK_SEND",
    [WORK_RECV] = "WORK_RECV",
    [WORK_COUNT] = "WORK_COUNT",
    [WORK_COUNT_SIZE] = "WORK_COUNT_SIZE",
    [WORK_CHUNK] = "WORK_CHUNK",
    [BATCH_SIZE] = "BATCH_SIZE",
    [BATCH_BASE] = "BATCH_BASE",
    [BATCH_SET] = "BATCH_SET",
    [ELEM_SIZE] = "ELEM_SIZE",
    [ELEM_SEND] = "ELEM_SEND",
    [ELEM_RECV] = "ELEM_RECV",
    [ELEM_COUNT] = "ELEM_COUNT",
};

void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "real: pid %d: ", (int)getpid());
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	_exit(1);
}

void layout_read(const char *path)
{
	FILE *f = fopen(path, "re");
	char name[32];
	long value;
	int known = 0;

	if (!f)
		die("%s cannot be read", path);
	while (fscanf(f, "%31s %ld", name, &value) == 2)
		for (int i = 0; i < LAYOUT_NR; i++)
			if (strcmp(names[i], name) == 0) {
				layout[i] = value;
				known++;
			}
	fclose(f);
	if (known != LAYOUT_NR)
		die("%s has %d of %d values: remove it, so that layout.py writes it again", path, known, LAYOUT_NR);
}
