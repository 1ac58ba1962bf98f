#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the architecture. `make layering` compiles all objects with -ffunction-sections -fdata-sections and calls

    tests/layering.py [--root FOLDER] [--objects FOLDER] [--core ARCHIVE ...] [--library ARCHIVE ...]

cores      A core does no I/O, reads no clock, starts no thread, takes no lock, and gets neither settings from the
           environment nor random numbers from the system. The check follows calls and addresses from all functions and
           tables of each core through the libraries. Functions of a library that no core can reach do not count. What
           is reached outside of core and libraries must be in PURE. A core may use the cores below it, no others.
includes   A file includes files of other folders only where FOLDERS allows it, always by their path from the root.
rooms      FOLDERS has the lowest room first, and no room may include one below it in the table. Some file uses each
           permission. CONTRIBUTING.md has the same table; --table prints it.
headers    No header includes itself through other headers.
circles    No object of a folder uses another one that directly or indirectly uses the first one.

Each violation is a line on standard error, and then the exit status is 1.
"""

import argparse
import collections
import itertools
import pathlib
import re
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

# What a core may use outside of our libraries, as regular expressions for whole names.
# The result of such a function depends on its arguments and the memory behind them alone.
# Exceptions: memory allocation, and the end of the process.
PURE = (
    "malloc|calloc|realloc|free|posix_memalign",
    "mem(chr|cmp|cpy|move|set)|bcmp|explicit_bzero",
    "str(casecmp|cat|chr|chrnul|cmp|cpy|cspn|dup|len)",
    "str(ncasecmp|ncat|ncmp|ncpy|ndup|nlen|pbrk|rchr|spn|str|tok_r)",
    "stpn?cpy",
    r"v?snprintf|(__isoc\d+_)?(v?sscanf|strto(d|f|imax|l|ll|ul|ull|umax))",
    "__ctype_b_loc|__ctype_to(lower|upper)_loc|to(lower|upper)",
    "qsort|bsearch|(ceil|exp2?|fabs|floor|fmax|fmin|ldexp|log2?|lrint|nearbyint|pow|rint|round|sqrt|trunc)f?",
    "__assert_fail|abort|__stack_chk_fail",
    "__errno_location|_GLOBAL_OFFSET_TABLE_|__cpu_(indicator_init|model|features2)|__tls_get_addr",
    r"__(popcount|clz|ctz|u?divt|u?modt|trunc|extend|float|fix)\w*",  # of libgcc
    r"XXH\w+|protobuf_c_\w+",
    "CRYPTO_memcmp|OPENSSL_cleanse|inet_(ntop|pton)|[hn]to[hn][sl]",
)

# Functions of our libraries that a core may call although they are not pure: the check
# does not look into them.
EXCEPTIONS = (
    "rs_log_write",  # The owner of a core gives it its log, and decides which lines are written and where.
    "rs_assert_failed",  # The process ends there.
    "rs_assert_sound",  # The same.
    "auth_mac",  # The result depends on the arguments alone. OpenSSL reads its configuration file at the first call.
)

# The rooms: each folder with sources, what is in it, and the rooms that its files may
# include besides their own. The lowest comes first: a room may include only rooms above
# it in this table, or single headers of them. CONTRIBUTING.md has the same rooms in the
# same order.
CONFIGURED = ["common", "proto", "config"]
ANY = None
FOLDERS = {
    "common": ("errors, logs, data types, addresses, secrets, TLS", []),
    "common/kernels": ("sums, encodings: scalar, AVX2, AVX-512, NEON", ["common"]),
    "proto": ("frames, control messages, the description of an operation", ["common"]),
    "proto/rpc": ("gRPC behind a small C interface", ["common", "proto"]),
    "config": ("the YAML format, the shard map, launcher environments", ["common"]),
    "config/check": (
        "checks of a configuration before a process starts",
        ["common", "common/kernels", "proto", "proto/rpc", "config"],
    ),
    "common/host/service": ("the control and health services of both daemons", ["common", "proto", "proto/rpc"]),
    "common/host/http": ("their HTTP port, metrics and status page", ["common", "proto", "common/host/service"]),
    "common/host": (
        "what surrounds the loop of both daemons: command line, signals, ports, reload, drain",
        ["common", "proto/rpc", "config", "config/check", "common/host/service", "common/host/http"],
    ),
    "server/core": ("the reducer's sums: sessions, stripes, slots; no I/O", ["common", "common/kernels", "proto"]),
    "server/jobs": (
        "the reducer's jobs and their status; no I/O",
        [*CONFIGURED, "common/host/service", "server/core"],
    ),
    "server/join": (
        "from an accepted connection to a worker whose identity is known",
        [*CONFIGURED, "proto/rpc", "config/check"],
    ),
    "server/run": (
        "the reducer's process: loops, threads, memory",
        [
            *CONFIGURED,
            "proto/rpc",
            "config/check",
            "common/host",
            "server/core",
            "server/jobs",
            "server/join",
        ],
    ),
    "agent/lib/include": ("`reduction.h`, the public header, which users compile without this tree", []),
    "agent/lib/backend": ("the interface of what runs an operation", [*CONFIGURED, "agent/lib/include"]),
    "agent/worker/core": (
        "a worker's exchange, links, streams, views, windows; no I/O",
        ["common", "common/kernels", "proto", "config/exchange_params.h"],
    ),
    "agent/worker/engine": (
        "the threads and connections that move the exchange's bytes",
        [*CONFIGURED, "proto/rpc", "agent/lib/include", "agent/worker/core"],
    ),
    "agent/node/core": (
        "the local protocol and the agent's hub of jobs and operations; no I/O",
        [*CONFIGURED, "common/kernels", "common/host/service", "agent/worker/core"],
    ),
    "agent/node/daemon": (
        "the agent's process, or a thread of a training process",
        [
            *CONFIGURED,
            "config/check",
            "common/host",
            "agent/worker/engine",
            "agent/node/core",
        ],
    ),
    "agent/gpu/core": ("pieces of an operation on a device; no I/O", ["common", "proto"]),
    "agent/gpu/cuda": ("copies from and to NVIDIA's GPUs", ["common"]),
    "agent/gpu/copier": (
        "copies between devices and the host memory of a backend",
        ["common", "proto", "agent/lib/backend", "agent/gpu/core", "agent/gpu/cuda"],
    ),
    "agent/lib/direct": (
        "the backend that runs operations with an engine of this process",
        ["common", "proto", "agent/lib/backend", "agent/worker/core", "agent/worker/engine"],
    ),
    "agent/lib/client": (
        "the backend that hands operations to the node's agent",
        ["common", "agent/lib/backend", "agent/worker/engine", "agent/node/core"],
    ),
    "agent/lib/api": (
        "libreduction: communicators, requests, groups",
        [
            *CONFIGURED,
            "agent/lib/backend",
            "agent/node/daemon",
            "agent/gpu/copier",
            "agent/lib/direct",
            "agent/lib/client",
        ],
    ),
    "agent/mpi": ("MPI's calls through libreduction", ["agent/lib/include"]),
    "agent/nccl": ("the NCCL plugin", [*CONFIGURED, "agent/worker/engine"]),
    "agent/jax": ("the collectives of JAX on CPUs", ["agent/lib/include"]),
    "agent/examples": ("programs of users", []),
    "deploy/ctl/plan": ("the planner of shard maps", ["common", "config"]),
    "deploy/ctl/render": ("files of a deployment from one description", ["config"]),
    "deploy/ctl": (
        "`reductionctl`",
        [*CONFIGURED, "proto/rpc", "config/check", "common/host/http", "deploy/ctl/plan", "deploy/ctl/render"],
    ),
    "bench": ("`reduction-bench`, kernels, the network laboratory, peers", ANY),
    "tests": ("unit tests, the simulator, fuzz targets, end-to-end tests, faults", ANY),
}

MAP = "CONTRIBUTING.md"  # has the table that table() makes
HEAD = "| room | what is in it |"

# what a compiler puts before the name of a function or variable
SECTION = r"^\.(text|rodata|data|bss|tdata|tbss)\.(unlikely\.|startup\.|rel\.(ro\.)?(local\.)?)?"


class Object:
    """An ELF object of 64 bits: which of its sections refer to which symbols.

    defined  {global symbol: section}
    uses     {section: {section of this object, or name of an undefined symbol}}; only of sections that are loaded
    """

    ALLOC, RELA, SYMTAB, LOCAL, UNDEFINED, RESERVED = 2, 4, 2, 0, 0, 0xFF00

    def __init__(self, name, data):
        if data[:5] != b"\x7fELF\x02":
            raise ValueError(f"{name} is not an ELF object of 64 bits")
        self.name, self.data, self.order = name, data, "<" if data[5] == 1 else ">"
        start, entry, count, names = self.read("40x Q 10x H H H", 0)
        self.headers = [self.read("IIQQQQIIQQ", start + i * entry) for i in range(count)]
        self.sections = [self.text(names, h[0]) for h in self.headers]
        self.symbols = [s for i, h in enumerate(self.headers) if h[1] == self.SYMTAB for s in self.read_symbols(h)]
        self.defined = {name: section for name, section, local in self.symbols if section is not None and not local}
        self.uses = {i: set() for i, h in enumerate(self.headers) if h[2] & self.ALLOC}
        for _, kind, _, _, offset, size, _, target, _, each in self.headers:
            if kind == self.RELA and target in self.uses and self.sections[target] != ".eh_frame":
                self.uses[target].update(self.relocated(offset, size, each))

    def read(self, form, offset):
        return struct.unpack_from(self.order + form, self.data, offset)

    def text(self, table, offset):
        start = self.headers[table][4] + offset
        return self.data[start : self.data.index(b"\0", start)].decode()

    def read_symbols(self, header):
        """(name, section or None, local) of each symbol."""
        for i in range(header[5] // header[9]):
            name, info, _, section = self.read("IBBH", header[4] + i * header[9])
            known = self.UNDEFINED < section < self.RESERVED
            yield self.text(header[6], name), section if known else None, info >> 4 == self.LOCAL

    def relocated(self, offset, size, each):
        for i in range(size // each):
            name, section, _ = self.symbols[self.read("8xQ", offset + i * each)[0] >> 32]
            yield name if section is None else section


def members(path):
    """The objects in an archive."""
    data, offset, long_names = path.read_bytes(), 8, b""
    if data[:8] != b"!<arch>\n":
        raise ValueError(f"{path} is not an archive")
    while offset < len(data):
        name, size = data[offset : offset + 16].rstrip(), int(data[offset + 48 : offset + 58])
        content = data[offset + 60 : offset + 60 + size]
        if name == b"//":
            long_names = content
        elif name != b"/":
            if name[:1] == b"/":
                name = long_names[int(name[1:]) :].split(b"\n")[0]
            yield Object(name.rstrip(b"/").decode(), content)
        offset += 60 + size + size % 2


def check_core(core, libraries):
    """Yields a sentence for each function outside of core and libraries that a core reaches and that is not in PURE."""
    mine = list(members(core))
    others = [o for library in libraries for o in members(library)]
    defined = {name: (o, section) for o in [*others, *mine] for name, section in o.defined.items()}
    pure = re.compile("|".join(PURE))
    todo = collections.deque((o, section) for o in mine for section in o.uses)
    came_from = {place: None for place in todo}  # of all places that were found
    came_from |= {defined[name]: None for name in EXCEPTIONS if name in defined}
    impure = {}
    while todo:
        o, section = place = todo.popleft()
        for used in sorted(o.uses[section], key=str):
            following = (o, used) if isinstance(used, int) else defined.get(used)
            if following is None and not pure.fullmatch(used):
                impure.setdefault(used, place)
            elif following and following not in came_from:
                came_from[following] = place
                todo.append(following)
    for name, place in impure.items():
        path = [name]
        while place:
            o, section = place
            path.insert(0, f"{re.sub(SECTION, '', o.sections[section])} ({o.name})")
            place = came_from[place]
        yield f"{core.name}: {' > '.join(path)}: a core may not use {name}, because it is not in PURE"


def folder_of(path):
    """The longest entry of FOLDERS that contains a file; None if there is none."""
    found = [f for f in FOLDERS if path.startswith(f + "/")]
    return max(found, key=len, default=None)


def may_include(room):
    """The rooms and single headers that files of a room may include; ANY: all."""
    return FOLDERS[room][1]


def table():
    """The lines of the table of rooms, in Markdown."""
    yield HEAD
    yield "|---|---|"
    for room, (what, _) in FOLDERS.items():
        yield f"| `{room}` | {what} |"


def check_order(folders):
    """Yields a sentence for each room that may include one that is not above it in the table."""
    seen = set()
    for room, (_, included) in folders.items():
        for other in sorted(r for r in included or () if r not in seen and r.rpartition("/")[0] not in seen):
            yield f"FOLDERS: {room} may include {other}, which is not above it in the table"
        seen.add(room)


def check_unused(includes):
    """Yields a sentence for each permission that no file uses."""
    used = {(folder_of(file), t) for file, targets in includes.items() for _, h in targets for t in (h, folder_of(h))}
    for room, (_, included) in FOLDERS.items():
        for other in included or ():
            if (room, other) not in used:
                yield f"FOLDERS: {room} may include {other}, and no file does"


def check_map(path):
    """Yields a sentence if a document does not have the table of rooms."""
    lines = path.read_text().splitlines()
    start = lines.index(HEAD) if HEAD in lines else len(lines)
    found = list(itertools.takewhile(lambda line: line.startswith("|"), lines[start:]))
    if found != list(table()):
        wrong = next((line for line in found if line not in set(table())), "a row is missing or in another place")
        yield f"{path.name}: the table of rooms is not that of tests/layering.py --table: {wrong}"


def includes_of(root):
    """{file: [(line number, included file), ...]} of all C files, with paths from the root."""
    found = {}
    for path in sorted(root.glob("*/**/*")):
        name = str(path.relative_to(root))
        if path.suffix in (".c", ".cc", ".h", ".inc") and not name.startswith(("build/", ".")):
            lines = enumerate(path.read_text().splitlines(), 1)
            found[name] = [(n, m[1]) for n, line in lines if (m := re.match(r'\s*#\s*include\s*"(.*?)"', line))]
    return found


def check_includes(includes):
    for file, targets in includes.items():
        source = folder_of(file)
        if source is None:
            yield f"{file}: FOLDERS does not say what files of this folder may include"
            continue
        for n, target in targets:
            there = folder_of(target)
            if there is None:
                yield f"{file}:{n}: includes {target}, which is not a path from the root"
            elif there != source and may_include(source) is not ANY and not {there, target} & {*may_include(source)}:
                allowed = ", ".join(may_include(source)) or "no other folder"
                yield f"{file}:{n}: includes {target}, but {source} may include: {allowed}"


def circles(graph):
    """The sets of nodes of {node: {nodes}} that lead to each other, sorted (Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for following in sorted(graph.get(node, ())):
            if following not in index:
                visit(following)
            if following in stack:
                low[node] = min(low[node], low[following])
        if low[node] == index[node]:
            found.append(sorted(stack[stack.index(node) :]))
            del stack[stack.index(node) :]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(c for c in found if len(c) > 1)


def check_headers(includes):
    graph = {f: {t for _, t in targets if t != f} for f, targets in includes.items() if f.endswith(".h")}
    for circle in circles(graph):
        yield f"headers include each other: {', '.join(circle)}"


def objects_below(folder, root):
    """(source without its suffix, object) of all objects there whose source still exists."""
    for path in sorted(folder.glob("**/*.o")):
        name = path.relative_to(folder).with_suffix("")
        if (root / name).with_suffix(".c").exists():
            yield str(name), Object(str(name), path.read_bytes())


def check_circles(folder, root):
    programs = collections.defaultdict(dict)
    for name, o in objects_below(folder, root):
        programs[name.split("/")[0]][name] = o
    for _, objects in sorted(programs.items()):
        owner = {symbol: name for name, o in objects.items() for symbol in o.defined}
        graph = {
            name: {owner[used] for uses in o.uses.values() for used in uses if used in owner} - {name}
            for name, o in objects.items()
        }
        for circle in circles(graph):
            yield f"objects use each other: {', '.join(circle)}"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, metavar="FOLDER", default=ROOT, help="of the sources")
    parser.add_argument("--objects", type=pathlib.Path, metavar="FOLDER", help="server/X.o is compiled from server/X.c")
    parser.add_argument(
        "--core",
        type=pathlib.Path,
        metavar="ARCHIVE",
        action="append",
        default=[],
        help="may be repeated; a core may use those that follow it",
    )
    parser.add_argument("--library", type=pathlib.Path, metavar="ARCHIVE", action="append", default=[])
    parser.add_argument("--table", action="store_true", help="print the table of rooms in Markdown, and end")
    args = parser.parse_args(argv)
    if args.table:
        print(*table(), sep="\n")
        return 0
    includes = includes_of(args.root)
    found = [*check_order(FOLDERS), *check_includes(includes), *check_headers(includes)]
    if (args.root / MAP).exists():
        found += [*check_unused(includes), *check_map(args.root / MAP)]
    for i, core in enumerate(args.core):
        found += check_core(core, args.core[i + 1 :] + args.library)
    if args.objects:
        found += check_circles(args.objects, args.root)
    for line in found:
        print(f"layering: {line}", file=sys.stderr)
    if not found:
        print(f"layering: ok: {len(includes)} files, cores: {', '.join(core.name for core in args.core) or 'none'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
