/* SPDX-License-Identifier: Apache-2.0 */
/* libnccl has a CUDA runtime of its own, linked statically; its functions are local
 * symbols of .symtab. In the memory of this process each of them becomes a jump. The file
 * stays as it is. */
#include "tests/nccl/real/fake.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JUMP_BYTES = 14, PAGE = 4096 };

static bool is_runtime(const Elf64_Sym *s, const char *name)
{
	return ELF64_ST_TYPE(s->st_info) == STT_FUNC && s->st_value && s->st_size >= JUMP_BYTES &&
	       strncmp(name, "cuda", 4) == 0 && name[4] >= 'A' && name[4] <= 'Z';
}

/* Writes "jmp *0(%rip)" and the address. */
static void redirect(char *at, function to)
{
	static const unsigned char jump[] = {0xff, 0x25, 0, 0, 0, 0};
	char *page = (char *)((uintptr_t)at & ~(uintptr_t)(PAGE - 1));

	if (mprotect(page, 2 * (size_t)PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
		die("the library's code cannot be changed in memory");
	memcpy(at, jump, sizeof jump);
	memcpy(at + sizeof jump, &to, sizeof to);
}

static int patch_symbols(const char *file, const Elf64_Shdr *symbols, const char *names, char *base)
{
	const Elf64_Sym *s = (const Elf64_Sym *)(file + symbols->sh_offset);
	int found = 0;

	for (size_t i = 0; i < symbols->sh_size / sizeof *s; i++) {
		const char *name = names + s[i].st_name;
		function to;

		if (!is_runtime(&s[i], name))
			continue;
		to = runtime_find(name);
		found += to != NULL;
		redirect(base + s[i].st_value, to ? to : (function)unsupported);
	}
	return found;
}

int patch_runtime(const char *path, char *base)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), found = 0;
	const Elf64_Ehdr *head;
	const Elf64_Shdr *sections;
	struct stat st;
	char *file;

	if (fd < 0 || fstat(fd, &st))
		die("%s cannot be read", path);
	file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (file == MAP_FAILED)
		die("%s cannot be mapped", path);
	head = (const Elf64_Ehdr *)file;
	sections = (const Elf64_Shdr *)(file + head->e_shoff);
	for (int i = 0; i < head->e_shnum; i++)
		if (sections[i].sh_type == SHT_SYMTAB)
			found +=
			    patch_symbols(file, &sections[i], file + sections[sections[i].sh_link].sh_offset, base);
	munmap(file, (size_t)st.st_size);
	return found;
}
