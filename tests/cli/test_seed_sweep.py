"""Several seeds: their syntax, the runs one after another, the table, and the end when a run is stopped."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from hive.cli.parts import seed_sweep
from hive.cli.parts.seed_sweep import MAX_SEEDS, seeds_of
from hive.config import load_config
from hive.errors import UsageError
from hive.records import RunDirectory, Summary

if TYPE_CHECKING:
    from conftest import Place

ENDED = Summary(
    name="cart-1", scheme="a2c", state="finished", stop_reason="", seed=1, exact=True, env_steps=1000, updates=10,
    episodes=3, mean_return_100=20.0, started=0.0, wall_s=2.0, train_s=1.0, weights_sha256="", channels={}, restarts={},
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1..5", [1, 2, 3, 4, 5]), ("7", [7]), ("3,1,2", [3, 1, 2]), ("0..0", [0]), ("8..9", [8, 9])],
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["", "5..1", "a..b", "1...3", "-1", "1,", f"0..{MAX_SEEDS}", "1..99999999999", "1 2"])
def test_invalid_seeds(text: str) -> None:
    with pytest.raises(UsageError, match="invalid seeds"):
        seeds_of(text)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the runs so far. Seed 3 fails, seed 4 is stopped by the user, seed 5 ends before an episode."""
    seeds: list[int] = []

    def pretend(directory: RunDirectory) -> None:
        seed = load_config(directory.resolved_file).run.seed
        seeds.append(seed)
        state = {3: "failed", 4: "stopped"}.get(seed, "finished")
        mean = None if seed == 5 else 10.0 * seed
        dataclasses.replace(ENDED, state=state, mean_return_100=mean, env_steps=1000 * seed).write(
            directory.summary_file
        )

    monkeypatch.setattr(seed_sweep, "run_quietly", pretend)
    return seeds


def test_one_after_the_other_in_one_table(place: Place, ran: list[int]) -> None:
    done = place.hive("up", place.config(), "--seeds", "1,2,5", "--name", "cart")
    assert (done.code, done.err, ran) == (0, "", [1, 2, 5])
    rows = [line.split() for line in done.out.splitlines()]
    assert rows == [
        ["seed", "run", "state", "steps", "updates", "return", "seconds"],
        ["1", "cart-1", "finished", "1,000", "10", "10.0", "2.0"],
        ["2", "cart-2", "finished", "2,000", "10", "20.0", "2.0"],
        ["5", "cart-3", "finished", "5,000", "10", "–", "2.0"],
        ["median", "2,000", "15.0", "2.0"],
    ]


def test_a_failed_run_does_not_stop_the_others(place: Place, ran: list[int]) -> None:
    done = place.hive("up", place.config(), "--seeds", "2..3")
    assert (done.code, ran) == (1, [2, 3])


def test_a_stopped_run_is_the_last(place: Place, ran: list[int]) -> None:
    done = place.hive("up", place.config(), "--seeds", "1,4,2")
    assert (done.code, ran) == (0, [1, 4])


def test_bad_seeds_start_nothing(place: Place, ran: list[int]) -> None:
    done = place.hive("up", place.config(), "--seeds", "many")
    assert (done.code, ran) == (2, [])
    assert "error: invalid seeds `many`" in done.err
    assert not place.runs.exists()
