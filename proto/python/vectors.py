#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the test vectors of the protocol with protocol.py: vectors.py [FOLDER]

FOLDER is proto/vectors if it is not given. Exit status: 0 all vectors are right, 1 a sentence says which one is not.
proto/vectors/README.md describes the files.
"""

import json
import pathlib
import re
import sys

import blocks
import numpy as np
import protocol as p
from protocol import checksum, pb

AVG = 4  # an op
OWN = ("magic", "version", "type", "payload_len", "header_sum")
HEADER = [name for name in (*p.FIELDS, *p.SHARED) if name not in OWN]


class Wrong(Exception):
    """A vector is wrong."""


def same(what, found, expected):
    if found != expected:
        raise Wrong(f"{what}: computed {found!r}, the file has {expected!r}")


def keys(entry, allowed):
    if unknown := set(entry) - set(allowed) - {"meaning"}:
        raise Wrong(f"unknown keys {sorted(unknown)}")


def default_shards(weights, lanes):
    """The number of shards if the configuration gives none."""
    n = len(weights)
    if len({int(w * 1e6 + 0.5) for w in weights}) > 1:
        return max(64, 16 * n)
    unit = n * lanes[0] if len(set(lanes)) == 1 and n * lanes[0] <= 4096 else n
    return -(-64 // unit) * unit


def make_map(weights, shards):
    """The owner of each shard if the configuration has no map."""
    return p.deal([int(w * 1e6 + 0.5) for w in weights], shards)


def job_name(run):
    """The name of a job that has none, made of its run."""
    return re.sub("[^0-9A-Za-z._-]", "-", run[:37]) + f"-{checksum(run.encode()):08x}"


def message(kind, fields):
    """The message of a payload in the files: bytes are in hexadecimal, numbers of 64 bits in quotes."""
    cls = getattr(pb, {"RESUME": "View"}.get(kind, kind.capitalize()))
    known = cls.DESCRIPTOR.fields_by_name
    keys(fields, known)

    def read(field, value):
        if isinstance(value, list):
            return [read(field, item) for item in value]
        if field.type == field.TYPE_BYTES:
            return bytes.fromhex(value)
        return int(value) if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64) else value

    return cls(**{name: read(known[name], value) for name, value in fields.items()})


def check_frame(entry):
    """Checks a frame in both directions. Returns its header and its payload."""
    keys(entry, ["rank", "reducer", "lane", "from", "type", "header", "message", "payload", "hex"])
    if entry["from"] not in ("worker", "reducer"):
        raise Wrong(f"{entry['from']!r} is neither worker nor reducer")
    raw, kind = bytes.fromhex(entry["hex"]), entry["type"]
    head, payload = p.decode(raw), raw[64:]
    same("type", p.Kind(head["type"]).name, kind)
    same("length", len(payload), head["payload_len"])
    if "message" in entry:
        expected = message(kind, entry["message"])
        same("message", type(expected).FromString(payload), expected)
        same("payload", expected.SerializeToString().hex(), payload.hex())
    else:
        same("payload", payload.hex(), entry.get("payload", ""))
    fields = {name: int(value) for name, value in entry["header"].items()}
    keys(fields, HEADER)
    same("frame", p.encode(p.Kind[kind], payload, **fields).hex(), entry["hex"])
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
    except ValueError as exc:
        found = str(exc)
    same("error", found, entry["error"])


def check_handshake(entry):
    keys(entry, ["secret_file", "secret", "binding", "frames", "worker_mac", "reducer_mac"])
    secret = bytes.fromhex(entry["secret_file"])
    secret = secret[:-1] if secret.endswith(b"\n") else secret
    same("secret", secret.hex(), entry["secret"])
    frames = [check_frame(frame)[1] for frame in entry["frames"]]
    same("types", [f["type"] for f in entry["frames"]], ["HELLO", "CHALLENGE", "PROOF", "WELCOME"])
    for side, message, payload in (("worker", pb.Proof, frames[2]), ("reducer", pb.Welcome, frames[3])):
        mac = p.mac(secret, side, bytes.fromhex(entry["binding"]), *frames[:2])
        same(f"{side}_mac", mac.hex(), entry[f"{side}_mac"])
        same("mac", message.FromString(payload).mac, mac)


def check_digest(entry):
    entry = dict(entry)
    entry.pop("meaning")
    expected = entry.pop("digest")
    of_reducers = p.reducers_digest([r["id"] for r in entry["reducers"]])
    same("reducers_digest", str(of_reducers), entry.pop("reducers_digest"))
    entry["reducers"] = [(r["id"], r["lanes"]) for r in entry["reducers"]]
    if "groups" in entry:
        entry["groups"] = [(g["name"], g["relays"]) for g in entry["groups"]]
    same("digest", str(p.digest(**entry)), expected)


def check_map(entry):
    keys(entry, ["weights", "lanes", "shards", "owner"])
    if "shards" not in entry:
        same("shards", default_shards(entry["weights"], entry["lanes"]), len(entry["owner"]))
    else:
        same("shards", entry["shards"], len(entry["owner"]))
    same("owner", make_map(entry["weights"], len(entry["owner"])), entry["owner"])


def check_placement(entry, place=p.place):
    keys(entry, ["lanes", "owner", "lives", "shares", "places"])
    found = place(entry["lanes"], entry["owner"], entry["lives"], entry.get("shares"))
    same("places", [list(place) for place in found], entry["places"])


def check_slots(entry):
    check_placement(entry, p.place_slots)


def check_relays(entry):
    keys(entry, ["lanes", "owner", "lives", "relays", "places"])
    homes = p.place_slots(entry["lanes"], entry["owner"], entry["lives"])
    found = p.place_relays(entry["lanes"], entry["relays"], entry["lives"], homes)
    same("places", [list(place or (p.NO_RELAY, 0)) for place in found], entry["places"])


def check_sharded_bytes(entry):
    keys(entry, ["parts", "chunk_bytes", "bytes"])
    same("bytes", p.sharded_bytes(entry["parts"], entry["chunk_bytes"]), entry["bytes"])


def check_sharded(entry):
    keys(entry, ["count", "parts", "chunk_elems", "places"])
    of = entry["count"], entry["parts"], entry["chunk_elems"]
    found = [list(p.sharded_place(*of, chunk)) for chunk in range(p.sharded_chunks(*of))]
    same("places", found, entry["places"])


def check_name(entry):
    keys(entry, ["name", "hash"])
    same("hash", p.name_hash(entry["name"]), entry["hash"])


def check_run(entry):
    keys(entry, ["run", "job"])
    same("job", job_name(entry["run"]), entry["job"])


def check_group(entry):
    keys(entry, ["tensors", "hash"])
    tensors = [(int(t["count"]), p.name_hash(t["name"])) for t in entry["tensors"]]
    same("hash", p.group_hash(tensors), entry["hash"])


def check_block(entry):
    keys(entry, ["wire", "seq", "rank", "first", "values", "encoded", "decoded"])
    wire, x = blocks.WIRES.index(entry["wire"]), np.frombuffer(bytes.fromhex(entry["values"]), np.float32)
    bits = None
    if "seq" in entry:
        bits = blocks.random_bits(int(entry["seq"]), entry["rank"], int(entry["first"]), x.size)
    same("encoded", blocks.encode(wire, x, bits).hex(), entry["encoded"])
    same("decoded", blocks.decode(wire, bytes.fromhex(entry["encoded"]), x.size).tobytes().hex(), entry["decoded"])


def check_code(entry):
    keys(entry, ["wire", "encoded", "decoded"])
    wire, data = blocks.WIRES.index(entry["wire"]), bytes.fromhex(entry["encoded"])
    same("decoded", blocks.decode(wire, data, len(entry["decoded"]) // 8).tobytes().hex(), entry["decoded"])


def check_chunk(entry):
    keys(entry, ["size", "up", "down", "chunk_bytes", "decoded_bytes", "chunk_elems"])
    up, down = blocks.WIRES.index(entry["up"]), blocks.WIRES.index(entry["down"])
    found = blocks.chunk_elems(entry["size"], up, down, entry["chunk_bytes"], entry["decoded_bytes"])
    same("chunk_elems", found, entry["chunk_elems"])


class Connection:
    """Follows one lane of a rank, which may go on in another generation."""

    def __init__(self, secret):
        self.secret, self.nonces = secret, set()
        self.generation, self.keeps, self.ended = -1, False, False
        self.joins = self.proven = False  # HELLO has no answer yet; PROOF was sent
        self.hello = self.challenge = self.before = None

    def nonce(self, message):
        same("a nonce that was used before", message.nonce in self.nonces, False)
        self.nonces.add(message.nonce)

    def from_worker(self, kind, head, payload):
        if kind == "HELLO":
            if self.ended:
                same("a newer generation", head["generation"] > self.generation, True)
            self.hello, self.challenge, self.before = payload, None, self.generation if self.ended else None
            self.generation, self.joins, self.ended, self.proven = head["generation"], True, False, False
            hello = pb.Hello.FromString(payload)
            same("generation of HELLO", hello.generation, self.generation)
            if self.secret:
                self.nonce(hello)
            return
        same("ABORT and no HELLO behind it", self.ended, False)
        same("generation", head["generation"], self.generation)
        if kind == "PROOF":
            self.proven = True
            found = p.mac(self.secret, "worker", b"", self.hello, self.challenge)
            same("mac", found, pb.Proof.FromString(payload).mac)
        same("an answer to HELLO", self.joins and kind != "PROOF", False)
        self.ended = self.keeps and kind == "ABORT"

    def from_reducer(self, kind, head, payload):
        """Returns whether the worker takes the frame."""
        if (self.joins and kind not in ("CHALLENGE", "WELCOME", "REFUSED")) or self.ended:
            same("generation of a discarded frame", head["generation"], self.before if self.joins else self.generation)
            return False
        same("generation", head["generation"], self.generation)
        if kind == "CHALLENGE":
            self.challenge = payload
            self.nonce(pb.Challenge.FromString(payload))
        elif kind == "WELCOME":
            welcome, hello = pb.Welcome.FromString(payload), pb.Hello.FromString(self.hello)
            self.joins, self.keeps = False, bool(hello.features & welcome.features & p.FEATURE_RECONFIGURE)
            same("PROOF", self.proven, bool(self.secret))
            if self.secret:
                same("mac", p.mac(self.secret, "reducer", b"", self.hello, self.challenge), welcome.mac)
        self.ended = self.keeps and kind == "ABORT"
        return True


class Trace:
    """Follows a recorded job: views, and what each rank sent for each chunk on each reducer."""

    def __init__(self, setup):
        keys(setup, ["lanes", "owner", "ranks", "secret"])
        self.secret, self.connections = bytes.fromhex(setup.get("secret", "")), {}
        self.lanes, self.owner, self.ranks = setup["lanes"], setup["owner"], setup["ranks"]
        self.views = [pb.View(lives=[0] * len(self.lanes)) for _ in range(self.ranks)]
        self.shares = {0: []}  # of each epoch, as rank 0 has set them
        self.said, self.resumed, self.sent, self.results, self.fetched = {}, {}, {}, {}, set()
        self.data, self.paused = {}, set()  # paused: lanes between VIEW and RESUME

    @staticmethod
    def agreed(view):
        return list(view.lives), view.epoch, list(view.shares)

    def check(self, entry):
        head, payload = check_frame(entry)
        kind, rank, reducer = entry["type"], entry["rank"], entry["reducer"]
        lane = rank, reducer, entry["lane"]
        connection = self.connections.setdefault(lane, Connection(self.secret))
        if entry["from"] == "worker":
            connection.from_worker(kind, head, payload)
        elif not connection.from_reducer(kind, head, payload):
            return
        chunk, sent = (head["generation"], head["seq"], head["chunk"]), self.sent.setdefault(reducer, {})
        if lane in self.paused and kind in ("DATA", "HAVE", "RESULT"):
            same("sender of a chunk between VIEW and RESUME", entry["from"], "reducer")  # this rank drops it
        elif kind in ("DATA", "HAVE"):
            shard = (head["chunk"] + head["seq"]) % len(self.owner)
            places = p.place(self.lanes, self.owner, self.views[rank].lives, self.views[rank].shares)
            same("place", (reducer, entry["lane"]), places[shard])
            sent.setdefault(chunk, {})[rank] = payload if kind == "DATA" else None
            if kind == "DATA":
                same("contribution that is sent again", payload, self.data.setdefault((rank, chunk), payload))
        elif kind == "VIEW" and entry["from"] == "worker":
            view = pb.View.FromString(payload)
            if rank == 0:
                self.shares.setdefault(view.epoch, view.shares)
            same("shares", view.shares, self.shares[view.epoch])
            self.views[rank] = self.said[lane] = view
            self.paused.add(lane)
        elif kind == "RESUME":
            view = pb.View.FromString(payload)
            said = [self.said[rank, reducer, entry["lane"]] for rank in range(self.ranks)]
            same("views on this lane", [self.agreed(v) for v in said], [self.agreed(view)] * self.ranks)
            same("start", list(view.start), [max(column) for column in zip(*(v.start for v in said))])
            self.paused.discard(lane)
            if self.resumed.get(reducer) != self.agreed(view):
                self.resumed[reducer] = self.agreed(view)
                sent.clear()
        elif kind == "RESULT":
            same("ranks", sorted(sent[chunk]), list(range(self.ranks)))
            parts = [part for _, part in sorted(sent[chunk].items())]
            if None not in parts:
                n = min(head["chunk_elems"], head["count"] - head["chunk"] * head["chunk_elems"])
                result, *others = (blocks.decode(head["up"], part, n) for part in parts)  # of float32
                for other in others:
                    result = result + other
                divisor = np.float32(self.ranks if head["op"] == AVG else 1)
                self.results[chunk] = blocks.encode(head["down"], result / divisor)
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
    "maps": check_map, "placements": check_placement, "slots": check_slots, "relays": check_relays,
    "sharded": check_sharded, "sharded_bytes": check_sharded_bytes, "names": check_name, "groups": check_group,
    "runs": check_run, "blocks": check_block, "codes": check_code, "chunks": check_chunk,
}  # fmt: skip
FILES = ["frames", "handshakes", "digests", "placements", "names", "encodings", "failover", "encoded_failover",
         "reconfigure", "shares"]  # fmt: skip


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
