# SPDX-License-Identifier: Apache-2.0
# libreduction-mpi.so: MPI's calls through reducers. It needs no MPI to be built.
mpi_shim := $(B)/lib/libreduction-mpi.so
mpi_shim_obj := $(patsubst %.c,$(B)/%.o,$(wildcard agent/mpi/*.c))
lib += $(mpi_shim)
$(mpi_shim): $(mpi_shim_obj) $(B)/lib/libreduction.so
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK_SO) -Wl,-soname,$(@F) -Wl,-z,nodelete -o $@ $(mpi_shim_obj) -L$(B)/lib -lreduction \
		$(if $(RPATH),-Wl$(COMMA)-rpath$(COMMA)'$(RPATH)')
