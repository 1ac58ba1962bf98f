# SPDX-License-Identifier: Apache-2.0
# Finds the libraries: sets PKG_CFLAGS, PKG_LIBS, CC_VERSION, and _CFLAGS and _LIBS of SYSTEMD, CLP and GRPC;
# says what is on and off.
CC_VERSION := $(shell $(CC) -dumpfullversion -dumpversion 2>/dev/null)

# package of Debian for each program and each pkg-config name
deb_libuv         := libuv1-dev
deb_libprotobuf-c := libprotobuf-c-dev
deb_yaml-0.1      := libyaml-dev
deb_libxxhash     := libxxhash-dev
deb_libcrypto     := libssl-dev
deb_libssl        := libssl-dev
deb_check         := check
deb_pkg-config    := pkg-config
deb_protoc-c      := protobuf-c-compiler
deb_$(CC)         := $(patsubst cc,gcc,$(firstword $(CC)))

missing = $(error $(1) was not found: install Debian's package $(deb_$(1)), or let 'make deps' install all that is needed)
need_program = $(if $(shell command -v $(firstword $(1))),,$(call missing,$(1)))
need_package = $(if $(shell $(PKG_CONFIG) --exists $(1) && echo yes),,$(call missing,$(1)))
$(call need_program,$(CC))
$(call need_program,pkg-config)
$(call need_program,protoc-c)
ifeq ($(shell $(PKG_CONFIG) --exists $(PKGS) && echo yes),)
$(foreach p,$(PKGS),$(call need_package,$(p)))
endif
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PKGS))
PKG_LIBS   := $(shell $(PKG_CONFIG) --libs $(PKGS))

# optional: for sd_notify
SYSTEMD ?= $(if $(shell $(PKG_CONFIG) --exists libsystemd && echo yes),on,off)
ifeq ($(SYSTEMD),on)
SYSTEMD_CFLAGS := -DHAVE_SYSTEMD $(shell $(PKG_CONFIG) --cflags libsystemd)
SYSTEMD_LIBS   := $(shell $(PKG_CONFIG) --libs libsystemd)
endif

# optional: for reductionctl plan where links differ. Its own list of libraries is for linking statically.
CLP ?= $(if $(shell $(PKG_CONFIG) --exists clp && echo yes),on,off)
ifeq ($(CLP),on)
CLP_CFLAGS := -DHAVE_CLP $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags-only-I clp))
CLP_LIBS   := $(shell $(PKG_CONFIG) --libs-only-L clp) -lClp
endif

# optional: for libreduction-grpc.so. Its own list of libraries is for linking statically.
GRPC ?= $(if $(shell $(PKG_CONFIG) --exists grpc && echo yes),on,off)
ifeq ($(GRPC),on)
GRPC_CFLAGS := $(shell $(PKG_CONFIG) --cflags-only-I grpc)
GRPC_LIBS   := $(shell $(PKG_CONFIG) --libs-only-L grpc) -lgrpc -lgpr
endif

CUDA_HOME ?= /usr/local/cuda
nvcc      := $(firstword $(shell command -v nvcc) $(wildcard $(CUDA_HOME)/bin/nvcc))
nccl_h    := $(firstword $(wildcard $(addsuffix /nccl.h,$(NCCL_HOME)/include $(CUDA_HOME)/include /usr/include /usr/local/include)))
$(info reduction $(VERSION): $(CC) $(CC_VERSION), sanitizers $(or $(SAN),off), libsystemd $(SYSTEMD), Clp $(CLP), gRPC $(GRPC), \
CUDA $(if $(nvcc),found,not found), NCCL $(if $(nccl_h),found,not found) (nothing uses them yet))
