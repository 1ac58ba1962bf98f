# SPDX-License-Identifier: Apache-2.0
"""The step `wheel`: a wheel that Debian 12 makes, on bare machines of other Debians."""

import re
import shutil

from root import SHARED, TREE, Base, Root

MADE_BY = "12"  # the Debian with the oldest C library that has all that a build needs
NEEDED = "python3-venv python3-numpy openssl iproute2 util-linux"
FOREIGN = {"11": "", "12": "python3-torch", "13": "python3-torch"}


def wheel(root, variant, log):
    """Makes the wheel in this root; then a root of each Debian gets it, and nothing else of ours."""
    for line in (
        "deploy/install-deps.sh build wheel",
        "make -j2 wheel",
        f"mkdir {SHARED}/wheel && cp build/wheel/*.whl {SHARED}/wheel",
    ):
        status, _ = variant.run(root, line, log)
        if status:
            return f"{line}: exit status {status}"
    (made,) = (root.base.shared / "wheel").iterdir()
    for debian, more in FOREIGN.items():
        base = Base.of(debian, root.cache, root.base.clone)
        shutil.copy(made, base.shared / made.name)
        with Root(base, f"debian {debian} wheel", root.cache, root.ccache, root.memory) as other:
            problem = foreign(other, f"{SHARED}/{made.name}", more, log)
        if problem:
            return f"Debian {debian}: {problem}"
    return ""


def foreign(root, path, more, log):
    quiet = "DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends"
    root.must(f"{quiet} {NEEDED} {more}", folder="/")
    if not more:  # its C library is too old
        root.must("python3 -m venv /tmp/env", folder="/")
        status, output = root.run(f"/tmp/env/bin/pip install --no-index {path}", log, folder="/")
        refused = status and "is not a supported wheel on this platform" in output
        return "" if refused else f"pip does not refuse the wheel: exit status {status}"
    status, output = root.run(f"python3 {TREE}/tests/fresh/wheel_user.py {path}", log, folder="/", limit=600)
    for line in re.findall(r"^ok (.*)", output, re.M):
        print(f"     {root.name}: {line}", flush=True)
    return f"exit status {status}: {output[-300:]}" if status else ""
