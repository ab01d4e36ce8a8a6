"""Numbers whose differences float32 does not hold are stored less an origin, in every kind of vector."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from hive.config import load_config
from hive.envs import StepRow
from hive.envs.agents.interface import describe_agents
from hive.envs.configured import configured_spec, configured_vector
from hive.envs.make import describe
from hive.envs.processes.describing import keeping
from hive.envs.recipe import Recipe
from hive.envs.spaces.meaning import kept_meaning
from hive.envs.spaces.observation import ObservationSpec, observation_spec
from hive.envs.spaces.origins import with_found_origins
from hive.envs.spaces.plain_specs import from_plain, to_plain
from hive.envs.vectors.checks import store

DAY = 86_400.0
ANY_FLOAT, ANY_INT = (spaces.Box(-np.inf, np.inf, (1,), np.float64), spaces.Box(-(2**62), 2**62, (1,), np.int64))


def found(space: spaces.Space[Any], *values: Any) -> ObservationSpec:
    dtype = space.dtype or np.float64
    return with_found_origins(observation_spec("drawn", space), [np.array([value], dtype) for value in values])


@pytest.mark.parametrize(
    ("space", "values", "origin"),
    [
        (ANY_FLOAT, (1.7e9, 1.7e9 + 1, 1.7e9 + 60), (1.7e9,)),  # time stamps in seconds
        (ANY_FLOAT, (1.7e9, 1.7e9 + DAY, 1.7e9 + 9 * DAY), ()),  # time stamps in days: float32 holds 675 steps a day
        (ANY_FLOAT, (5_820_000.12, 5_820_000.13), (5_820_000.12,)),  # coordinates in metres
        (ANY_FLOAT, (52.520008, 52.520009), (52.520008,)),  # coordinates in degrees
        (ANY_FLOAT, (50_000.0, 50_090.5, 49_870.25), ()),  # prices
        (ANY_FLOAT, (1.25, 1.2500001), ()),
        (ANY_FLOAT, (20.0, 20.0 + 1e-14), ()),  # the rounding of float64
        (ANY_FLOAT, (20.0, 20.0), ()),
        (ANY_FLOAT, (1.7e9, 1.7e9), (1.7e9,)),
        (ANY_FLOAT, (-1.7e9, -1.7e9 + 1), (-1.7e9,)),
        (ANY_INT, (2**60, 2**60 + 3), (2**60,)),
        (ANY_INT, (2**24 - 1, 2**24 - 3), ()),  # float32 holds each
        (ANY_INT, (-(2**40), 2**40), ()),
        (ANY_FLOAT, (np.nan, 1.7e9), ()),
        (spaces.Box(-np.inf, np.inf, (1,), np.float32), (1.7e9, 1.7e9 + 128), ()),  # all that there is
        (spaces.Box(0, 255, (1,), np.uint8), (200, 201), ()),
    ],
)
def test_an_origin_is_found_where_float32_does_not_hold_the_differences(
    space: spaces.Box, values: tuple[float, ...], origin: tuple[float, ...]
) -> None:
    assert found(space, *values).origin == origin


def test_whole_numbers_of_64_bits_are_subtracted_without_rounding() -> None:
    for dtype, base in (("int64", -(2**63) + 5), ("uint64", 2**64 - 9)):
        limits = np.iinfo(dtype)
        space = spaces.Box(limits.min, limits.max, (1,), np.dtype(dtype).type)
        spec, rows = found(space, base, base + 1), np.zeros((2, 1), np.float32)
        assert store(spec, [np.array([base + 7], dtype), np.array([base - 3], dtype)], rows)
        assert rows.ravel().tolist() == [7.0, -3.0]
        assert spec.absolute(rows).ravel().tolist() == [base + 7, base - 3]
        assert spec.absolute(rows).dtype == dtype


def test_near_bounds_of_large_whole_numbers_are_an_origin_themselves() -> None:
    spec = observation_spec("drawn", spaces.Box(2**60, 2**60 + 100, (2,), np.int64))
    assert (spec.origin, spec.low, spec.high) == ((2**60, 2**60), (0.0,), (100.0,))
    earlier = observation_spec("drawn", spaces.Box(0, 100, (2,), np.int64))  # described by a policy of before
    kept = kept_meaning(spec, earlier)
    assert (kept.origin, kept.low, kept.high) == ((), (0.0,), (100.0,))


def test_origins_survive_as_plain_data_and_are_no_part_of_the_form() -> None:
    spec = found(ANY_INT, 2**60, 2**60 + 1)
    assert from_plain(to_plain(spec)).origin == (2**60,)
    assert spec == observation_spec("drawn", ANY_INT)


class Clock(gymnasium.Env[Any, Any]):
    """Observes how often it was reset and stepped since 1.7e9, alone or in a dictionary."""

    def __init__(self, within: bool = False, fails: bool = False) -> None:
        box = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.observation_space: Any = spaces.Dict({"time": box, "bit": spaces.MultiBinary(1)}) if within else box
        self.action_space: Any = spaces.Discrete(2)
        self.within, self.fails, self.at = within, fails, 1.7e9

    def look(self) -> Any:
        self.at += 1
        seen = np.array([self.at, 0.5])
        return {"time": seen, "bit": np.zeros(1, np.int8)} if self.within else seen

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.look(), {}

    def step(self, action: Any) -> Any:
        if self.fails:
            raise RuntimeError("no steps today")
        return self.look(), 0.0, False, False, {}


class Clocks:
    """Two agents who see the time."""

    possible_agents = ("a", "b")
    agents = possible_agents

    def observation_space(self, agent: str) -> Any:
        return ANY_FLOAT

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None) -> Any:
        return {agent: np.array([1.7e9 + number]) for number, agent in enumerate(self.agents)}, {}

    def step(self, actions: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("options", [{}, {"within": True}, {"fails": True}])
def test_an_environment_is_played_for_its_origins_on_request(options: dict[str, Any]) -> None:
    recipe = Recipe(f"{__name__}:Clock", options)
    assert not any(one.origin for one in describe(recipe).observation.inputs)
    origins = [one.origin for one in describe(recipe, plays=True).observation.inputs if one.origin]
    assert origins == [(1.7e9 + 1, 0.0)]


def test_agents_of_equal_spaces_have_one_origin() -> None:
    spec = describe_agents("clocks", Clocks(), Recipe("clocks"), plays=True)
    assert [agent.observation.origin for agent in spec.agents] == [(1.7e9,), (1.7e9,)]


@pytest.mark.rotates
@pytest.mark.parametrize("processes", [0, 1])
def test_later_starts_of_a_run_store_observations_with_its_first_origins(processes: int, tmp_path: Path) -> None:
    sets = [f"env.id={__name__}:Clock", f"env.processes={processes}"]
    env = load_config("run.toml", sets, text="").env
    with keeping(tmp_path / "spaces.json"):
        first = configured_spec(env, plays=True).observation.origin
        text = (tmp_path / "spaces.json").read_text().replace("1700000001.0", "1700000101.0")  # another time
        (tmp_path / "spaces.json").write_text(text)
        spec = configured_spec(env, plays=True)
    assert (first, spec.observation.origin) == ((1.7e9 + 1, 0.0), (1.7e9 + 101, 0.0))
    vector, row = configured_vector(env, 1, spec=spec), StepRow.allocate(spec.observation, 1)
    try:
        vector.reset([0], row.observations)
        assert row.observations.tolist() == [[-100.0, 0.5]]
        vector.step(np.zeros(1, np.int64), row)
        assert row.observations.tolist() == [[-99.0, 0.5]]
    finally:
        vector.close()
