"""The defaults of hive that a row was measured with, so that a published table can refuse rows of earlier ones.

    examples/results/defaults.json     {digest: {key: value}}, each a scheme alone; `Row.defaults` names one of them

A key that is new since a row was measured does not count, because a new key's default keeps what was before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / "examples" / "results" / "defaults.json"

LEARNING = ("env.", "collection.", "gradients.", "algorithm.", "network.", "checkpoint.", "run.stop", "run.carrier")
"""Beginnings of the keys that may change what is learned. A checkpoint ends the episodes of training."""


def defaults_of(scheme: str) -> dict[str, Any]:
    """Return the values of all keys that may change what is learned, with no key given but the scheme."""
    from hive.config import load_config

    config = load_config("defaults", text=f'run.scheme = "{scheme}"\nenv.id = "none"\n')
    found = {entry.name: entry.value for entry in config.entries() if entry.name.startswith(LEARNING)}
    found["run.scheme"] = scheme
    del found["env.id"]
    return dict(json.loads(json.dumps(found, default=dict)))


def remember(values: Mapping[str, Any], file: Path = FILE) -> str:
    """Store the defaults of a scheme, if they are not there yet; return their digest."""
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]
    known = stored(file)
    if digest not in known:
        lines = [f'"{name}": {json.dumps(one, sort_keys=True)}' for name, one in {**known, digest: values}.items()]
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return digest


def stored(file: Path = FILE) -> dict[str, dict[str, Any]]:
    return dict(json.loads(file.read_text())) if file.exists() else {}


def changes(digest: str, given: Sequence[str], file: Path = FILE) -> Iterator[str]:
    """Yield each default that differs now from the one of a row, if the task does not give the key.

    digest: `Row.defaults`. given: "KEY=VALUE" of the task.
    """
    if digest not in (known := stored(file)):
        yield "the row does not say which defaults it was measured with"
        return
    names, before = {word.partition("=")[0] for word in given}, known[digest]
    now = defaults_of(before["run.scheme"])
    for name in sorted(before.keys() & now.keys() - names):
        if before[name] != now[name]:
            yield f"{name} was {before[name]!r} and is {now[name]!r}"
