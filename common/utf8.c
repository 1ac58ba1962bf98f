/* SPDX-License-Identifier: Apache-2.0 */
#include "common/utf8.h"

#include <stdint.h>

size_t rs_utf8_length(const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 0x06 ? 2 : s[0] >> 4 == 0x0e ? 3 : s[0] >> 3 == 0x1e ? 4 : 0;
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	uint32_t code = n > 1 ? s[0] & (0x7f >> n) : s[0];

	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	if (n == 0 || code < least[n] || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff)
		return 0;
	return n;
}

void rs_utf8_clean(char *s)
{
	while (*s) {
		size_t n = rs_utf8_length(s);
		unsigned char c = (unsigned char)*s;

		/* U+0080 to U+009F are control characters of terminals too */
		if (n == 0 || c < 0x20 || c == 0x7f)
			*s = '?';
		else if (c == 0xc2 && (unsigned char)s[1] < 0xa0)
			s[0] = s[1] = '?';
		s += n ? n : 1;
	}
}
