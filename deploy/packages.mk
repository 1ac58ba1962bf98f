# SPDX-License-Identifier: Apache-2.0
# packages of Debian and of Python
wheel: $(wheel_so) ## build the Python wheel, in build/wheel
	$(PYTHON) deploy/wheel.py --library $< --version $(VERSION) --out $(BUILD)/wheel
.PHONY: wheel
