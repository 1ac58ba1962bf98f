# SPDX-License-Identifier: Apache-2.0
"""Jobs of Vertex AI: the fields that the public API knows, and `reductionctl render`."""

import json
import re
import subprocess

import harness

API = json.loads((harness.ROOT / "tests/e2e/vertex_api.json").read_text(encoding="utf-8"))
MESSAGES = API["messages"]
TYPES = {"string": str, "integer": (int, str), "number": (int, float), "boolean": bool}


def snake(name):
    return re.sub("[A-Z]", lambda m: "_" + m.group().lower(), name)


def problems(value, kind, path="job"):
    """What of a value does not fit a type of the API, as sentences."""
    if kind == "any" or kind.startswith("output "):
        return
    if kind.startswith("list "):
        if not isinstance(value, list):
            yield f"{path}: {value!r} is no list"
            return
        for i, item in enumerate(value):
            yield from problems(item, kind[len("list "):], f"{path}[{i}]")
    elif kind in MESSAGES or kind == "texts":
        if not isinstance(value, dict):
            yield f"{path}: {value!r} is no {kind}"
            return
        for name, item in value.items():
            if kind == "texts":
                yield from problems(item, "string", f"{path}.{name}")
            elif name not in MESSAGES[kind]:
                yield f"{path}: unknown {name}"
            else:
                yield from problems(item, MESSAGES[kind][name], f"{path}.{name}")
    elif not isinstance(value, TYPES[kind]) or isinstance(value, bool) != (kind == "boolean"):
        yield f"{path}: {value!r} is no {kind}"


def render(text, *options):
    return subprocess.run([harness.binary("reductionctl"), "render", "--vertex", "-", *options], input=text,
                          capture_output=True, text=True, timeout=60 * harness.SCALE)
