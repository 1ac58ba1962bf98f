# SPDX-License-Identifier: Apache-2.0
# the process: its loops, threads and memory
server_io += $(wildcard server/run/*.c)
