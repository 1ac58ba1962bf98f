# SPDX-License-Identifier: Apache-2.0
# messages as JSON and as metrics
libhttp := $(B)/common/host/http/libhttp.a
$(libhttp): $(patsubst %,$(B)/common/host/http/%.o,json metrics metrics_text)
# the HTTP port: with libmicrohttpd, or one that cannot be opened
libhttp_port := $(B)/common/host/http/libhttp_port.a
$(libhttp_port): $(patsubst %,$(B)/common/host/http/%.o,$(if $(filter on,$(HTTP)),port_mhd answer,port_none))
$(B)/common/host/http/port_mhd.o $(B)/common/host/http/answer.o: private ISA := $(HTTP_CFLAGS)
# the status page, as an array
$(B)/gen/common/host/http/page_html.h: common/host/http/page.html
	@mkdir -p $(@D)
	{ echo 'static const unsigned char page_html[] = {'; od -An -v -tu1 -w16 $< | sed 's/[0-9][0-9]*/&,/g'; echo '};'; } >$@
gen_h += $(B)/gen/common/host/http/page_html.h
