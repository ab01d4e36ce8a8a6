"""Keys of runs with the same name, and how often the folder is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hive.errors import UsageError
from hive.records import RunDirectory
from hive.web.catalogue import LISTED_S, Catalogue

if TYPE_CHECKING:
    from conftest import Web


def test_runs_with_the_same_name_have_different_keys(web: Web, tmp_path: Path) -> None:
    first, second = web.run(), RunDirectory.create(tmp_path, "cartpole")
    catalogue = Catalogue(lambda: [first, second])
    assert [row["run"] for row in catalogue.list()] == ["cartpole-1~2", "cartpole-1"]
    assert catalogue.run("cartpole-1~2").path == second.path
    with pytest.raises(UsageError, match="no run `other`"):
        catalogue.run("other")


def test_a_run_keeps_its_key_when_it_becomes_the_newest(web: Web, tmp_path: Path) -> None:
    runs, now = [web.run(), RunDirectory.create(tmp_path, "cartpole")], [0.0]
    catalogue = Catalogue(lambda: runs, clock=lambda: now[0])
    catalogue.list()
    first, second = runs
    runs.reverse()  # the first is resumed
    now[0] += LISTED_S
    assert [row["run"] for row in catalogue.list()] == ["cartpole-1", "cartpole-1~2"]
    assert catalogue.run("cartpole-1").path == first.path
    runs.remove(first)
    now[0] += LISTED_S
    catalogue.list()
    assert catalogue.run("cartpole-1~2").path == second.path


def test_the_folder_is_read_once_a_second_for_any_number_of_pages(web: Web) -> None:
    now, reads = [0.0], []
    directory = web.run()

    def find() -> list[RunDirectory]:
        reads.append(now[0])
        return [directory]

    catalogue = Catalogue(find, clock=lambda: now[0])
    for _ in range(5):
        assert len(catalogue.list()) == 1
    assert len(reads) == 1
    now[0] += LISTED_S
    catalogue.list()
    assert len(reads) == 2
