# Reduction Server. 'make help' lists what there is to make.
COMMA := ,
.SUFFIXES:
all:

# make SAN=address,undefined builds beside the default, in a folder of its own; BUILD= names another folder
SAN   ?=
BUILD ?= build
B     := $(BUILD)/$(or $(subst $(COMMA),-,$(SAN)),default)

PKG_CONFIG ?= pkg-config
CFLAGS     ?= -O2 -g
PKGS       := libuv libprotobuf-c yaml-0.1 libxxhash libcrypto
OWN        := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
              -fPIC -fvisibility=hidden -ffp-contract=off -fno-strict-aliasing -pthread -MMD -MP -I. -I$(B)/gen \
              $(if $(WERROR),-Werror) $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
OWN        += $(shell $(PKG_CONFIG) --cflags $(PKGS))
LIBS       := $(shell $(PKG_CONFIG) --libs $(PKGS)) -pthread -lm
LINK        = $(CC) $(CFLAGS) $(LDFLAGS) $(if $(SAN),-fsanitize=$(SAN))

bin  :=
lib  :=
test :=
include common/module.mk proto/module.mk config/module.mk server/module.mk agent/module.mk bench/module.mk tests/module.mk

all: $(bin) $(lib)

$(B)/%.o: %.c $(gen_h)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(OWN) $(ISA) -c -o $@ $<
$(B)/gen/%.o: $(B)/gen/%.c
	$(CC) $(CFLAGS) $(filter-out -Wmissing-prototypes -Wshadow,$(OWN)) -c -o $@ $<
$(B)/%.a:
	@mkdir -p $(@D)
	rm -f $@ && $(AR) rcs $@ $^

clean:
	rm -rf $(BUILD)
.PHONY: all clean
-include $(shell find $(B) -name '*.d' 2>/dev/null)
