# SPDX-License-Identifier: Apache-2.0
# the process: its loops, its threads, its memory
server_io += $(wildcard server/run/*.c)
