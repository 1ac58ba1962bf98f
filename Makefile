# SPDX-License-Identifier: Apache-2.0
# Reduction Server. 'make help' lists what there is to make.
COMMA := ,
MAKEFLAGS += --no-print-directory
.SUFFIXES:
.DELETE_ON_ERROR:
$(if $(V),,$(eval .SILENT:))
all:

# make SAN=address,undefined builds beside the default, in a folder of its own; BUILD=
# names another folder
SAN     ?=
BUILD   ?= build
B       := $(BUILD)/$(or $(subst $(COMMA),-,$(SAN)),default)
VERSION := $(shell sed -n 's/^.define RS_VERSION "\(.*\)"/\1/p' common/version.h)

PKG_CONFIG ?= pkg-config
PYTHON     ?= /usr/bin/python3
PREFIX    ?= /usr/local
BINDIR    ?= $(PREFIX)/bin
LIBDIR    ?= $(PREFIX)/lib
INCDIR    ?= $(PREFIX)/include
DOCDIR    ?= $(PREFIX)/share/doc/reduction
MANDIR    ?= $(PREFIX)/share/man
COMPDIR   ?= $(PREFIX)/share/bash-completion/completions
# units; those of packages are in /usr/lib/systemd/system, with their group in
# /usr/lib/sysusers.d
SYSTEMDDIR  ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
# where PYTHON looks below PREFIX, if it does: for /usr/local that is a folder of its
# version
ifneq ($(filter install uninstall,$(MAKECMDGOALS)),)
ifeq ($(origin PYTHONDIR),undefined)
PYTHONDIR := $(or $(shell $(PYTHON) -c 'import sys; print(next(p for p in sys.path if p.startswith("$(PREFIX)/lib/") \
                                        and p.endswith("-packages")))' 2>/dev/null),$(PREFIX)/lib/python3/dist-packages)
endif
endif

CFLAGS     ?= -O2 -g
PKGS       := libuv libprotobuf-c yaml-0.1 libxxhash libssl libcrypto

# Goals that need no compiler and no library, or install them first. All others do, and
# only for those are they looked for.
bare     := help deps test test-all test-build test-all-build demo demo-elastic fresh deb aarch64 release image clean format uninstall conformance check-gpu
building := $(if $(MAKECMDGOALS),$(filter-out $(bare),$(MAKECMDGOALS)),all)
ifneq ($(building),)
include deploy/detect.mk
endif

# The flags that the tree needs, apart from CPPFLAGS and CFLAGS, which are the user's:
# 'make CFLAGS=-O0' keeps these.
HARDEN := -fstack-protector-strong $(HARDEN_OPTIONS) \
          $(if $(SAN),,$(if $(filter -O1 -O2 -O3 -Os,$(CFLAGS)),$(if $(own_fortify),,-D_FORTIFY_SOURCE=2)))
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer) \
            $(if $(findstring undefined,$(SAN)),-fno-sanitize-recover=undefined)
OWN := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
       -fPIC -fvisibility=hidden -ffp-contract=off -fno-strict-aliasing -pthread -MMD -MP -I. -I$(B)/gen \
       $(HARDEN) $(if $(WERROR),-Werror) $(SANFLAGS) $(PKG_CFLAGS)
LIBS    := $(PKG_LIBS) -pthread -lm
LINKOWN := $(SANFLAGS) -Wl,-z,relro,-z,now -Wl,-z,noexecstack -Wl,--as-needed
say      = $(if $(V),,$(info   $(1)  $(2)))
LINK     = $(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) $(LINKOWN) -pie
LINK_SO  = $(call say,LD,$@)$(CC) $(CFLAGS) $(LDFLAGS) $(LINKOWN) -shared $(if $(SAN),,-Wl$(COMMA)-z$(COMMA)defs)

