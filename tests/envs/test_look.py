"""What a look at two environments finds: sharing, beginnings and spaces; and nothing in what is right."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from hive.envs import Recipe
from hive.envs.look import Look, look
from hive.envs.shared_names import LONGEST, shared_values
from hive.envs.spaces.reading_spaces import described_by_child
from hive.records.run_warnings import DISTURBED, SPACES_CHANGE, STARTS_REPEAT


class Right(gymnasium.Env[Any, Any]):
    """A walk from a place that `reset` draws."""

    observation_space: Any = spaces.Box(-1e3, 1e3, (2,), np.float32)
    action_space: Any = spaces.Discrete(2)
    place = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.left = float(self.np_random.normal()), 30
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.place, self.left = self.place + float(action) + self.np_random.normal(), self.left - 1
        return self.seen(), float(action), self.left == 0, False, {}

    def seen(self) -> Any:
        return np.array([self.place, self.left], np.float32)


class OneStart(Right):
    """Always begins and ends alike, whatever the seed, as many a maze."""

    def reset(self, **given: Any) -> Any:
        super().reset(**given)
        self.place = 0.0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.place, self.left = self.place + float(action), self.left - 1
        return self.seen(), float(action), self.left == 0, False, {}


class DrawsGlobally(Right):
    def step(self, action: Any) -> Any:
        self.place += random.random()
        return super().step(action)


class OfTheClass(Right):
    at = 0

    def reset(self, **given: Any) -> Any:
        OfTheClass.at = 0
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        OfTheClass.at += 1
        result = super().step(action)
        return (np.array([OfTheClass.at, self.left], np.float32), *result[1:])


WORLD: dict[str, float] = {}


class OfTheModule(Right):
    """Only the reward shows it."""

    def reset(self, **given: Any) -> Any:
        result = super().reset(**given)
        WORLD["goal"] = self.place
        return result

    def step(self, action: Any) -> Any:
        result = super().step(action)
        return result[0], WORLD["goal"], *result[2:]


class OfTheLastOne(Right):
    """The module's environment is that which was constructed last."""

    last: Any = None

    def __init__(self) -> None:
        OfTheLastOne.last = self
        self.steps = 0

    def reset(self, **given: Any) -> Any:
        self.steps = 0
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        OfTheLastOne.last.steps += 1
        result = super().step(action)
        return result[0], float(self.steps), *result[2:]


class OfAFile(Right):
    def __init__(self, file: str) -> None:
        self.file = Path(file)

    def reset(self, **given: Any) -> Any:
        self.file.write_text("0")
        return super().reset(**given)

    def step(self, action: Any) -> Any:
        at = int(self.file.read_text()) + 1
        self.file.write_text(str(at))
        result = super().step(action)
        return result[0], float(at), *result[2:]


class Counts(Right):
    """A class that counts all steps, and rewards their number."""

    steps = 0

    def step(self, action: Any) -> Any:
        Counts.steps += 1
        result = super().step(action)
        return result[0], float(Counts.steps), *result[2:]


class FixedSeed(Right):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed or 42)


class KeepsSeed(Right):
    kept = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.kept = self.kept if seed is None else seed
        return super().reset(seed=self.kept)


