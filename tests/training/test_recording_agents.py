"""Recorded episodes of several agents: a picture of each step or turn once, played by all policies of the config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_trainer import config_of, weights_of

import hive
from hive.errors import UsageError
from hive.policy.loaded import Policy
from hive.records import write_checkpoint
from hive.training import Blueprint, environment_of, evaluate_together, record
from hive.training.policies import Policies

Image = pytest.importorskip("PIL.Image", reason="needs the extra video")

TWO = {"policies__one__agents": '"left"', "policies__two__agents": '"right"'}


def agents(name: str, **values: Any) -> Any:
    return config_of(f"drawn_agents:{name}", **values)


def players(root: Path, config: Any) -> dict[str, Policy]:
    """Untrained policies of all agents."""
    found = {}
    for policy in Policies.of(config, environment_of(config)).learning:
        blueprint = Blueprint(policy.config, None, policy.seat.spec)
        arrays = blueprint.flat.arrays(weights_of(blueprint))
        state = {"policy": blueprint.policy(), "updates": 7, "env_steps": 64}
        folder = root / policy.name
        folder.mkdir()
        found[policy.name] = hive.load(str(write_checkpoint(folder, 7, tensors=arrays, parts={}, state=state)))
    return found


@pytest.mark.parametrize(
    ("name", "values", "last", "returns"),
    [
        ("AtOnce", {}, 3, {"left": 3.0, "right": -1.5}),  # one policy for both
        ("AtOnce", TWO, 3, {"left": 3.0, "right": -1.5}),
        ("InTurn", TWO, 4, {"left": -1.0, "right": 1.0}),
    ],
)
def test_each_picture_once(
    tmp_path: Path, name: str, values: dict[str, str], last: int, returns: dict[str, float]
) -> None:
    config = agents(name, **values)
    policies = players(tmp_path, config)
    video = record(policies, config, tmp_path / "a.gif", episodes=2, seed=5)
    assert (video.fps, video.pictures, video.whole) == (20.0, 2 * (last + 1), True)
    with Image.open(video.path) as gif:
        shades = [(gif.seek(n), gif.convert("RGB").getpixel((0, 0))[0])[1] for n in range(gif.n_frames)]
    assert shades == 2 * [*range(last + 1)]
    (first, second) = video.episodes
    assert first == second
    assert (first.returns, first.episode_return, first.length) == (returns, sum(returns.values()), last)
    played = evaluate_together(policies, config, episodes=2, envs=1, seed=5)
    assert {one.info["return/team"] for one in played.values()} == {first.episode_return}
    if not values:
        (policy,) = policies.values()
        score = hive.evaluate(policy, f"drawn_agents:{name}", episodes=2)
        assert (score.agents, score.returns.tolist(), score.lengths.tolist()) == (returns, 2 * [3.0, -1.5], [last] * 2)


def test_what_cannot_be_played(tmp_path: Path) -> None:
    config = agents("Blind", **TWO)
    policies = players(tmp_path, config)
    with pytest.raises(UsageError, match=r"`drawn_agents:Blind` has no pictures: .* \(it has ansi\)"):
        record(policies, config, tmp_path / "a.gif")
    with pytest.raises(UsageError, match=r"2 policies of this config \(`one`, `two`\), and 1 is given"):
        record({"one": policies["one"]}, agents("AtOnce", **TWO), tmp_path / "a.gif")
    assert not [*tmp_path.glob("*.gif")]
