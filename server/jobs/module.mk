# SPDX-License-Identifier: Apache-2.0
# the jobs of a reducer and their status, without I/O
libserver_jobs := $(B)/server/jobs/libserver_jobs.a
$(libserver_jobs): $(patsubst %.c,$(B)/%.o,$(wildcard server/jobs/*.c))
