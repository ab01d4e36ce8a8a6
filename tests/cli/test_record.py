"""`hive record` and `hive save --replay`: transitions of a policy, of random actions and of a replay memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from conftest import Place

DQN = """
[run]
scheme = "dqn"
name = "small"
steps = 96
[env]
id = "CartPole-v1"
[network]
middleware = [8]
[algorithm]
learning_starts = 0
"""


def test_random_actions(place: Place) -> None:
    done = place.hive("record", "CartPole-v1", "-n", 300, "-o", "a.npz", "--envs", 3, "--seed", 7)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("a.npz: 300 transitions, 0.0 MB")
    assert "episodes, mean return " in lines[1]
    found = dict(np.load(place.folder / "a.npz"))
    assert sorted({*found["environments"].tolist()}) == [0, 1, 2]
    assert not (found["terminated"] & found["truncated"]).any()
    assert found["truncated"][-3:].tolist() == [not ended for ended in found["terminated"][-3:]]
    live, then = np.flatnonzero(~(found["terminated"] | found["truncated"])), found["observations"]
    np.testing.assert_array_equal(found["next_observations"][live], then[live + 3])
    place.hive("record", "CartPole-v1", "-n", 300, "-o", "b.npz", "--envs", 3, "--seed", 7)
    assert (place.folder / "a.npz").read_bytes() == (place.folder / "b.npz").read_bytes()


def test_a_memory_is_saved_given_and_saved_again(place: Place) -> None:
    (place.folder / "a.toml").write_text(DQN)
    assert place.hive("up", "a.toml", "--inline").code == 0
    assert place.hive("save", "small-1", "--replay", "memory.npz").out.startswith("memory.npz: 96 transitions, ")
    played = place.hive("record", "--policy", "small-1", "-n", 40, "-o", "played.npz")
    assert (played.code, played.out.startswith("played.npz: 40 transitions")) == (0, True)
    for name, origin in (("second", "memory.npz"), ("third", "small-1")):
        sets = ("-s", f"run.name={name}", "-s", f'algorithm.replay_from="{origin}"', "-s", "run.steps=16")
        assert place.hive("up", "a.toml", "--inline", *sets).code == 0
        assert place.hive("save", f"{name}-1", "--replay", f"{name}.npz").out.startswith(
            f"{name}.npz: 112 transitions, "
        )
        first, again = dict(np.load(place.folder / "memory.npz")), dict(np.load(place.folder / f"{name}.npz"))
        for field, array in first.items():
            np.testing.assert_array_equal(again[field][:96], array, field)


def test_the_hint_about_random_actions_at_first(place: Place) -> None:
    (place.folder / "a.toml").write_text(DQN.replace("learning_starts = 0", 'replay_from = "a.npz"'))
    place.hive("record", "CartPole-v1", "-n", 20, "-o", "a.npz")
    done = place.hive("check", "a.toml", "--draw", "-s", "run.steps=2000")
    assert (
        "warning: random beginning: the first 20 steps are random actions without updates, though transitions are given"
        in done.out
    )
    quiet = place.hive("check", "a.toml", "--draw", "-s", "algorithm.learning_starts=0")
    assert "warning" not in quiet.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("record", "-o", "a.npz"), "no environment was given"),
        (("record", "CartPole-v1", "-o", "a.txt"), "`a.txt` does not end with .npz"),
        (("record", "CartPole-v1", "-o", "none/a.npz"), "`none` is no folder"),
        (("record", "CartPole-v1", "--which", "all", "-o", "a.npz"), "hive record plays one checkpoint"),
    ],
)
def test_mistakes(place: Place, words: tuple[str, ...], told: str) -> None:
    done = place.hive(*words)
    assert done.code == 2
    assert told in done.err
