# SPDX-License-Identifier: Apache-2.0
# packages of Debian and of Python
deb: ## build the Debian packages, in build/deb; needs deploy/install-deps.sh build deb
	deploy/deb.sh $(BUILD)/deb
wheel: $(wheel_so) ## build the Python wheel, in build/wheel
	$(PYTHON) deploy/wheel.py --library $< --version $(VERSION) --out $(BUILD)/wheel
image: ## build the container image "reduction" with podman or buildah; ARGS='--build-arg GRPC=off': smaller
	deploy/container/image.sh $(BUILD)/image $(ARGS)
.PHONY: deb wheel image
