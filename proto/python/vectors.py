#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the test vectors of the protocol with protocol.py: vectors.py [FOLDER]

FOLDER is proto/vectors if it is not given. Exit status: 0 all vectors are right, 1 a sentence says which one is not.
proto/vectors/README.md describes the files.
"""

import json
import pathlib
import struct
import sys

import protocol as p

KINDS = {name: kind for kind, name in enumerate(p.TYPES)}
HEADER = [name for name in p.FIELDS if name not in ("magic", "version", "type", "payload_len", "header_sum")]


class Wrong(Exception):
    """A vector is wrong."""


def same(what, found, expected):
    if found != expected:
        raise Wrong(f"{what}: computed {found!r}, the file has {expected!r}")


def keys(entry, allowed):
    if unknown := set(entry) - set(allowed) - {"meaning"}:
        raise Wrong(f"unknown keys {sorted(unknown)}")


def message(kind, fields):
    """The message of a payload in the files: bytes are in hexadecimal, numbers of 64 bits in quotes."""
    how = dict(p.MESSAGES[kind])
    keys(fields, how)
    turn = {"r": bytes.fromhex, "x": int, "u": int, "*": lambda numbers: [int(n) for n in numbers]}
    return {name: turn.get(how[name], lambda v: v)(value) for name, value in fields.items()}


def check_frame(entry):
    """Checks a frame in both directions. Returns its header and its payload."""
    keys(entry, ["rank", "reducer", "lane", "from", "type", "header", "message", "payload", "hex"])
    if entry["from"] not in ("worker", "reducer"):
        raise Wrong(f"{entry['from']!r} is neither worker nor reducer")
    raw, kind = bytes.fromhex(entry["hex"]), KINDS[entry["type"]]
    head, payload = p.decode(raw), raw[64:]
    same("type", p.TYPES[head["type"]], entry["type"])
    same("length", len(payload), head["payload_len"])
    if "message" in entry:
        values = message(kind, entry["message"])
        found = p.unpack(kind, payload)
        same("message", {k: v for k, v in found.items() if v}, {k: v for k, v in values.items() if v})
        same("payload", p.pack(kind, **values).hex(), payload.hex())
    else:
        same("payload", payload.hex(), entry.get("payload", ""))
    fields = {name: int(value) for name, value in entry["header"].items()}
    keys(fields, HEADER)
    same("frame", p.encode(kind, payload, **fields).hex(), entry["hex"])
    if head["flags"] & p.CHECKED:
        same("payload_sum", p.checksum(payload), head["payload_sum"])
    elif head["payload_sum"]:
        raise Wrong("payload_sum without CHECKED")
    return head, payload


def check_bad(entry):
    keys(entry, ["hex", "error"])
    try:
        p.decode(bytes.fromhex(entry["hex"]))
        found = "none"
    except p.ProtocolError as exc:
        found = str(exc)
    same("error", found, entry["error"])


def check_handshake(entry):
    keys(entry, ["secret_file", "secret", "binding", "frames", "worker_mac", "reducer_mac"])
    secret = bytes.fromhex(entry["secret_file"])
    secret = secret[:-1] if secret.endswith(b"\n") else secret
    same("secret", secret.hex(), entry["secret"])
    frames = [check_frame(frame)[1] for frame in entry["frames"]]
    same("types", [f["type"] for f in entry["frames"]], ["HELLO", "CHALLENGE", "PROOF", "WELCOME"])
    for side, carrier in (("worker", 2), ("reducer", 3)):
        mac = p.mac(secret, side, bytes.fromhex(entry["binding"]), *frames[:2])
        same(f"{side}_mac", mac.hex(), entry[f"{side}_mac"])
        same("mac", p.unpack(KINDS[entry["frames"][carrier]["type"]], frames[carrier])["mac"], mac)


def check_digest(entry):
    entry = dict(entry)
    entry.pop("meaning")
    expected = entry.pop("digest")
    entry["reducers"] = [(r["id"], r["lanes"]) for r in entry["reducers"]]
    same("digest", str(p.digest(**entry)), expected)


def check_map(entry):
    keys(entry, ["weights", "lanes", "shards", "owner"])
    if "shards" not in entry:
        same("shards", p.default_shards(entry["weights"], entry["lanes"]), len(entry["owner"]))
    else:
        same("shards", entry["shards"], len(entry["owner"]))
    same("owner", p.make_map(entry["weights"], len(entry["owner"])), entry["owner"])


def check_placement(entry):
    keys(entry, ["lanes", "owner", "lives", "places"])
    found = p.place(entry["lanes"], entry["owner"], entry["lives"])
    same("places", [list(place) for place in found], entry["places"])


def check_name(entry):
    keys(entry, ["name", "hash"])
    same("hash", p.name_hash(entry["name"]), entry["hash"])


def check_run(entry):
    keys(entry, ["run", "job"])
    same("job", p.job_name(entry["run"]), entry["job"])


def check_group(entry):
    keys(entry, ["tensors", "hash"])
    tensors = [(int(t["count"]), p.name_hash(t["name"])) for t in entry["tensors"]]
    same("hash", p.group_hash(tensors), entry["hash"])


class Trace:
    """Follows a recorded job: views, and what each rank sent for each chunk on each reducer."""

    def __init__(self, setup):
        keys(setup, ["lanes", "owner", "ranks"])
        self.lanes, self.owner, self.ranks = setup["lanes"], setup["owner"], setup["ranks"]
        self.lives = [[0] * len(self.lanes) for _ in range(self.ranks)]
        self.starts, self.resumed, self.sent, self.results, self.fetched = {}, {}, {}, {}, set()

    def check(self, entry):
        head, payload = check_frame(entry)
        kind, rank, reducer = entry["type"], entry["rank"], entry["reducer"]
        chunk, sent = (head["seq"], head["chunk"]), self.sent.setdefault(reducer, {})
        if kind in ("DATA", "HAVE"):
            shard = (head["chunk"] + head["seq"]) % len(self.owner)
            same("place", (reducer, entry["lane"]), p.place(self.lanes, self.owner, self.lives[rank])[shard])
            sent.setdefault(chunk, {})[rank] = payload if kind == "DATA" else None
        elif kind == "VIEW" and entry["from"] == "worker":
            self.lives[rank] = p.unpack(p.VIEW, payload)["lives"]
            self.starts[reducer, rank] = p.unpack(p.VIEW, payload)["start"]
        elif kind == "RESUME":
            view = p.unpack(p.RESUME, payload)
            same("lives", [view["lives"]] * self.ranks, self.lives)
            starts = [self.starts[reducer, rank] for rank in range(self.ranks)]
            same("start", view["start"], [max(column) for column in zip(*starts)])
            if self.resumed.get(reducer) != view["lives"]:
                self.resumed[reducer] = view["lives"]
                sent.clear()
        elif kind == "RESULT":
            same("ranks", sorted(sent[chunk]), list(range(self.ranks)))
            parts = sent[chunk].values()
            if None not in parts:
                floats = [struct.unpack(f"<{len(part) // 4}f", part) for part in parts]
                self.results[chunk] = struct.pack(f"<{len(floats[0])}f", *map(sum, zip(*floats)))
            same("result", payload, b"" if sent[chunk][rank] is None else self.results[chunk])
        elif kind == "FETCH":
            same("HAVE of the rank", sent[chunk][rank], None)
            self.fetched.add((rank, chunk))
        elif kind == "KEPT":
            same("FETCH", (rank, chunk) in self.fetched, True)
            same("result", payload, self.results[chunk])


def check_trace(entries):
    """Checks setup and trace of a file, which belong together."""
    trace = Trace(entries["setup"][0])
    for i, entry in enumerate(entries["trace"]):
        try:
            trace.check(entry)
        except Exception as exc:
            raise Wrong(f"trace[{i}]: {exc!r}") from None
    return len(entries["trace"])


CHECKS = {
    "frames": check_frame, "bad": check_bad, "handshakes": check_handshake, "digests": check_digest,
    "maps": check_map, "placements": check_placement, "names": check_name, "groups": check_group,
    "runs": check_run,
}  # fmt: skip
FILES = ["frames", "handshakes", "digests", "placements", "names", "failover"]


def check_file(path):
    """Checks all entries and the checksum of a file. Returns their number. Raises Wrong."""
    try:
        text = path.read_bytes()
        sums = json.loads((path.parent / "checksums.json").read_text())
        tree = json.loads(text)
    except (OSError, ValueError) as exc:
        raise Wrong(f"{path}: {exc}") from None
    n = 0
    if "trace" in tree:
        n, tree = check_trace(tree), {}
    for section, entries in tree.items():
        for i, entry in enumerate(entries):
            try:
                CHECKS[section](entry)
            except Exception as exc:  # a changed file may break in any way
                raise Wrong(f"{path.name}: {section}[{i}] ({entry.get('meaning', '')}): {exc!r}") from None
            n += 1
    same(f"checksum of {path.name}", p.checksum(text), sums.get(path.stem))
    return n


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1] / "vectors")
    try:
        for name in FILES:
            print(f"{name}.json: {check_file(folder / f'{name}.json')} vectors are right")
    except Wrong as exc:
        sys.exit(str(exc))


if __name__ == "__main__":
    main()
