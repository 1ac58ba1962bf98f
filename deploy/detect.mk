# SPDX-License-Identifier: Apache-2.0
# Finds compilers and libraries, each probe once in a run of make. The Makefile includes
# this file only if the goals need a compiler. Sets CC_VERSION, HARDEN_OPTIONS,
# own_fortify, target_x86, PKG_CFLAGS and PKG_LIBS, CHECK_LIBS, and GRPC (on or off) with
# _CFLAGS and _LIBS, HTTP and ZLIB the same, libuv_static, gloo_found, mpis; prints what
# is on and off.
probe = $(shell deploy/probe.sh $(1))

# the packages of Debian and Ubuntu, and of Fedora and RHEL, with each program and each pkg-config name
in_libuv         := libuv1-dev libuv-devel
in_libprotobuf-c := libprotobuf-c-dev protobuf-c-devel
in_yaml-0.1      := libyaml-dev libyaml-devel
in_libxxhash     := libxxhash-dev xxhash-devel
in_libcrypto     := libssl-dev openssl-devel
in_libssl        := libssl-dev openssl-devel
in_check         := check check-devel
in_protoc        := protobuf-compiler protobuf-compiler
in_protoc-gen-c  := protobuf-c-compiler protobuf-c-compiler
in_$(firstword $(PKG_CONFIG)) := pkg-config pkgconf-pkg-config
in_$(firstword $(CC))         := $(patsubst cc,gcc,$(firstword $(CC))) $(patsubst cc,gcc,$(firstword $(CC)))
# The oldest versions that the tree is built with. They are in Debian 11, Ubuntu 22.04 and RHEL 9, but for OpenSSL in Debian.
least_libuv         := 1.40
least_libprotobuf-c := 1.3.3
least_libxxhash     := 0.8.0
least_libcrypto     := 3.0
least_libssl        := 3.0

missing = $(error $(1) was not found: install the package $(firstword $(in_$(1))) (Debian, Ubuntu) or \
                  $(lastword $(in_$(1))) (Fedora, RHEL), or let 'make deps' install all that is needed)
old     = $(error $(1) $(shell $(PKG_CONFIG) --modversion $(1)) was found, expected $(least_$(1)) or newer)
need_program = $(if $(call probe,program '$(1)'),,$(call missing,$(1)))
need_package = $(if $(call probe,package '$(PKG_CONFIG)' $(1)),$(if $(call probe,package '$(PKG_CONFIG)' '$(call new,$(1))'),,\
                    $(call old,$(1))),$(call missing,$(1)))
new          = $(1) >= $(or $(least_$(1)),0)
$(call need_program,$(firstword $(CC)))
$(call need_program,$(firstword $(PKG_CONFIG)))
$(call need_program,protoc)
$(call need_program,protoc-gen-c)
ifeq ($(call probe,package '$(PKG_CONFIG)' $(foreach p,$(PKGS),'$(call new,$(p))')),)
$(foreach p,$(PKGS),$(call need_package,$(p)))
endif
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS))
PKG_LIBS   := $(shell $(PKG_CONFIG) --libs $(PKGS))
# for unit tests, which ask for it when they are linked
CHECK_LIBS := $(shell $(PKG_CONFIG) --libs check 2>/dev/null)

CC_VERSION     := $(shell $(CC) -dumpfullversion -dumpversion 2>/dev/null)
target_x86     := $(filter x86_64%,$(shell $(CC) -dumpmachine 2>/dev/null))
HARDEN_OPTIONS := $(foreach f,-fstack-clash-protection -fcf-protection,$(if $(call probe,option '$(CC)' $(f)),$(f)))
# The compiler or the user's flags define _FORTIFY_SOURCE already, perhaps with a higher
# level.
own_fortify    := $(call probe,macro '$(CC) $(CPPFLAGS) $(CFLAGS)' _FORTIFY_SOURCE)

# optional: for libreduction-grpc.so. Its own list of libraries is for linking statically. gRPC before 1.45, as in
# Ubuntu 22.04, lacks functions that we need.
GRPC ?= probe
ifneq ($(filter probe on,$(GRPC)),)
GRPC_CFLAGS := $(shell $(PKG_CONFIG) --cflags-only-I grpc 2>/dev/null)
GRPC_LIBS   := $(shell $(PKG_CONFIG) --libs-only-L grpc 2>/dev/null) -lgrpc -lgpr
endif
ifeq ($(GRPC),probe)
GRPC := $(if $(call probe,package '$(PKG_CONFIG)' grpc),$(if $(call probe,function '$(CC)' grpc/grpc_security.h \
          grpc_channel_create $(GRPC_CFLAGS) $(GRPC_LIBS)),on,off (found one before 1.45)),off)
endif

# optional: a static libuv for the shared libraries. Debian's is compiled for programs, so
# its references to some variables of the C library have to lead elsewhere. UV_STATIC=off,
# for packages: they use the shared libuv.
UV_STATIC ?= probe
ifneq ($(UV_STATIC),off)
libuv_wrap    := environ in6addr_any stderr
libuv_archive := $(firstword $(wildcard $(addprefix $(shell $(PKG_CONFIG) --variable=libdir libuv)/,libuv_a.a libuv.a)))
libuv_static  := $(if $(libuv_archive),$(if $(call probe,shared '$(CC)' $(libuv_archive) $(libuv_wrap)),$(libuv_archive)))
endif

# optional: the HTTP port of server and agent
HTTP ?= probe
ifeq ($(HTTP),probe)
HTTP := $(if $(call probe,package '$(PKG_CONFIG)' libmicrohttpd gnutls),on,off)
endif
ifeq ($(HTTP),on)
HTTP_CFLAGS := $(shell $(PKG_CONFIG) --cflags libmicrohttpd gnutls)
HTTP_LIBS   := $(shell $(PKG_CONFIG) --libs libmicrohttpd gnutls)
endif

# optional: compressed support bundles
ZLIB ?= probe
ifeq ($(ZLIB),probe)
ZLIB := $(if $(call probe,package '$(PKG_CONFIG)' zlib),on,off)
endif
ifeq ($(ZLIB),on)
ZLIB_CFLAGS := $(shell $(PKG_CONFIG) --cflags zlib)
ZLIB_LIBS   := $(shell $(PKG_CONFIG) --libs zlib)
endif

# optional: the peers of the benchmarks. An MPI may be installed without its headers
# (Debian's mpich without libmpich-dev).
gloo_found := $(call probe,header c++ '$(CXX) -std=c++17' gloo/allreduce.h -lgloo)
mpis       := $(foreach m,openmpi mpich,$(if $(call probe,header c mpicc.$(m) mpi.h),$(m)))

$(info reduction $(VERSION): $(CC) $(CC_VERSION), sanitizers $(or $(SAN),off), gRPC $(GRPC), HTTP $(HTTP), \
zlib $(ZLIB), libuv $(if $(libuv_static),static,shared) in libraries; \
benchmarks beside $(or $(strip $(if $(gloo_found),gloo) $(mpis)),no peers))
