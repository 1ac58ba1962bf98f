# SPDX-License-Identifier: Apache-2.0
# packages of Debian and of Python
STRIP ?= strip
deb: ## build the Debian packages, in build/deb; needs deploy/install-deps.sh build deb
	deploy/deb.sh $(BUILD)/deb
portable-tree: $(bin) $(lib) ## programs and libraries that carry what they need, in build/portable; needs patchelf
	$(PYTHON) deploy/portable.py --build $(B) --out $(BUILD)/portable --version $(VERSION) --cc '$(CC)' --strip '$(STRIP)' \
		--root '$(or $(SYSROOT),/)'
# for /opt/reduction, or any other folder
portable_machine = $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
portable_name    = reduction-$(VERSION)-$(portable_machine)
portable_prefix := /opt/reduction
portable: portable-tree ## one archive with programs, library, units and manual pages, in build/portable-archive
	rm -rf $(BUILD)/portable-archive
	$(MAKE) install DESTDIR=$(abspath $(BUILD))/portable-archive/stage PREFIX=$(portable_prefix) \
		LIBDIR=$(portable_prefix)/lib PYTHONDIR=$(portable_prefix)/lib/python >/dev/null
	deploy/tarball.sh $(BUILD)/portable $(BUILD)/portable-archive/stage $(portable_prefix) $(BUILD)/portable-archive \
		$(portable_name)
rpm: portable ## build the package for RHEL 9, Rocky, Amazon Linux and Fedora, in build/rpm; needs rpmbuild
	deploy/rpm/rpm.sh $(BUILD)/portable-archive/$(portable_name) $(portable_prefix) $(BUILD)/rpm $(VERSION) $(portable_machine)
wheel: portable-tree $(B)/man/made ## build the Python wheel, in build/wheel; needs patchelf
	$(PYTHON) deploy/wheel.py --tree $(BUILD)/portable --man $(B)/man --version $(VERSION) --out $(BUILD)/wheel
aarch64: ## build wheel, archive and rpm for aarch64, in build/aarch64, as root; needs deploy/install-deps.sh build wheel rpm aarch64
	MAKE='$(MAKE)' deploy/cross.sh $@ $(BUILD)/$@ wheel rpm
release: ## build all artefacts of VERSION=, check them, write checksums, in build/release; as root. ARGS: of 'make fresh'
	MAKE='$(MAKE)' PYTHON='$(PYTHON)' deploy/release.sh '$(if $(filter command%,$(origin VERSION)),$(VERSION))' \
		$(BUILD)/release $(ARGS)
image: ## build the container image "reduction" with podman or buildah; ARGS='--build-arg GRPC=off': smaller
	deploy/container/image.sh $(BUILD)/image $(ARGS)
.PHONY: deb portable-tree portable aarch64 release rpm wheel image
