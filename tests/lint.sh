#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# lint.sh FOLDER: checks all sources: format, licence line, size, common mistakes. FOLDER
# has the generated headers. lint.sh --list-c: lists the C files instead.
set -u
cd "$(dirname "$0")/.." || exit 1

list() { # files of the tree, not of a build, whose name matches one of the patterns
	local names=(-false)
	for pattern in "$@"; do names+=(-o -name "$pattern"); done
	find . \( -name build -o -name .git -o -name __pycache__ \) -prune -o -type f \( "${names[@]}" \) -print | sort
}

if [ "${1-}" = --list-c ]; then
	list '*.[ch]' '*.inc'
	exit
fi
for tool in clang clang-format clang-tidy shellcheck; do
	command -v $tool >/dev/null || {
		echo "lint: $tool was not found: run deploy/install-deps.sh lint" >&2
		exit 1
	}
done

generated=${1:?the folder of generated headers}
mapfile -t c < <(list '*.[ch]' '*.inc')
mapfile -t python < <(list '*.py')
mapfile -t scripts < <(list '*' | xargs -d '\n' grep -lE -m1 '^#!.*[/ ](ba)?sh( |$)')
failed=0
check() { # NAME COMMAND...: the command's output and its failure
	local name=$1
	shift
	if "$@"; then
		echo "ok   $name"
	else
		echo "FAIL $name"
		failed=$((failed + 1))
	fi
}

format() { printf '%s\n' "${c[@]}" | xargs -P "$(nproc)" -n 16 clang-format --dry-run --Werror; }
licence() { ! grep -L 'SPDX-License-Identifier: Apache-2.0' "${c[@]}" "${python[@]}" "${scripts[@]}" | grep .; }
size() { # long files are hard to review; tests are lists of cases
	awk 'FNR > 600 && FILENAME !~ "^./tests/" { print FILENAME ": longer than 600 lines"; bad = 1; nextfile }
	     length > 120 { print FILENAME ":" FNR ": wider than 120 columns"; bad = 1 }
	     /[ \t]$/ { print FILENAME ":" FNR ": blanks at the end of the line"; bad = 1 }
	     END { exit bad }' "${c[@]}" "${python[@]}" "${scripts[@]}"
}
comments() { # text is easier to read in short lines; tables and examples may be wider
	awk '{ line = $0; gsub(/\t/, "        ", line) }
	     line ~ /^ *\/\*/ { inside = 1 }
	     inside && length(line) > 90 && line !~ /[^ *]  +[^ ]/ && line !~ /^ \*   / {
		print FILENAME ":" FNR ": a comment wider than 90 columns"; bad = 1 }
	     /\*\// { inside = 0 }
	     END { exit bad }' "${c[@]}"
}
own() { list '*.c' | grep -v '^./bench/peers/\|^./tests/mpi/'; } # which needs headers of others
mistakes() {
	own |
		xargs -P "$(nproc)" -I {} clang-tidy --quiet {} -- -std=c11 -D_GNU_SOURCE -I. -Iagent/lib/include -I"$generated" \
			2> >(grep -vE '^[0-9]+ warnings? .*(generated|treated)|^Suppressed|^Use -header-filter|^$' >&2)
}
dead_stores() { # the same within clang-tidy takes many times as long as all its other checks
	own | xargs -P "$(nproc)" -n 8 clang --analyze --analyzer-no-default-checks \
		-Xclang -analyzer-checker=deadcode.DeadStores -Xclang -analyzer-werror --analyzer-output text \
		-std=c11 -D_GNU_SOURCE -I. -Iagent/lib/include -I"$generated"
}
compile() {
	PYTHONPYCACHEPREFIX=$(mktemp -d) && export PYTHONPYCACHEPREFIX
	/usr/bin/python3 -m py_compile "${python[@]}"
	local status=$?
	rm -rf "$PYTHONPYCACHEPREFIX"
	return $status
}

subjects() { # of commits after this one, whose subject is too long itself; without git or its history there are none
	local old=f1d0e2ed3668654c6c3baee260e2a00bcfd71711 areas='^[a-z0-9][a-z0-9_./-]*(, [a-z0-9_./-]+)*: [a-z]'
	local no_verb=': (an?|the|its?|what|who|which|that|this|there|no|nobody|when|where|how) '
	git merge-base --is-ancestor $old HEAD 2>/dev/null || return 0
	git log --no-merges --format='%h %s' $old..HEAD | awk -v areas="$areas" -v no_verb="$no_verb" '
		{ id = $1; sub(/^[^ ]* /, "") }
		length > 60 { print "commit " id ": the subject has " length " characters, at most 60 are allowed: " $0; bad = 1 }
		$0 !~ areas || $0 ~ no_verb { print "commit " id ": the subject is not \"area: verb what\": " $0; bad = 1 }
		END { exit bad }'
}

check "clang-format (make format)" format
check "licence line" licence
check "size" size
check "width of comments" comments
check "shellcheck" shellcheck "${scripts[@]}"
check "python" compile
check "commit subjects" subjects
check "names in comments and documents" /usr/bin/python3 tests/names.py
check "mutations (tests/sim/mutations.sh)" tests/sim/mutations.sh --check
check "clang-tidy" mistakes
check "dead stores" dead_stores
[ $failed = 0 ]