class FreshLater(Right):
    """Its first episode, which is longer than any look, repeats."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.own = np.random.default_rng(seed)
        super().reset(seed=seed)
        self.left = 10_000
        return self.seen(), {}

    def seen(self) -> Any:
        return self.own.normal(size=2).astype(np.float32)


class OldObservation(Right):
    before: Any = None

    def reset(self, **given: Any) -> Any:
        observation, info = super().reset(**given)
        return (observation if self.before is None else self.before), info

    def step(self, action: Any) -> Any:
        result = super().step(action)
        self.before = result[0]
        return result


class OtherActions(Right):
    def step(self, action: Any) -> Any:
        self.action_space = spaces.Discrete(2 + self.left % 2)
        return super().step(action)


class OtherBounds(Right):
    def reset(self, **given: Any) -> Any:
        self.observation_space = spaces.Box(-10.0, 10.0, (2,), np.float32)
        return super().reset(**given)


class Named(Right):
    def __init__(self) -> None:
        self.name = f"folder-{np.random.randint(10**6)}"  # noqa: NPY002


class Once(Right):
    made = 0

    def __init__(self) -> None:
        if Once.made:
            raise RuntimeError("only one instance")
        Once.made += 1

    def close(self) -> None:
        Once.made -= 1


BUFFER = np.zeros(2, np.float32)


class OneBuffer(Right):
    def seen(self) -> Any:
        BUFFER[:] = super().seen()
        return BUFFER


class Draws(Right):
    render_mode = "human"


class Exits(Right):
    def step(self, action: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class Part:
    """Counts how often it is read."""

    __slots__ = ()
    read = 0

    def __repr__(self) -> str:
        Part.read += 1
        return "part"


class Large(Right):
    """Has a large table, in parts of which none is large."""

    table: ClassVar[Any] = {row: [Part()] * 1000 for row in range(1000)}


class Waits(Right):
    """Its step never returns; `close` takes its lock away."""

    def __init__(self, lock: str) -> None:
        self.lock = Path(lock)
        self.lock.touch()

    def step(self, action: Any) -> Any:
        signal.pause()

    def close(self) -> None:
        self.lock.unlink()


ONE = Right()


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "looked_here", sys.modules[__name__])


def looked(kind: Any, *, beside: bool = True, **options: Any) -> Look:
    return look(Recipe(f"looked_here:{kind.__name__}", options), 60.0, 16, beside=beside)


@pytest.mark.rotates
@pytest.mark.parametrize("kind", [Right, OneStart, DrawsGlobally])
def test_nothing_is_found_in_what_is_right(kind: Any) -> None:
    found = looked(kind)
    assert (found.warnings("it"), found.facts("it"), found.second, found.hurried) == ([], {}, None, False)
    assert found.steps == 200


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("kind", "what", "name"),
    [
        (OfTheClass, "the observation in step 2 ", "; here `OfTheClass.at` changes"),
        (OfTheModule, "the reward in step 1 ", "; here `WORLD` changes"),
        (OfTheLastOne, "the reward in step 1 ", "; here `OfTheLastOne.last` changes"),
    ],
)
def test_environments_that_disturb_each_other(kind: Any, what: str, name: str) -> None:
    (warning,) = looked(kind).warnings("it")
    assert warning.kind == DISTURBED
    assert what in warning.text
    assert warning.text.endswith(name)
    assert "env.processes" in warning.advice
    assert looked(kind, beside=False).warnings("it") == []


def test_what_all_share_is_named_where_nothing_repeats() -> None:
    text = looked(Counts).facts("it")["same seed"]
    assert text.endswith("; all environments of a process share `Counts.steps`, which changes")


def test_environments_that_share_a_file(tmp_path: Path) -> None:
    (warning,) = looked(OfAFile, file=str(tmp_path / "world")).warnings("it")
    assert (warning.kind, "collection.envs = 1" in warning.advice) == (DISTURBED, True)
    alone = look(Recipe("looked_here:OfAFile", {"file": str(tmp_path / "world-{index}")}), 60.0, 16, beside=True)
    assert alone.warnings("it") == []


@pytest.mark.parametrize(("kind", "starts"), [(FixedSeed, "one start"), (KeepsSeed, "16 starts")])
def test_starts_that_repeat(kind: Any, starts: str) -> None:
    (warning,) = looked(kind).warnings("it")
    assert warning.kind == STARTS_REPEAT
    assert "all 12 resets without a seed" in warning.text
    assert warning.text.endswith(f"training sees {starts}")


def test_draws_that_do_not_repeat_after_the_first_episode() -> None:
    found = looked(FreshLater)
    assert found.differs.startswith("a second reset with the same seed gave other episodes after the first one; ")
    assert found.warnings("it") == []


def test_first_observations_that_are_the_last_ones() -> None:
    assert (
        "all 12 first observations were the last ones of the episode before"
        in looked(OldObservation).facts("it")["old observations"]
    )


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        (OtherActions, "its action_space was Discrete(2) and after step 2 Discrete(3)"),
        (OtherBounds, "its observation_space was Box(-1000.0, 1000.0, (2,), float32) and after the reset Box(-10.0, "),
    ],
)
def test_spaces_that_change(kind: Any, changed: str) -> None:
    (warning,) = looked(kind).warnings("it")
    assert (warning.kind, changed in warning.text) == (SPACES_CHANGE, True), warning.text


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        (Named, "its constructor draws from the global generator of `numpy.random`, which hive seeds"),
        (OneBuffer, "its environments return observations in one memory, which a run copies"),
        (Draws, 'its `render_mode` is "human"'),
    ],
)
def test_what_is_only_worth_knowing(kind: Any, note: str) -> None:
    found = looked(kind)
    (text,) = found.facts("it").values()
    assert text.startswith(f"`it`: {note}")
    assert found.warnings("it") == []


def test_a_process_that_can_have_only_one() -> None:
    found = looked(Once)
    assert found.second is not None
    assert "only one instance" in found.second[0]
    assert "env.processes" in found.second[1]
    assert looked(Once, beside=False).second is None
    assert look(Recipe("looked_here:one"), 60.0, 16, beside=True).second is not None


def one() -> Any:
    """Return the same environment in each call."""
    return ONE


def test_slow_environments_are_looked_at_for_fewer_steps() -> None:
    found = look(Recipe("looked_here:Right"), 0.0, 16, beside=True)
    assert (found.steps, found.hurried) == (0, True)
    assert found.scope == "0 steps of two environments, alone and in turn, as they are slow"


def test_of_a_large_value_only_a_part_is_read() -> None:
    assert "Large.table" in shared_values(Large())
    assert 0 < Part.read <= LONGEST


@pytest.mark.parametrize("part", [OrderedDict(a=1), {"a": 1}, type("Own", (), {})()])
def test_parts_of_a_value_are_read_as_what_they_hold(part: Any) -> None:
    class Holds(Right):
        parts: ClassVar[Any] = [part]

    before = shared_values(Holds())["Holds.parts"]
    (part if isinstance(part, dict) else vars(part))["a"] = 2
    assert shared_values(Holds())["Holds.parts"] != before


def test_an_environment_that_waits_in_a_look_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hive.envs.look.LOOK_S", 0.1)
    lock = tmp_path / "lock"
    found = described_by_child(Recipe("looked_here:Waits", {"lock": str(lock)}), environments=16, beside=True)
    assert (found.seen, lock.exists()) == (None, False)


def test_a_run_looks_in_a_process_whose_end_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hive.envs.look.LOOK_S", 60.0)  # a busy machine needs more than its second
    recipe = Recipe("looked_here:FixedSeed")
    ((name, _, advice),) = described_by_child(recipe, environments=16, beside=True).seen
    assert (name, advice != "") == (STARTS_REPEAT, True)
    assert described_by_child(recipe).seen is None
    exits = described_by_child(Recipe("looked_here:Exits"), environments=16, beside=True)
    assert (exits.seen, exits.action.n) == (None, 2)
    named = described_by_child(Recipe("looked_here:Named"), environments=16, beside=True)
    assert [(one[0], one[2]) for one in named.seen] == [("constructor draws", "")]
