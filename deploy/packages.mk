# SPDX-License-Identifier: Apache-2.0
# packages of Debian and of Python
deb: ## build the Debian packages, in build/deb; needs deploy/install-deps.sh build deb
	deploy/deb.sh $(BUILD)/deb
wheel: $(wheel_so) ## build the Python wheel, in build/wheel
	$(PYTHON) deploy/wheel.py --library $< --version $(VERSION) --out $(BUILD)/wheel
image: ## build the container image "reduction" with podman or buildah; ARGS='--build-arg GRPC=off': smaller
	tool=$$(command -v podman || command -v buildah) || { echo "image: found neither podman nor buildah" >&2; exit 1; }; \
		$$tool build -f deploy/container/Containerfile --ignorefile deploy/container/ignore -t reduction $(ARGS) .
.PHONY: deb wheel image
