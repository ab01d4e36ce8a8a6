"""The league: Nim is played by its rules, and a policy that beats the league joins it."""

from __future__ import annotations

import league
import numpy as np
from short_runs import short_run

from hive.records import read_jsonl

PERFECT = np.eye(league.CHOICES)[[max(pile % 4 - 1, 0) for pile in range(league.STONES + 1)]]


def result(table: np.ndarray, opponent: np.ndarray, seed: int) -> tuple[int, float]:
    """Return the number of stones at the start of a game, and its winner."""
    nim = league.Nim([opponent])
    nim.reset(seed=seed)
    begin, over, reward = nim.stones, False, 0.0
    while not over:
        _, reward, over, _, _ = nim.step(np.int64(table[nim.stones].argmax()))
    return begin, reward


def test_perfect_play_wins_what_can_be_won() -> None:
    games = [result(PERFECT, PERFECT, seed) for seed in range(200)]
    assert {begin for begin, _ in games} == set(range(1, league.STONES + 1))
    assert all((reward == 1.0) == (begin % 4 > 0) for begin, reward in games)
    assert all(reward in (1.0, -1.0) for _, reward in games)


def test_the_same_seed_gives_the_same_game() -> None:
    assert [result(PERFECT, league.ANYTHING[0], s) for s in range(50)] == [
        result(PERFECT, league.ANYTHING[0], s) for s in range(50)
    ]


def test_it_learns_from_its_own_past() -> None:
    """A lower goal than the example's; random play has 5 of 16 right. Reports every 50 ms end the run soon after."""
    short = "custom.league.goal=12", "run.steps=200_000", "record.every_s=0.05"
    summary, directory = short_run(league.topology, league.CONFIG, *short)
    assert summary.stop_reason.endswith("members"), summary.stop_reason
    assert int(summary.stop_reason.split()[0]) >= 12
    joined = [event["text"].split() for event in read_jsonl(directory.events_file) if event["kind"] == "joined"]
    assert [int(words[1]) for words in joined] == list(range(2, len(joined) + 2))
    assert len(joined) >= 2
