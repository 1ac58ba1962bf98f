# SPDX-License-Identifier: Apache-2.0
# messages as JSON and as metrics
$(eval $(call archive,libhttp,common/host/http,$(patsubst %,common/host/http/%.c,json metrics metrics_job metrics_standard metrics_text)))
# the HTTP port: with libmicrohttpd, or one that cannot be opened
http_port := $(patsubst %,common/host/http/%.c,$(if $(filter on,$(HTTP)),port_mhd answer,port_none))
$(eval $(call archive,libhttp_port,common/host/http,$(http_port)))
$(B)/common/host/http/port_mhd.o $(B)/common/host/http/answer.o: private ISA := $(HTTP_CFLAGS)
# the status page, as an array
$(B)/gen/common/host/http/page_html.h: common/host/http/page.html
	@mkdir -p $(@D)
	{ echo 'static const unsigned char page_html[] = {'; od -An -v -tu1 -w16 $< | sed 's/[0-9][0-9]*/&,/g'; echo '};'; } >$@
gen_h += $(B)/gen/common/host/http/page_html.h
