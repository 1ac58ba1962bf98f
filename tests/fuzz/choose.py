#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Chooses few inputs that together reach nearly all code that many reach, and makes them the committed ones.

    tests/fuzz/choose.py PROGRAM MOST CORPUS FOLDER ...

PROGRAM is a fuzz target with libFuzzer; MOST is the maximal number of files in CORPUS afterwards. Candidates are the
files of CORPUS and of the other folders. Each next choice is the input that reaches most code not reached before, the
smaller one of two equals.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile


def reached(program, folders, scratch):
    """Returns {file: set of places in the code} of all candidates."""
    control = scratch / "control"
    (scratch / "merged").mkdir()
    command = [program, "-set_cover_merge=1", "-use_counters=0", f"-merge_control_file={control}", scratch / "merged"]
    subprocess.run([*command, *folders], check=True, stderr=subprocess.DEVNULL)
    lines = control.read_text().splitlines()
    names = lines[2:2 + int(lines[0])]
    places = {}
    for line in lines[2 + len(names):]:
        kind, *numbers = line.split()
        if kind == "FT":  # everything that this input reaches
            places.setdefault(names[int(numbers[0])], set()).update(numbers[1:])
    return places


def choose(places, most):
    chosen, known = [], set()
    while len(chosen) < most:
        best = min(places, key=lambda name: (-len(places[name] - known), pathlib.Path(name).stat().st_size, name))
        if not places[best] - known:
            break
        chosen.append(best)
        known |= places[best]
    return chosen, known


def main():
    program, most, corpus = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        places = reached(program, [corpus, *sys.argv[4:]], scratch)
        chosen, known = choose(places, most)
        fresh = scratch / "fresh"
        fresh.mkdir()
        for name in chosen:
            shutil.copyfile(name, fresh / pathlib.Path(name).name[:12])
        all_known = set().union(*places.values())
        for old in corpus.iterdir():
            old.unlink()
        for new in fresh.iterdir():
            shutil.copyfile(new, corpus / new.name)
    print(f"{corpus}: {len(chosen)} of {len(places)} inputs reach {len(known)} of {len(all_known)} places")


if __name__ == "__main__":
    main()
