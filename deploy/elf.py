# SPDX-License-Identifier: Apache-2.0
"""The dynamic part of an ELF file (64 bit, little endian): which libraries and symbols it needs, and new names for
them, written over the old ones.

A new name has the length of the old one, and a new name of a symbol also its hash (h = h * 33 + c): of two characters
next to each other one becomes greater by 1 and the next less by 33. So no table of the file changes but that of names.
"""

import collections
import pathlib
import struct

NULL, NEEDED, HASH, STRTAB, SYMTAB, STRSZ, SONAME, RPATH, RUNPATH = 0, 1, 4, 5, 6, 10, 14, 15, 29
GNU_HASH, VERDEF, VERDEFNUM, VERNEED, VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
DYNSYM = 11  # type of a section
VERSION_NAME = 0xFFF1  # where a symbol is that only names a version
MACHINES = {62: "x86_64", 183: "aarch64"}

Symbol = collections.namedtuple("Symbol", "at name defined")


class ElfError(Exception):
    pass


class Elf:
    """One file, in memory. `symbols` are those of the dynamic linker, with the places of their names; `words` are the
    places of all other names: of libraries, paths and versions."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.data = bytearray(self.path.read_bytes())
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ElfError(f"{path}: found no ELF file of 64 bits")
        self.machine = MACHINES.get(self._at("<H", 18), "unknown")
        self._segments()
        self._names = self._offset(self._one(STRTAB))
        self.symbols = list(self._read_symbols())
        self.words = {at for tag in (NEEDED, SONAME, RPATH, RUNPATH) for at in self._tags[tag]}
        self.versions = dict(self._read_needed_versions())
        self.words |= set(self._read_defined_versions())

    def _at(self, form, offset):
        return struct.unpack_from(form, self.data, offset)[0]

    def _segments(self):
        self._loaded, self._tags, dynamic = [], collections.defaultdict(list), None
        start, count = self._at("<Q", 32), self._at("<H", 56)
        for at in range(start, start + 56 * count, 56):
            kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", self.data, at)
            if kind == 1:
                self._loaded.append((address, offset, size))
            elif kind == 2:
                dynamic = range(offset, offset + size, 16)
        if not dynamic:
            raise ElfError(f"{self.path}: is not linked dynamically")
        for at in dynamic:
            tag, value = struct.unpack_from("<qQ", self.data, at)
            if tag == NULL:
                break
            self._tags[tag].append(value)

    def _offset(self, address):
        for first, offset, size in self._loaded:
            if first <= address < first + size:
                return address - first + offset
        raise ElfError(f"{self.path}: address {address:#x} is not in the file")

    def _one(self, tag):
        if len(self._tags[tag]) != 1:
            raise ElfError(f"{self.path}: found {len(self._tags[tag])} entries with the tag {tag:#x}, expected 1")
        return self._tags[tag][0]

    def name(self, at):
        start = self._names + at
        return bytes(self.data[start : self.data.index(0, start)])

    def _read_symbols(self):
        sections, count = self._at("<Q", 40), self._at("<H", 60)
        for at in range(sections, sections + 64 * count, 64):
            kind, offset, size = self._at("<I", at + 4), self._at("<Q", at + 24), self._at("<Q", at + 32)
            if kind != DYNSYM:
                continue
            for symbol in range(offset + 24, offset + size, 24):
                place, _, section = struct.unpack_from("<IHH", self.data, symbol)
                yield Symbol(place, self.name(place), section not in (0, VERSION_NAME))

    def _read_needed_versions(self):
        """The versions of symbols that this file needs, by library."""
        at = self._offset(self._one(VERNEED)) if self._tags[VERNEED] else 0
        for _ in range(self._tags[VERNEEDNUM][0] if at else 0):
            _, count, library, first, following = struct.unpack_from("<HHIII", self.data, at)
            self.words.add(library)
            found, entry = [], at + first
            for _ in range(count):
                _, _, _, name, step = struct.unpack_from("<IHHII", self.data, entry)
                self.words.add(name)
                found.append(self.name(name).decode())
                entry += step
            yield self.name(library).decode(), found
            at += following

    def _read_defined_versions(self):
        at = self._offset(self._one(VERDEF)) if self._tags[VERDEF] else 0
        for _ in range(self._tags[VERDEFNUM][0] if at else 0):
            _, _, _, count, _, first, following = struct.unpack_from("<HHHHIII", self.data, at)
            entry = at + first
            for _ in range(count):
                name, step = struct.unpack_from("<II", self.data, entry)
                yield name
                entry += step
            at += following

    def needed(self):
        return [self.name(at).decode() for at in self._tags[NEEDED]]

    def search_path(self):
        """Where this file says that its libraries are."""
        return [self.name(at).decode() for tag in (RPATH, RUNPATH) for at in self._tags[tag]]

    def defined(self):
        return {symbol.name for symbol in self.symbols if symbol.defined}

    def suffixes(self, names):
        """Pairs (longer, shorter) of the given names that share their last bytes in this file: the linker stores a name
        that is the end of another one only once."""
        by_end = collections.defaultdict(dict)
        for symbol in self.symbols:
            if symbol.name in names:
                by_end[symbol.at + len(symbol.name)][symbol.at] = symbol.name
        for same in by_end.values():
            ordered = [same[at] for at in sorted(same)]
            yield from ((longer, ordered[-1]) for longer in ordered[:-1])

    def rename(self, symbols, libraries):
        """Writes the new names, given by the old ones. Checks that each name of the file then is what it should be."""
        if self._tags[HASH] and any(symbol.name in symbols for symbol in self.symbols):
            raise ElfError(f"{self.path}: has a hash table of System V, which new names do not fit")
        new = {symbol.at: symbols.get(symbol.name, symbol.name) for symbol in self.symbols}
        for at in self.words:
            new[at] = libraries.get(self.name(at), self.name(at))
        for at, name in new.items():
            old = self.name(at)
            for i, (before, after) in enumerate(zip(old, name)):
                if before != after:
                    self.data[self._names + at + i] = after
        for at, name in new.items():
            if self.name(at) != name:
                raise ElfError(f"{self.path}: {name!r} became {self.name(at)!r}, which shares its bytes")


def other_name(name, start):
    """Another name with the same length and hash; two bytes next to each other differ, the first that can from `start`
    on."""
    for i in range(start, len(name) - 1):
        for a, b in ((name[i] + 1, name[i + 1] - 33), (name[i] - 1, name[i + 1] + 33)):
            if 33 <= a < 127 and 33 <= b < 127 and ord("@") not in (a, b):
                return name[:i] + bytes((a, b)) + name[i + 2 :]
    raise ElfError(f"no other name with the hash of {name!r} was found")


def other_names(files, names):
    """A new name for each of the names, the same in all files. Where a file stores a name as the end of a longer one,
    the two change in the same bytes."""
    ends = collections.defaultdict(set)
    for file in files:
        for longer, shorter in file.suffixes(names):
            ends[longer].add(shorter)
    shortest = {}
    for longer, found in ends.items():
        ordered = sorted({longer, *found}, key=len)
        for name in ordered[1:]:
            if name not in shortest or len(ordered[0]) < len(shortest[name]):
                shortest[name] = ordered[0]
    new = {}
    for name in names:
        end = name
        while end in shortest:
            end = shortest[end]
        new[name] = other_name(name, len(name) - len(end))
    return new
