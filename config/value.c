/* SPDX-License-Identifier: Apache-2.0 */
#include "config/value.h"

#include "config/config.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* How the address of a UNIX socket begins, and the most bytes of its path (unix(7)). */
#define VALUE_UNIX "unix:"
enum { VALUE_UNIX_LEN = sizeof VALUE_UNIX - 1, UNIX_PATH_MAX = 107 };

enum { WEIGHT_DIGITS = 6, HOST_MAX = 253 };

/* A unit of a value, and its factor. */
struct unit {
	const char *name;
	uint64_t factor;
};
/* Units that are written, the largest first. */
static const struct unit byte_units[] = {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}};
static const struct unit time_units[] = {{"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1}};
static const struct unit rate_units[] = {{"gbit", 1000000000}, {"mbit", 1000000}, {"kbit", 1000}, {"bit", 1}};

/* Further units that are read. */
static const struct unit more_byte_units[] = {{"B", 1},        {"k", 1000},       {"kB", 1000},      {"M", 1000000},
					      {"MB", 1000000}, {"G", 1000000000}, {"GB", 1000000000}};
static const struct unit more_rate_units[] = {
    {"gbit/s", 1000000000}, {"gbps", 1000000000}, {"gb/s", 1000000000}, {"gb", 1000000000},
    {"mbit/s", 1000000},    {"mbps", 1000000},    {"mb/s", 1000000},    {"mb", 1000000},
    {"kbit/s", 1000},       {"kbps", 1000},       {"kb/s", 1000},       {"kb", 1000},
    {"bit/s", 1},           {"bps", 1},           {"b/s", 1},           {"b", 1},
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Reads digits at *text and moves *text past them. False without a digit, above
 * UINT64_MAX, and with a zero before other digits: YAML 1.1 and C take "010" for 8. */
static bool scan_digits(const char **text, uint64_t *ret)
{
	const char *s = *text;
	uint64_t v = 0;

	if (!is_digit(*s) || (*s == '0' && is_digit(s[1])))
		return false;
	for (; is_digit(*s); s++)
		if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return false;
	*text = s;
	*ret = v;
	return true;
}

/* Reads a decimal number at *text, its part after the point in millionths, and moves
 * *text past it. strtod is not used, since its decimal point depends on the locale of the
 * process. */
static bool scan_decimal(const char **text, uint64_t *ret_whole, uint64_t *ret_part)
{
	uint64_t part = 0;
	int digits = 0;

	if (!scan_digits(text, ret_whole))
		return false;
	if (**text == '.') {
		for ((*text)++; is_digit(**text) && digits < WEIGHT_DIGITS; (*text)++, digits++)
			part = part * 10 + (uint64_t)(**text - '0');
		if (digits == 0)
			return false;
	}
	for (; digits < WEIGHT_DIGITS; digits++)
		part *= 10;
	*ret_part = part;
	return true;
}

/* Returns the factor of a unit, 0 if there is none of this name. Case does not matter,
 * except that b is bits and B is bytes where both could be meant. */
static uint64_t find_unit(const char *text, const struct unit *units, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const char *name = units[i].name, *b = strchr(name, 'i') ? NULL : strpbrk(name, "bB");

		if (strcasecmp(text, name) == 0 && (!b || text[b - name] == *b))
			return units[i].factor;
	}
	return 0;
}

/* Reads a number and one of the units, optionally with a blank between them. The value
 * must be whole. */
static bool scan_with_unit(const char *text, const struct unit *units, size_t n, const struct unit *more, size_t more_n,
			   uint64_t *ret)
{
	uint64_t whole, part, factor;

	if (!scan_decimal(&text, &whole, &part))
		return false;
	if (text[0] == ' ' && text[1])
		text++;
	factor = find_unit(text, units, n);
	if (!factor)
		factor = find_unit(text, more, more_n);
	part *= factor;
	return factor && part % 1000000 == 0 && !__builtin_mul_overflow(whole, factor, &whole) &&
	       !__builtin_add_overflow(whole, part / 1000000, ret);
}

/* Reads a decimal number in millionths. */
static bool scan_weight(const char *text, uint64_t *ret)
{
	uint64_t whole, part;

	return scan_decimal(&text, &whole, &part) && *text == '\0' && !__builtin_mul_overflow(whole, 1000000, &whole) &&
	       !__builtin_add_overflow(whole, part, ret);
}

static bool scan_number(const struct schema_key *key, const char *text, uint64_t *ret)
{
	if (key->zero_word && strcmp(text, key->zero_word) == 0) {
		*ret = 0;
		return true;
	}
	switch (key->type) {
	case SCHEMA_BYTES:
		if (!scan_with_unit(text, byte_units, COUNT(byte_units), more_byte_units, COUNT(more_byte_units), ret))
			return false;
		break;
	case SCHEMA_DURATION:
		if (strcmp(text, "0") == 0)
			*ret = 0;
		else if (!scan_with_unit(text, time_units, COUNT(time_units), NULL, 0, ret))
			return false;
		break;
	case SCHEMA_RATE:
		if (!scan_with_unit(text, rate_units, COUNT(rate_units), more_rate_units, COUNT(more_rate_units), ret))
			return false;
		break;
	case SCHEMA_WEIGHT:
		if (!scan_weight(text, ret))
			return false;
		break;
	default:
		if (!scan_digits(&text, ret) || *text)
			return false;
	}
	if (*ret == 0 && (key->zero || key->zero_word))
		return true;
	return *ret >= key->min && *ret <= key->max && (key->step == 0 || *ret % key->step == 0);
}

static void store_number(const struct schema_key *key, uint64_t v, void *field)
{
	if (key->type == SCHEMA_WEIGHT) {
		*(double *)field = (double)v / 1e6;
	} else if (key->size == 1) { /* of a bool it is 0 or 1 */
		*(uint8_t *)field = (uint8_t)v;
	} else if (key->size == sizeof(uint32_t)) {
		*(uint32_t *)field = (uint32_t)v;
	} else {
		*(uint64_t *)field = v;
	}
}

static uint64_t load_number(const struct schema_key *key, const void *field)
{
	if (key->type == SCHEMA_WEIGHT)
		return (uint64_t)(*(const double *)field * 1e6 + 0.5);
	if (key->size == 1)
		return *(const uint8_t *)field;
	return key->size == sizeof(uint32_t) ? *(const uint32_t *)field : *(const uint64_t *)field;
}

/* Further characters in the name of a machine: colons and a zone, of IPv6 addresses. */
static bool is_host_char(char c)
{
	return rs_name_char(c) || c == ':' || c == '%';
}

/* Further characters in a pattern of names. Commas are not among them: they separate
 * names. */
static bool is_glob_char(char c)
{
	return rs_name_char(c) || c == '*' || c == '?' || c == '@' || c == ' ';
}

static bool parse_name(const struct schema_key *key, const char *text, char *field)
{
	size_t n = strnlen(text, key->max + 1);

	if (n < key->min || n > key->max)
		return false;
	for (size_t i = 0; i < n; i++)
		if (!(key->type == SCHEMA_HOST   ? is_host_char(text[i])
		      : key->type == SCHEMA_GLOB ? is_glob_char(text[i])
						 : rs_name_char(text[i])))
			return false;
	memcpy(field, text, n + 1);
	return true;
}

/* A path may hold any bytes except control characters, which would spoil messages. */
static bool parse_path(const struct schema_key *key, const char *text, char *field)
{
	size_t n = strnlen(text, key->max + 1);

	if (n < key->min || n > key->max)
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return false;
	memcpy(field, text, n + 1);
	return true;
}

/* Checks a host: a name, an IPv4 address, or an IPv6 address in brackets that may have a
 * %zone. */
static bool is_host(const char *host, size_t n)
{
	char text[HOST_MAX + 1], *zone;
	struct in6_addr addr;
	bool numeric = true;

	if (n == 0 || n > HOST_MAX)
		return false;
	memcpy(text, host, n);
	text[n] = '\0';
	if (host[0] == '[') {
		text[n - 1] = '\0';
		zone = strchr(text, '%');
		if (zone) {
			*zone++ = '\0';
			if (*zone == '\0')
				return false;
			for (; *zone; zone++)
				if (!rs_name_char(*zone))
					return false;
		}
		return inet_pton(AF_INET6, text + 1, &addr) == 1;
	}
	for (size_t i = 0; i < n; i++) {
		if (!rs_name_char(text[i]))
			return false;
		numeric = numeric && (is_digit(text[i]) || text[i] == '.');
	}
	return !numeric || inet_pton(AF_INET, text, &addr) == 1;
}

static bool parse_address(const struct schema_key *key, const char *text, char *field)
{
	const char *bracket = strchr(text, ']'), *end;
	uint64_t port = key->step;

	if (!text[0] && key->zero) {
		field[0] = '\0';
		return true;
	}
	if ((text[0] == '[') != (bracket != NULL))
		return false;
	end = bracket ? bracket + 1 : text + strcspn(text, ":");
	if (!is_host(text, (size_t)(end - text)))
		return false;
	if (*end) {
		const char *digits = end + 1;

		if (*end != ':' || !scan_digits(&digits, &port) || *digits || port < key->min || port > key->max)
			return false;
	}
	snprintf(field, key->size, "%.*s:%" PRIu64, (int)(end - text), text, port);
	return true;
}

/* gRPC takes this text as a URI, so the path has no characters that mean something
 * there. */
static bool parse_unix(const struct schema_key *key, const char *text, char *field)
{
	const char *path = text + VALUE_UNIX_LEN;
	size_t n = strnlen(path, UNIX_PATH_MAX + 1);

	if (path[0] != '/' || n < 2 || n > UNIX_PATH_MAX || path[n - 1] == '/')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!rs_name_char(path[i]) && path[i] != '/')
			return false;
	snprintf(field, key->size, "%s", text);
	return true;
}

/* Returns the index of text in words, -1 if it is not among them. */
static int find_word(const char *const *words, const char *text)
{
	for (int i = 0; words[i]; i++)
		if (strcmp(words[i], text) == 0)
			return i;
	return -1;
}

bool value_parse(const struct schema_key *key, const char *text, void *base)
{
	void *field = (char *)base + key->offset;
	static const char *const bool_words[] = {"false", "true", NULL};
	uint64_t v;
	int word;

	switch (key->type) {
	case SCHEMA_NUMBER:
	case SCHEMA_BYTES:
	case SCHEMA_DURATION:
	case SCHEMA_RATE:
	case SCHEMA_WEIGHT:
		if (!scan_number(key, text, &v))
			return false;
		store_number(key, v, field);
		return true;
	case SCHEMA_BOOL:
	case SCHEMA_ENUM:
		word = find_word(key->type == SCHEMA_BOOL ? bool_words : key->words, text);
		if (word >= 0)
			store_number(key, (uint64_t)word, field);
		return word >= 0;
	case SCHEMA_WORD:
		if (find_word(key->words, text) < 0)
			return false;
		snprintf(field, key->size, "%s", text);
		return true;
	case SCHEMA_NAME:
	case SCHEMA_HOST:
	case SCHEMA_GLOB:
		return parse_name(key, text, field);
	case SCHEMA_PATH:
		return parse_path(key, text, field);
	case SCHEMA_SERVICE:
		if (strncmp(text, VALUE_UNIX, VALUE_UNIX_LEN) == 0)
			return parse_unix(key, text, field);
		return parse_address(key, text, field);
	case SCHEMA_ADDRESS:
		return parse_address(key, text, field);
	case SCHEMA_WIRE:
		return value_parse(schema_find("job.wire", "up"), text, base) &&
		       value_parse(schema_find("job.wire", "down"), text, base) &&
		       value_parse(schema_find("job.wire", "rounding"), "nearest", base) &&
		       value_parse(schema_find("job.wire", "feedback"), "off", base);
	case SCHEMA_MAP:
	case SCHEMA_NODES:
	case SCHEMA_NETWORKS:
	case SCHEMA_RELAYS:
		break;
	}
	return false;
}

static void format_with_unit(uint64_t v, const struct unit *units, char *buf, size_t size)
{
	while (v % units->factor)
		units++;
	snprintf(buf, size, "%" PRIu64 "%s", v / units->factor, units->name);
}

void value_format_bytes(uint64_t bytes, char *buf, size_t size)
{
	if (bytes == 0)
		snprintf(buf, size, "0");
	else
		format_with_unit(bytes, byte_units, buf, size);
}

void value_format_rate(uint64_t rate, char *buf, size_t size)
{
	if (rate == 0)
		snprintf(buf, size, "0");
	else
		format_with_unit(rate, rate_units, buf, size);
}

static void format_weight(uint64_t millionths, char *buf, size_t size)
{
	int n = snprintf(buf, size, "%" PRIu64 ".%06" PRIu64, millionths / 1000000, millionths % 1000000);

	while (buf[n - 1] == '0')
		buf[--n] = '\0';
	if (buf[n - 1] == '.')
		buf[n - 1] = '\0';
}

static void format_number(const struct schema_key *key, uint64_t v, char *buf, size_t size)
{
	if (v == 0 && key->zero_word)
		snprintf(buf, size, "%s", key->zero_word);
	else if (v == 0)
		snprintf(buf, size, "0");
	else if (key->type == SCHEMA_BYTES)
		value_format_bytes(v, buf, size);
	else if (key->type == SCHEMA_DURATION)
		format_with_unit(v, time_units, buf, size);
	else if (key->type == SCHEMA_RATE)
		value_format_rate(v, buf, size);
	else if (key->type == SCHEMA_WEIGHT)
		format_weight(v, buf, size);
	else
		snprintf(buf, size, "%" PRIu64, v);
}

/* Writes one word if it says all, else the mapping. */
static void format_wire(const void *base, char *buf, size_t size)
{
	char up[16], down[16], rounding[16], feedback[32];

	value_format(schema_find("job.wire", "up"), base, up, sizeof up);
	value_format(schema_find("job.wire", "down"), base, down, sizeof down);
	value_format(schema_find("job.wire", "rounding"), base, rounding, sizeof rounding);
	value_format(schema_find("job.wire", "feedback"), base, feedback, sizeof feedback);
	if (strcmp(up, down) == 0 && strcmp(rounding, "nearest") == 0 && strcmp(feedback, "off") == 0)
		snprintf(buf, size, "%s", up);
	else
		snprintf(buf, size, "{up: %s, down: %s, rounding: %s%s%s}", up, down, rounding,
			 strcmp(feedback, "off") ? ", feedback: " : "", strcmp(feedback, "off") ? feedback : "");
}

void value_format(const struct schema_key *key, const void *base, char *buf, size_t size)
{
	const void *field = (const char *)base + key->offset;

	switch (key->type) {
	case SCHEMA_NUMBER:
	case SCHEMA_BYTES:
	case SCHEMA_DURATION:
	case SCHEMA_RATE:
	case SCHEMA_WEIGHT:
		format_number(key, load_number(key, field), buf, size);
		break;
	case SCHEMA_BOOL:
		snprintf(buf, size, "%s", load_number(key, field) ? "true" : "false");
		break;
	case SCHEMA_ENUM:
		snprintf(buf, size, "%s", key->words[load_number(key, field)]);
		break;
	case SCHEMA_NAME:
	case SCHEMA_ADDRESS:
	case SCHEMA_SERVICE:
	case SCHEMA_HOST:
	case SCHEMA_GLOB:
	case SCHEMA_PATH:
	case SCHEMA_WORD:
		snprintf(buf, size, "%s", (const char *)field);
		break;
	case SCHEMA_WIRE:
		format_wire(base, buf, size);
		break;
	case SCHEMA_MAP:
	case SCHEMA_NODES:
	case SCHEMA_NETWORKS:
	case SCHEMA_RELAYS:
		buf[0] = '\0';
	}
}

/* Writes "error, warn or info". */
static void list_words(const char *const *words, char *buf, size_t size)
{
	size_t len = 0;

	buf[0] = '\0';
	for (int i = 0; words[i] && len < size; i++)
		len += (size_t)snprintf(buf + len, size - len, "%s%s",
					i == 0         ? ""
					: words[i + 1] ? ", "
						       : " or ",
					words[i]);
}

static void expected_number(const struct schema_key *key, char *buf, size_t size)
{
	char min[32], max[32], step[48] = "", zero[32] = "";

	format_number(key, key->min, min, sizeof min);
	format_number(key, key->max, max, sizeof max);
	if (key->step > 1)
		snprintf(step, sizeof step, " that is a multiple of %u", key->step);
	if (key->zero || key->zero_word)
		snprintf(zero, sizeof zero, ", or %s", key->zero_word ? key->zero_word : "0");
	if (key->type == SCHEMA_BYTES)
		snprintf(buf, size,
			 "bytes, or a number with KiB, MiB, GiB, kB, MB or GB (b would be bits), from %s to %s%s%s",
			 min, max, step, zero);
	else if (key->type == SCHEMA_DURATION)
		snprintf(buf, size, "a number with ms, s, min or h, from %s to %s%s", min, max, zero);
	else if (key->type == SCHEMA_RATE)
		snprintf(buf, size,
			 "a number with kbit, mbit or gbit, or as 10Gbps (B would be bytes), from %s to %s%s", min, max,
			 zero);
	else if (key->type == SCHEMA_WEIGHT)
		snprintf(buf, size, "a number from %s to %s with at most %d decimals%s", min, max, WEIGHT_DIGITS, zero);
	else
		snprintf(buf, size, "a whole number from %s to %s%s", min, max, zero);
}

void value_expected(const struct schema_key *key, char *buf, size_t size)
{
	switch (key->type) {
	case SCHEMA_NUMBER:
	case SCHEMA_BYTES:
	case SCHEMA_DURATION:
	case SCHEMA_RATE:
	case SCHEMA_WEIGHT:
		expected_number(key, buf, size);
		break;
	case SCHEMA_BOOL:
		snprintf(buf, size, "true or false");
		break;
	case SCHEMA_ENUM:
	case SCHEMA_WORD:
		list_words(key->words, buf, size);
		break;
	case SCHEMA_NAME:
		snprintf(buf, size, "%" PRIu64 " to %" PRIu64 " letters, digits, '.', '_' or '-'", key->min, key->max);
		break;
	case SCHEMA_ADDRESS:
		snprintf(buf, size, "host:port or [IPv6]:port, with a port from %" PRIu64 " to %" PRIu64 "%s", key->min,
			 key->max, key->zero ? ", or nothing" : "");
		break;
	case SCHEMA_SERVICE:
		snprintf(buf, size,
			 "host:port or [IPv6]:port, with a port from %" PRIu64 " to %" PRIu64 ", or " VALUE_UNIX
			 "PATH with an absolute path of at most %d letters, digits, '/', '.', '_' or '-'%s",
			 key->min, key->max, UNIX_PATH_MAX, key->zero ? ", or nothing" : "");
		break;
	case SCHEMA_HOST:
		snprintf(buf, size,
			 "a machine's name or address: %" PRIu64 " to %" PRIu64
			 " letters, digits, '.', '_', '-', ':' or '%%'",
			 key->min, key->max);
		break;
	case SCHEMA_GLOB:
		snprintf(buf, size,
			 "%" PRIu64 " to %" PRIu64
			 " letters, digits, blanks, '.', '_', '-', '@', or '*' and '?' for any letters",
			 key->min, key->max);
		break;
	case SCHEMA_PATH:
		snprintf(buf, size, "a path of %" PRIu64 " to %" PRIu64 " bytes without control characters", key->min,
			 key->max);
		break;
	case SCHEMA_WIRE:
		snprintf(buf, size, "same, bf16, fp8, int8, fp16 or int4, or a mapping as {up: fp8, down: bf16}");
		break;
	case SCHEMA_MAP:
		snprintf(buf, size, "a mapping from shards to reducers, as {0-31: r0, 32-63: r1}");
		break;
	case SCHEMA_NODES:
		snprintf(buf, size, "a list of nodes as a text, such as n[01-03,7]");
		break;
	case SCHEMA_NETWORKS:
		snprintf(buf, size, "a list of networks, as [10.1.0.0/16]");
		break;
	case SCHEMA_RELAYS:
		snprintf(buf, size, "a list of reducers, or a mapping from shards to reducers, as {0-31: r0}");
		break;
	}
}

void value_takes(const struct schema_key *key, char *buf, size_t size)
{
	static const char *const words[] = {[SCHEMA_NAME] = "a name",
					    [SCHEMA_ADDRESS] = "host:port",
					    [SCHEMA_SERVICE] = "host:port or unix:PATH",
					    [SCHEMA_HOST] = "a host",
					    [SCHEMA_GLOB] = "a pattern",
					    [SCHEMA_PATH] = "a path",
					    [SCHEMA_MAP] = "{shards: id}",
					    [SCHEMA_NODES] = "nodes",
					    [SCHEMA_NETWORKS] = "[network, ...]",
					    [SCHEMA_RELAYS] = "[id, ...] or {shards: id}",
					    [SCHEMA_WIRE] =
						"same, bf16, fp8, int8, fp16 or int4, or {up, down, rounding}"};
	char min[32], max[32], step[48] = "", zero[32] = "";

	if (key->type < sizeof words / sizeof words[0] && words[key->type]) {
		snprintf(buf, size, "%s", words[key->type]);
		return;
	}
	if (key->type == SCHEMA_BOOL || key->type == SCHEMA_ENUM || key->type == SCHEMA_WORD) {
		value_expected(key, buf, size);
		return;
	}
	format_number(key, key->min, min, sizeof min);
	format_number(key, key->max, max, sizeof max);
	if (key->step > 1)
		snprintf(step, sizeof step, ", a multiple of %u", key->step);
	if (key->zero || key->zero_word)
		snprintf(zero, sizeof zero, ", or %s", key->zero_word ? key->zero_word : "0");
	snprintf(buf, size, "%s to %s%s%s", min, max, step, zero);
}
