# SPDX-License-Identifier: Apache-2.0
"""Prints the path of the library that takes over large calls of MPI programs:

    mpirun -x LD_PRELOAD="$(python3 -m reduction.mpi)" -x REDUCTION_CONFIG=job.yaml python3 program.py
"""

import pathlib
import sys

LIBRARY = "libreduction-mpi.so"


def main() -> int:
    package = pathlib.Path(__file__).resolve().parent
    folders = [package / "lib", *(parent for parent in package.parents if parent.name in ("lib", "lib64"))]
    found = [folder for folder in folders if (folder / LIBRARY).exists()]
    if not found:
        print(f"{LIBRARY} is not in {', '.join(map(str, folders))}: install the wheel", file=sys.stderr)
        return 1
    print(found[0] / LIBRARY)
    return 0


if __name__ == "__main__":
    sys.exit(main())
