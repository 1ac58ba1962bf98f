# SPDX-License-Identifier: Apache-2.0
# a program that calls MPI, for each MPI whose compiler is found; the sanitizers do not see
# into an MPI
mpi_table := $(mpis:%=$(B)/tests/mpi/table-%)
$(mpi_table): $(B)/tests/mpi/table-%: tests/mpi/table.c
	@mkdir -p $(@D)
	$(call say,LD,$@)mpicc.$* $(CFLAGS) -Wall -Wextra $(if $(WERROR),-Werror) -rdynamic -o $@ $< -pthread
