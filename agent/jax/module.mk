# SPDX-License-Identifier: Apache-2.0
# libreduction-jax.so: what jaxlib opens as MPITRAMPOLINE_LIB, on the public interface of
# libreduction
jax_library := $(B)/lib/libreduction-jax.so
jax_obj     := $(patsubst %.c,$(B)/%.o,$(wildcard agent/jax/*.c)) $(B)/gen/jax_stubs.o
lib         += $(jax_library)
$(B)/gen/jax_stubs.c: agent/jax/stubs.awk agent/jax/interface.txt
	mkdir -p $(@D)
	awk -f $^ >$@
$(jax_library): $(jax_obj) $(B)/lib/libreduction.so
	@mkdir -p $(@D)
	$(call say,LD,$@)$(LINK_SO) -Wl,-soname,$(@F) -o $@ $(filter %.o,$^) -L$(B)/lib -lreduction