# $(eval $(call archive,NAME,FOLDER)) defines the variable NAME, the archive FOLDER/NAME.a
# of all C files of FOLDER. $(call archive,NAME,FOLDER,FILES): of these files. The archive
# is made again when the list of its members changes.
define archive
$(1) := $$(B)/$(2)/$(1).a
$$($(1)): $(patsubst %.c,$$(B)/%.o,$(if $(strip $(3)),$(3),$(wildcard $(2)/*.c)))
$$(B)/$(2)/$(1).members: FORCE
	$$(call keep,$(sort $(if $(strip $(3)),$(3),$(wildcard $(2)/*.c))))
endef

bin   :=
lib   :=
include common/module.mk proto/module.mk common/host/module.mk config/module.mk deploy/ctl/module.mk server/module.mk agent/module.mk bench/module.mk tests/module.mk \
        deploy/man/module.mk deploy/packages.mk
include $(wildcard agent/examples/*/module.mk)

all: $(bin) $(lib) ## build everything; SAN=address,undefined or SAN=thread: with sanitizers, in a folder beside it

# The generated headers must exist before the first compilation; from the second one on
# the .d files say who includes them.
$(B)/%.o: %.c $(B)/flags | $(gen_h)
	mkdir -p $(@D)
	$(call say,CC,$<)$(CCACHE) $(CC) $(CPPFLAGS) $(CFLAGS) $(OWN) $(ISA) -c -o $@ $<
# their assertions name them without the folder of the build, on which no program depends
$(B)/gen/%.o: $(B)/gen/%.c $(B)/flags
	$(call say,CC,$<)$(CCACHE) $(CC) $(CPPFLAGS) $(CFLAGS) $(filter-out -Wmissing-prototypes -Wshadow,$(OWN)) \
		-fmacro-prefix-map=$(B)/= -c -o $@ $<
$(B)/%.a: $(B)/%.members
	mkdir -p $(@D)
	$(call say,AR,$@)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

# $(call keep,TEXT) writes TEXT into the target if it has another one, so that what
# depends on it is made again only then
keep = mkdir -p $(@D); printf '%s\n' '$(1)' | cmp -s - $@ || printf '%s\n' '$(1)' >$@
# the compiler and its flags: when they change, everything is compiled again
$(B)/flags: FORCE
	$(call keep,$(CC) $(CC_VERSION) $(CPPFLAGS) $(CFLAGS) $(OWN) | $(LDFLAGS) $(LINKOWN))

deps: ## install the Debian packages that building, testing and the demo need
	deploy/install-deps.sh build test demo

install: all ## install below PREFIX (/usr/local); DESTDIR, LIBDIR, PYTHONDIR and SYSTEMDDIR as usual; NCCL_NET_LINK=1: libnccl-net.so too
	$(if $(DESTDIR),install -d,deploy/folders.sh make $(made_folders)) \
		$(addprefix $(DESTDIR),$(BINDIR) $(LIBDIR)/pkgconfig $(INCDIR) $(PYTHONDIR)/reduction $(DOCDIR)/examples \
		$(addprefix $(DOCDIR)/,$(doc_folders)) $(addprefix $(MANDIR)/man,$(man_sections)) $(COMPDIR) \
		$(SYSTEMDDIR) $(SYSUSERSDIR))
	install -m 755 $(bin) $(DESTDIR)$(BINDIR)
	install -m 644 $(B)/lib/libreduction.so $(DESTDIR)$(LIBDIR)/libreduction.so.$(VERSION)
	ln -sf libreduction.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libreduction.so.0
	ln -sf libreduction.so.0 $(DESTDIR)$(LIBDIR)/libreduction.so
	$(if $(filter %-grpc.so,$(lib)),install -m 644 $(B)/lib/libreduction-grpc.so $(DESTDIR)$(LIBDIR))
	install -m 644 $(nccl_plugin) $(nccl_env) $(jax_library) $(mpi_shim) $(DESTDIR)$(LIBDIR)
	$(if $(NCCL_NET_LINK),ln -sf $(notdir $(nccl_plugin)) $(DESTDIR)$(LIBDIR)/libnccl-net.so)
	install -m 644 agent/lib/include/reduction.h $(DESTDIR)$(INCDIR)
	sed 's|@prefix@|$(PREFIX)|; s|@libdir@|$(LIBDIR)|; s|@includedir@|$(INCDIR)|; s|@version@|$(VERSION)|' \
		deploy/reduction.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/reduction.pc
	chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/reduction.pc
	install -m 644 $(python_files) $(DESTDIR)$(PYTHONDIR)/reduction
	for f in $(doc_files); do install -m 644 $$f $(DESTDIR)$(DOCDIR)/$$f || exit; done
	install -m 644 $(example_files) $(DESTDIR)$(DOCDIR)/examples
	$(foreach n,$(man_sections),install -m 644 $(filter %.$(n),$(man_pages)) $(DESTDIR)$(MANDIR)/man$(n) &&) true
	install -m 644 deploy/completion/reductionctl $(DESTDIR)$(COMPDIR)
	for p in $(completed); do ln -sf reductionctl $(DESTDIR)$(COMPDIR)/$$p || exit; done
	for f in $(unit_files); do sed 's|/usr/bin/reduction|$(BINDIR)/reduction|' $$f \
		>$(DESTDIR)$(SYSTEMDDIR)/$${f##*/} && chmod 644 $(DESTDIR)$(SYSTEMDDIR)/$${f##*/} || exit; done
	install -m 644 deploy/systemd/reduction.sysusers $(DESTDIR)$(SYSUSERSDIR)/reduction.conf
	echo "installed below $(DESTDIR)$(PREFIX)"
	$(if $(DESTDIR),,[ "$$(id -u)" != 0 ] || ldconfig)

# which folders did not exist before; a staging tree (DESTDIR) keeps no such list
made_folders := $(DOCDIR)/.folders
uninstall: ## remove what 'make install' with the same variables installed
	rm -f $(addprefix $(DESTDIR)$(BINDIR)/,$(notdir $(bin)))
	rm -f $(addprefix $(DESTDIR)$(LIBDIR)/,libreduction.so libreduction.so.0 libreduction.so.$(VERSION) \
		libreduction-grpc.so $(notdir $(nccl_plugin) $(nccl_env) $(jax_library) $(mpi_shim)) pkgconfig/reduction.pc)
	[ "$$(readlink $(DESTDIR)$(LIBDIR)/libnccl-net.so)" != $(notdir $(nccl_plugin)) ] || rm $(DESTDIR)$(LIBDIR)/libnccl-net.so
	rm -f $(DESTDIR)$(INCDIR)/reduction.h
	rm -f $(addprefix $(DESTDIR)$(DOCDIR)/,$(doc_files)) $(addprefix $(DESTDIR)$(DOCDIR)/examples/,$(notdir $(example_files)))
	rm -f $(foreach p,$(notdir $(man_pages)),$(DESTDIR)$(MANDIR)/man$(patsubst .%,%,$(suffix $(p)))/$(p))
	rm -f $(addprefix $(DESTDIR)$(COMPDIR)/,reductionctl $(completed))
	rm -f $(addprefix $(DESTDIR)$(SYSTEMDDIR)/,$(notdir $(unit_files))) $(DESTDIR)$(SYSUSERSDIR)/reduction.conf
	rm -rf $(DESTDIR)$(PYTHONDIR)/reduction
	$(if $(DESTDIR),,deploy/folders.sh remove $(made_folders))
	$(if $(DESTDIR),,[ "$$(id -u)" != 0 ] || ldconfig)

clean: ## remove everything that was built
	rm -rf $(BUILD)

help: ## this list
	awk 'match($$0, /^[a-z0-9-]+:.*## /) { sub(/:.*## /, "\t"); printf "make %-13s %s\n", substr($$0, 1, index($$0, "\t") - 1), \
		substr($$0, index($$0, "\t") + 1) }' $(MAKEFILE_LIST)
	echo "Variables: CC CPPFLAGS CFLAGS LDFLAGS CCACHE SAN WERROR=1 BUILD PREFIX DESTDIR; V=1 shows commands; GRPC=off, HTTP=off, ZLIB=off leave it out; UV_STATIC=off: no libuv inside the libraries"

python_files  := $(wildcard agent/python/reduction/*.py) agent/python/reduction/py.typed
example_files := $(wildcard config/examples/*.yaml agent/examples/*.c agent/examples/*.py)
# documents and what they link to keep their folders, so that links work;
# tests/e2e/tests/test_docs.py follows them
doc_files     := LICENSE deploy/make-certs.sh $(filter-out $(BUILD)/% build/% deploy/man/%,$(wildcard *.md */*.md */*/*.md */*/*/*.md)) $(wildcard bench/net/plots/*.svg bench/wire/plots/*.svg bench/sites/plots/*.svg bench/step/plots/*.svg deploy/*.svg proto/*.proto \
                 deploy/prometheus/*.yml deploy/grafana/*.json \
                 config/examples/*.yaml agent/examples/*.c agent/examples/*.py agent/examples/*/*.py proto/vectors/*.json proto/python/*.py \
                 deploy/kubernetes/*.yaml deploy/kubernetes/*/*.yaml deploy/slurm/*.sbatch) \
                 agent/lib/include/reduction.h
unit_files    := $(wildcard deploy/systemd/*.service)
doc_folders   := $(filter-out .,$(patsubst %/,%,$(sort $(dir $(doc_files)))))

.PHONY: all deps install uninstall clean help FORCE
-include $(shell find $(B) -name '*.d' 2>/dev/null)
