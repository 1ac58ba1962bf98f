# SPDX-License-Identifier: Apache-2.0
"""The README's job file and its Python and C examples, taken from its text and run against an installed version."""

import itertools
import re
import textwrap

from root import TREE

FOLDER = "/home/user/example"
ports = itertools.count(7600, 2)  # roots share the network of this machine
RUN = """set -e
mkdir -p {folder} && cd {folder}
reducers=
for i in 0 1; do
	reduction-server --listen 127.0.0.1:$(({port} + i)) >r$i.log 2>&1 &
	reducers="$reducers $!"
done
trap 'kill $reducers' EXIT
{setup}
for rank in 0 1 2 3; do
	REDUCTION_RUN=readme-{port} RANK=$rank WORLD_SIZE=4 REDUCTION_CONFIG=job.yaml {command} >rank$rank.log 2>&1 &
	ranks="$ranks $!"
done
for pid in $ranks; do wait $pid || {{ cat *.log; exit 1; }}; done
cat rank*.log
"""
C_FRAME = """#include <reduction.h>
#include <stdio.h>
int main(void)
{
	enum { n = 1000 };
	static float x[n];
	for (int i = 0; i < n; i++)
		x[i] = 1;
%s
	printf("x is %%.1f\\n", x[n - 1]);
	return x[n - 1] != 4;
}
"""


def blocks(text, language):
    """The code blocks of one language; a block in a list is indented."""
    return [textwrap.dedent(b) for b in re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.M | re.S)]


def the_one(text, language, word):
    found = [b for b in blocks(text, language) if word in b]
    if not found:
        raise AssertionError(f"README.md has no {language} block with {word}")
    return found[0]


def job(text, port):
    """The README's job file with addresses of this machine."""
    yaml = the_one(text, "yaml", "reducers:")
    return yaml.replace("10.0.0.11:7600", f"127.0.0.1:{port}").replace("10.0.0.12:7600", f"127.0.0.1:{port + 1}")


def python_program(text):
    """The README's Python example, for the rank that the environment names."""
    code = the_one(text, "python", "reduction.Communicator").replace(
        "rank=0", 'rank=int(__import__("os").environ["RANK"])'
    )
    return code + "print(x.min(), x.max())\nassert (x == 4).all()\n"


def c_program(text):
    """The README's C example in a main()."""
    return C_FRAME % the_one(text, "c", "reduction_open")


def write(root, name, text):
    root.must(f"mkdir -p {FOLDER} && cat >{FOLDER}/{name} <<'END'\n{text}END\nchmod -R a+rwX {FOLDER}", folder="/")


def examples(root, variant, log):
    """Runs them with 4 ranks and 2 reducers. Returns what went wrong."""
    text = root.must("cat README.md", folder=TREE)
    port = next(ports)
    write(root, "job.yaml", job(text, port))
    write(root, "program.py", python_program(text))
    write(root, "program.c", c_program(text))
    write(root, "python.sh", RUN.format(folder=FOLDER, port=port, setup="", command="/usr/bin/python3 program.py"))
    (build,) = re.findall(r"`(cc program\.c .*?)`", text)
    write(root, "c.sh", RUN.format(folder=FOLDER, port=port, setup=build, command="./a.out"))
    for language, expected in (("python", "4.0 4.0"), ("c", "x is 4.0")):
        status, output = variant.run(root, f"sh {language}.sh", log, folder=FOLDER, limit=120)
        if status or output.count(expected) != 4:
            return f"the README's {language} example fails with exit status {status}"
    return ""
