# SPDX-License-Identifier: Apache-2.0
"""Prints the line that makes NCCL programs use the plugin of this package:

    eval "$(python3 -m reduction.nccl)"
"""

import pathlib
import shlex
import sys

PLUGIN = "libnccl-net-reduction.so"


def main() -> int:
    package = pathlib.Path(__file__).resolve().parent
    folders = [package / "lib", *(parent for parent in package.parents if parent.name in ("lib", "lib64"))]
    found = [folder for folder in folders if (folder / PLUGIN).exists()]
    if not found:
        print(f"{PLUGIN} is not in {', '.join(map(str, folders))}: install the wheel", file=sys.stderr)
        return 1
    path = shlex.quote(str(found[0]))
    print(f'export NCCL_NET_PLUGIN=reduction LD_LIBRARY_PATH={path}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"')
    return 0


if __name__ == "__main__":
    sys.exit(main())
