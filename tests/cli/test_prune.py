from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hive.cli.prune import _size
from hive.records import RunDirectory, write_checkpoint

if TYPE_CHECKING:
    from conftest import Place


def with_checkpoints(run: RunDirectory, *updates: int) -> RunDirectory:
    run.metrics_file.write_text("{}\n")
    for update in updates:
        write_checkpoint(run.checkpoints, update, tensors={"w": np.zeros(9000, np.float32)}, parts={}, state={})
    return run


def saved(run: RunDirectory) -> list[str]:
    return sorted(path.name for path in run.checkpoints.iterdir())


def test_it_lists_and_deletes_only_with_yes(place: Place) -> None:
    run = with_checkpoints(place.ended(), 1, 2, 3)
    listed = place.hive("prune", "--keep", 1)
    head, *rows = listed.out.splitlines()
    assert head.split() == ["RUN", "WHAT", "FREES"]
    assert [row.split()[:5] for row in rows] == [[run.name, "checkpoint", "of", "update", str(n)] for n in (1, 2)]
    assert listed.err.endswith("can be deleted; nothing was. To delete: add --yes\n")
    assert saved(run) == ["000001", "000002", "000003"]
    done = place.hive("prune", "--keep", 1, "--yes")
    assert done.code == 0
    assert done.err.startswith("deleted 2 of 2, ")
    assert saved(run) == ["000003"]
    assert place.hive("prune", "--keep", 1).err == "nothing to delete\n"


def test_json(place: Place) -> None:
    run = with_checkpoints(place.ended(), 1, 2)
    (row,) = json.loads(place.hive("prune", "--keep", 1, "--json").out)
    assert (row["run"], row["path"]) == (run.name, str(run.checkpoints / "000001"))
    assert row["bytes"] >= 36_000
    assert json.loads(place.hive("prune", "--json").out) == []


def test_named_runs_only_and_never_a_live_one(place: Place) -> None:
    first, second = (with_checkpoints(place.ended(), 1, 2) for _ in range(2))
    live = with_checkpoints(place.live(None), 1, 2)
    place.hive("prune", first.name, first.path, "--keep", 1, "--yes")
    assert (saved(first), saved(second)) == (["000002"], ["000001", "000002"])
    refused = place.hive("prune", live.name, "--keep", 1, "--yes")
    assert refused.code == 2
    assert refused.err.startswith(f"error: {live.name} is running")
    place.hive("prune", "--keep", 1, "--yes")
    assert (saved(second), saved(live)) == (["000002"], ["000001", "000002"])


@pytest.mark.parametrize("words", [("--keep", "0"), ("--keep", "x"), ("--older-than", "nan"), ("--older-than", "-1")])
def test_invalid_options(place: Place, words: tuple[str, str]) -> None:
    done = place.hive("prune", *words)
    assert done.code == 2
    assert f"argument {words[0]}: " in done.err


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_960, "100 kB"), (12_340_000_000, "12.3 GB")]
)
def test_sizes(size: int, text: str) -> None:
    assert _size(size) == text
