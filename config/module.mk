# SPDX-License-Identifier: Apache-2.0
$(eval $(call archive,libconfig,config,$(wildcard config/*.c config/check/*.c)))

docs: $(B)/bin/reductionctl ## write config/README.md from the table in config/schema.c
	$< reference >config/README.md.new && mv config/README.md.new config/README.md
.PHONY: docs
