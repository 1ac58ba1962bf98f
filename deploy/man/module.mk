# SPDX-License-Identifier: Apache-2.0
# Manual pages: from the Markdown here and from what the programs say with --help.
# Sanitized programs are not installed.
man_sources  := $(wildcard deploy/man/*.md)
man_pages    := $(patsubst deploy/man/%.md,$(B)/man/%,$(man_sources))
man_sections := $(sort $(patsubst .%,%,$(suffix $(man_pages))))
completed    := $(filter-out reductionctl,$(notdir $(bin)))

$(B)/man/made: deploy/man/pages.py $(man_sources) $(bin) $(lib)
	$(call say,MAN,$(@D))LD_LIBRARY_PATH=$(B)/lib $(PYTHON) deploy/man/pages.py --bin $(B)/bin --version $(VERSION) --out $(@D) $(man_sources)
	touch $@
$(if $(SAN),,$(eval all: $(B)/man/made))
