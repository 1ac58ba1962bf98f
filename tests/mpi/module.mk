# SPDX-License-Identifier: Apache-2.0
# a program that calls MPI, for each MPI whose compiler is found; the sanitizers do not see
# into an MPI
mpi_table := $(mpis:%=$(B)/tests/mpi/table-%)
$(mpi_table): $(B)/tests/mpi/table-%: tests/mpi/table.c
	@mkdir -p $(@D)
	$(call say,LD,$@)mpicc.$* $(CFLAGS) -Wall -Wextra $(if $(WERROR),-Werror) -rdynamic -o $@ $< -pthread

mpi-versions: all ## run MPI programs through reducers with MPI libraries of PyPI: MPICH 4 and 5, Open MPI 5, Intel MPI; ARGS=--help
	$(PYTHON) tests/mpi/versions.py --build $(B) $(ARGS)
.PHONY: mpi-versions
