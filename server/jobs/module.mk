# SPDX-License-Identifier: Apache-2.0
# which jobs there are and how they are, without any I/O as well
libserver_jobs := $(B)/server/jobs/libserver_jobs.a
$(libserver_jobs): $(patsubst %.c,$(B)/%.o,$(wildcard server/jobs/*.c))
