# SPDX-License-Identifier: Apache-2.0
# packages of Debian and of Python
STRIP ?= strip
deb: ## build the Debian packages, in build/deb; needs deploy/install-deps.sh build deb
	deploy/deb.sh $(BUILD)/deb
portable-tree: $(bin) $(lib) ## programs and libraries that carry what they need, in build/portable; needs patchelf
	$(PYTHON) deploy/portable.py --build $(B) --out $(BUILD)/portable --version $(VERSION) --cc '$(CC)' --strip '$(STRIP)'
wheel: portable-tree $(B)/man/made ## build the Python wheel, in build/wheel; needs patchelf
	$(PYTHON) deploy/wheel.py --tree $(BUILD)/portable --man $(B)/man --version $(VERSION) --out $(BUILD)/wheel
image: ## build the container image "reduction" with podman or buildah; ARGS='--build-arg GRPC=off': smaller
	deploy/container/image.sh $(BUILD)/image $(ARGS)
.PHONY: deb portable-tree wheel image
