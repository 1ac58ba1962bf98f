/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target on the files and folders of the arguments, once each, in the order
 * of their names, as libFuzzer does with a corpus; for compilers without libFuzzer. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOO_LONG_S = 60 }; /* for one input, also under sanitizers on a busy machine: it is an endless loop */

static unsigned done;

static int run_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data = NULL;
	size_t size = 0, part;

	if (!f) {
		perror(path);
		return 1;
	}
	do {
		data = realloc(data, size + 65536);
		if (!data)
			abort();
		part = fread(data + size, 1, 65536, f);
		size += part;
	} while (part);
	fclose(f);
	/* on memory that ends where the input ends, so that the sanitizer finds reads
	 * past the end */
	data = realloc(data, size ? size : 1);
	if (getenv("FUZZ_VERBOSE"))
		fprintf(stderr, "%s: %zu bytes\n", path, size);
	alarm(TOO_LONG_S);
	LLVMFuzzerTestOneInput(data, size);
	alarm(0);
	free(data);
	done++;
	return 0;
}

static int visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static int run_path(const char *path)
{
	struct dirent **entries;
	struct stat st;
	int n, rc = 0;

	if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
		return run_file(path);
	n = scandir(path, &entries, visible, alphasort);
	if (n < 0) {
		perror(path);
		return 1;
	}
	for (int i = 0; i < n; i++) {
		char *below = NULL;

		if (asprintf(&below, "%s/%s", path, entries[i]->d_name) < 0)
			abort();
		rc |= run_path(below);
		free(below);
		free(entries[i]);
	}
	free(entries);
	return rc;
}

int main(int argc, char **argv)
{
	int rc = 0;

	for (int i = 1; i < argc; i++)
		rc |= run_path(argv[i]);
	if (!done) {
		fprintf(stderr, "%s: no input was found, expected files or folders as arguments\n", argv[0]);
		return 1;
	}
	printf("%u inputs\n", done);
	return rc;
}
