# SPDX-License-Identifier: Apache-2.0
# Writes a C file with the constants and functions of interface.txt. Constants get different
# values. Functions say that they are not supported; they are weak, and those of the other
# files replace them.
BEGIN {
	print "/* Made by stubs.awk from interface.txt. */"
	print "#include <stdint.h>\n"
	print "#define EXPORT __attribute__((visibility(\"default\")))\n"
	print "int jax_fail(const char *format, ...);\n"
	value["MPIABI_SUCCESS"] = 0
	value["MPIABI_THREAD_SINGLE"] = 0
	value["MPIABI_THREAD_FUNNELED"] = 1
	value["MPIABI_THREAD_SERIALIZED"] = 2
	value["MPIABI_THREAD_MULTIPLE"] = 3
}
/^#/ { next }
{
	called = $1
	sub(/ABI_/, "_", called)
	if ($1 ~ /[a-z]/)
		printf "EXPORT __attribute__((weak)) int %s(void)\n{\n\treturn jax_fail(\"%s is not supported by reducers\");\n}\n", $1, called
	else
		printf "EXPORT const uint64_t %s = %d;\n", $1, ($1 in value) ? value[$1] : 1000 + NR
}
