# SPDX-License-Identifier: Apache-2.0
"""The steps `wheel` and `archive`: what Debian 12 makes, on bare machines of several Debians, which get nothing else of
ours."""

import re
import shutil

from root import SHARED, TREE, Base, Root

MADE_BY = "12"  # the Debian with the oldest C library that has all that a build needs
# without questions, as those of tzdata
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends"
NEEDED = "python3-venv python3-numpy openssl iproute2 util-linux"
# what more the machines have; None: their C library is too old
FOREIGN = {"11": None, "12": "python3-torch", "13": "python3-torch", "14": ""}
NEXT = "sed -i '/define RS_VERSION/s/[0-9]*\"$/99\"/' common/version.h"
# other copies of what we carry, as a conda environment has them
CONDA = """mkdir {0}/conda && cp -L -t {0}/conda $(ldd build/default/bin/* build/default/lib/*.so |
sed -n 's|.* => \\(/[^ ]*\\) .*|\\1|p' | sort -u | grep -vE '/(libc|libm|libstdc..|libgcc_s|libreduction.*)[.]so')"""


def lines(root, variant, log, *commands):
    for line in commands:
        status, _ = variant.run(root, line, log)
        if status:
            return f"{line}: exit status {status}"
    return ""


def make(root, variant, log, goal, pattern):
    """Makes what matches the pattern, in the folder SHARED/GOAL. What --artefacts has need not be made."""
    (root.base.shared / goal).mkdir()
    for path in root.options.artefacts.glob(pattern) if root.options.artefacts else ():
        shutil.copy(path, root.base.shared / goal)
        return ""
    copy = f"cp build/*/{pattern} {SHARED}/{goal}"
    return lines(root, variant, log, "deploy/install-deps.sh build wheel", f"make -j2 {goal}", copy)


def wheel(root, variant, log):
    """A wheel, and one of another version."""
    problem = make(root, variant, log, "wheel", "*_x86_64.whl") or lines(
        root, variant, log,
        "deploy/install-deps.sh build wheel",
        f"{NEXT} && make -j2 wheel && git checkout common/version.h",
        f"cp build/wheel/*99*.whl {SHARED}",
        f"[ -d {SHARED}/conda ] || {{ {CONDA.format(SHARED)}; }}",
    )  # fmt: skip
    return problem or everywhere(root, log, "wheel", use_wheel)


def archive(root, variant, log):
    return make(root, variant, log, "portable", "*x86_64.tar.gz") or everywhere(root, log, "portable", use_archive)


def everywhere(root, log, goal, use):
    for debian in root.options.foreign:
        more = FOREIGN[debian]
        base = Base.of(debian, root.cache, root.base.clone)
        if base is not root.base:
            shutil.copytree(root.base.shared, base.shared, dirs_exist_ok=True, ignore=lambda *_: ["unpacked"])
        with Root(base, f"debian {debian} {goal}", root.cache, root.ccache, root.memory) as other:
            other.must(f"{INSTALL} {NEEDED} {more or ''}", folder="/")
            (path,) = (base.shared / goal).iterdir()
            problem = use(other, f"{SHARED}/{goal}/{path.name}", log, more is None)
        if problem:
            return f"Debian {debian}: {problem}"
    return ""


def use_wheel(root, path, log, old):
    if old:
        root.must("python3 -m venv /tmp/env", folder="/")
        sentence = "is not a supported wheel on this platform"
        return refused(root, f"/tmp/env/bin/pip install --no-index {path}", log, sentence)
    system = "/usr/lib/x86_64-linux-gnu/libstdc++.so.6 /usr/lib/x86_64-linux-gnu/libgcc_s.so.1"
    root.must(f"cp -R {SHARED}/conda /home/user && cp -L {system} /home/user/conda", folder="/")
    return played(root, f"wheel_user.py {path} {SHARED}/*99*.whl", log)


def use_archive(root, path, log, old):
    if old:
        program = f"tar -xzf {path} -C /tmp && /tmp/reduction-*/bin/reductionctl --version"
        return refused(root, program, log, "version `GLIBC_2.34' not found")
    return played(root, f"archive_user.py {path}", log)


def refused(root, command, log, sentence):
    status, output = root.run(command, log, folder="/")
    return "" if status and sentence in output else f"{command}: exit status {status}, expected: {sentence}"


def played(root, command, log):
    status, output = root.run(f"python3 {TREE}/tests/fresh/{command}", log, folder="/", limit=600)
    for line in re.findall(r"^ok (.*)", output, re.M):
        print(f"     {root.name}: {line}", flush=True)
    return f"exit status {status}: {output[-300:]}" if status else ""
