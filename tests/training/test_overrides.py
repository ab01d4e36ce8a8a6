"""A user's class changes a loss by the methods that it overrides: adding 0 changes nothing, and mistakes are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_native_rounds import AGENT, C51, CRITIC_FIRST, DQN, PPO, QR_DQN, SAC_OF_CHOICES, Run, unchanged
from trained_runs import train

from hive.errors import NetworkError, TopologyError
from hive.records import read_jsonl
from hive.records.summary import NATIVE, ROUNDS, rounds_text

ON_POLICY = {"run__steps": 256, "algorithm__learning_rate_schedule": '"constant"'}
A2C = {**ON_POLICY, "run__scheme": '"a2c"'}
MEMORY = {"network__memory": '"lstm"', "network__memory_size": 4}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ZeroPPO", "CartPole-v1", PPO),
    "ppo, a box": ("ZeroPPO", "Pendulum-v1", {**PPO, "algorithm__target_kl": 0.02}),
    "ppo, old rollouts": ("ZeroPPO", "CartPole-v1", {**PPO, "collection__communication": '"pipelined"'}),
    "ppo with a memory": ("ZeroPPO", "CartPole-v1", {**PPO, **MEMORY}),
    "ppo with masks": (
        "ZeroPPO",
        "small_environments:Rooms",
        {**PPO, "env__action_mask": '"action_mask"'},
    ),
    "ppo, several agents": ("ZeroPPO", "small_environments:Twins", PPO),
    "a2c of stacked frames": ("ZeroA2C", "CartPole-v1", {**A2C, "env__frame_stack": 3}),
    "ppo, several workers": ("ZeroPPO", "CartPole-v1", {**PPO, "collection__workers": 2, "gradients__workers": 2}),
    "a2c": ("ZeroA2C", "CartPole-v1", A2C),
    "a2c, old rollouts": ("ZeroA2C", "CartPole-v1", {**A2C, "collection__communication": '"pipelined"'}),
    "a2c with a memory": ("ZeroA2C", "CartPole-v1", {**A2C, **MEMORY}),
    "a2c, several workers": (
        "ZeroA2C",
        "CartPole-v1",
        {**A2C, "collection__workers": 2, "gradients__workers": 2, "algorithm__normalize_advantages": "true"},
    ),
    "dqn": ("ZeroDQN", "CartPole-v1", DQN),
    "dqn by priorities": ("ZeroDQN", "CartPole-v1", {**DQN, "algorithm__priority_exponent": 0.6}),
    "c51": ("ZeroC51", "CartPole-v1", {**DQN, **C51}),
    "qr-dqn": ("ZeroQRDQN", "CartPole-v1", {**DQN, **QR_DQN}),
    "sac": ("ZeroSAC", "Pendulum-v1", {**AGENT, "run__scheme": '"sac"'}),
    "sac, critics first": ("ZeroSAC", "Pendulum-v1", {**AGENT, **CRITIC_FIRST, "run__scheme": '"sac"'}),
    "sac of choices": ("ZeroSAC", "CartPole-v1", {**AGENT, **SAC_OF_CHOICES}),
    "td3": ("ZeroTD3", "Pendulum-v1", {**AGENT, "run__scheme": '"td3"'}),
    "ddpg, several workers": (
        "ZeroDDPG",
        "Pendulum-v1",
        {**AGENT, "run__scheme": '"ddpg"', "gradients__workers": 2},
    ),
    "impala": ("ZeroIMPALA", "CartPole-v1", {**ON_POLICY, "run__scheme": '"impala"'}),
}


NAMED = '"changed_losses:{}"'


def run(folder: Path, name: str, env: str, **values: Any) -> Run:
    (folder / name).mkdir()
    return Run(folder / name, True, env, unchanged, **values)


def apart(one: Run, other: Run) -> float:
    """Return how far the weights of two runs are apart, relative to their size."""
    given, expected = (each.weights.view(np.float32).astype(float) for each in (one, other))
    return float(np.linalg.norm(given - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("case", CASES)
def test_adding_nothing_changes_nothing(tmp_path: Path, case: str) -> None:
    """Without the methods the updates are made natively where they can be, with them by torch."""
    name, env, values = CASES[case]
    plain = run(tmp_path, "plain", env, **values)
    changed = run(tmp_path, "changed", env, **{**values, "algorithm__name": NAMED.format(name)})
    assert apart(changed, plain) < 1e-6
    assert changed.counters["updates"] == plain.counters["updates"] > 0
    assert changed.counters["native_updates"] == 0
    text = rounds_text(ROUNDS[int(changed.counters["rounds"])], f"changed_losses:{name}")
    assert text == f"updates by torch: {name}.added_loss"


def test_changed_advantages_alone_leave_rounds_native(tmp_path: Path) -> None:
    plain = run(tmp_path, "plain", "CartPole-v1", **PPO)
    changed = run(tmp_path, "changed", "CartPole-v1", **{**PPO, "algorithm__name": NAMED.format("Halved")})
    assert ROUNDS[int(changed.counters["rounds"])] == NATIVE
    assert changed.counters["native_updates"] == plain.counters["native_updates"] > 0
    assert apart(changed, plain) < 1e-4, "minibatches normalize half of the advantages to nearly the same"
    unlike = {**PPO, "algorithm__name": NAMED.format("Halved"), "algorithm__options": "{factor=-1.0}"}
    assert apart(run(tmp_path, "unlike", "CartPole-v1", **unlike), plain) > 1e-3


def test_changed_targets_alone_leave_the_loss_native(tmp_path: Path) -> None:
    plain, shifted = run(tmp_path, "plain", "CartPole-v1", **DQN), {"algorithm__name": NAMED.format("Shifted")}
    same, other = (
        run(tmp_path, options, "CartPole-v1", **DQN, **shifted, algorithm__options=options)
        for options in ("{by=0.0}", "{by=1.0}")
    )
    assert apart(same, plain) < 1e-6 < 1e-3 < apart(other, plain)
    text = rounds_text(ROUNDS[int(same.counters["rounds"])], "changed_losses:Shifted")
    assert text == "updates one by one: Shifted.targets"


def test_each_network_learns_from_its_addition(tmp_path: Path) -> None:
    values = {**AGENT, "run__scheme": '"sac"', "env__id": '"Pendulum-v1"', "record__every_s": 60}
    lines = []
    for name in ("plain", "changed"):
        (tmp_path / name).mkdir()
        named = {"algorithm__name": NAMED.format("Conservative")} if name == "changed" else {}
        (line,) = read_jsonl(train(tmp_path / name, **values, **named).directory.metrics_file)
        lines.append(line)
    assert lines[1].keys() - lines[0].keys() == {"learner/added_loss", "learner/added_actor_loss"}
    assert lines[1]["learner/added_actor_loss"] > 0
    for name in ("q_mean", "entropy", "critic_loss", "actor_loss"):
        assert lines[0][f"learner/{name}"] != lines[1][f"learner/{name}"]


def test_what_is_added_is_a_metric(tmp_path: Path) -> None:
    options = "{loss='3.0 + 0.0 * outputs[1].sum()'}"
    changed = train(
        tmp_path, **{**PPO, "algorithm__name": NAMED.format("Wrong")}, algorithm__options=options, record__every_s=60
    )
    (line,) = read_jsonl(changed.directory.metrics_file)
    assert line["learner/added_loss"] == pytest.approx(3.0)
    assert 0 < line["learner/entropy"] < 0.7


WRONG = {
    "{loss='3.0'}": "returned 3.0, expected a scalar tensor",
    "{loss='outputs[1]'}": "returned a tensor of shape [32], expected a scalar tensor",
    "{loss='outputs[1].mean().detach()'}": "returned a tensor without a graph",
    "{loss='outputs[1].mean() * np.nan'}": "returned nan, expected a finite number",
    "{gained='None'}": "returned None, expected float32 [16, 2]",
    "{gained='advantages[0]'}": "returned an array of shape [2], expected float32 [16, 2]",
    "{gained='advantages + np.inf'}": "returned inf at [0, 0], expected finite numbers",
}


@pytest.mark.parametrize("options", WRONG)
def test_another_result_is_an_error_that_names_the_line(tmp_path: Path, options: str) -> None:
    with pytest.raises(NetworkError) as caught:
        train(tmp_path, **{**PPO, "algorithm__name": NAMED.format("Wrong")}, algorithm__options=options)
    method = "added_loss" if "loss" in options else "advantages"
    assert f"`Wrong.{method}` (" in str(caught.value)
    assert "changed_losses.py:" in str(caught.value)
    assert WRONG[options] in str(caught.value)
    assert caught.value.hint
    assert caught.value.permanent


def test_targets_of_another_shape_are_an_error(tmp_path: Path) -> None:
    text = r"`WrongDQN.targets` \(.*changed_losses.py:\d+\) returned a tensor of shape \[1\], expected float32 \[16\]"
    with pytest.raises(NetworkError, match=text):
        train(tmp_path, **DQN, algorithm__name=NAMED.format("WrongDQN"))


def test_weights_that_are_not_finite_are_no_fault_of_the_method(tmp_path: Path) -> None:
    values = {"algorithm__learning_rate": 1e20, "algorithm__clip_gradients": 0, "supervision__non_finite": '"skip"'}
    changed = run(tmp_path, "run", "CartPole-v1", **{**PPO, **values, "algorithm__name": NAMED.format("Wrong")})
    assert changed.counters["skipped"] > 0


def test_a_method_that_is_never_called_is_refused(tmp_path: Path) -> None:
    values = {**PPO, "run__scheme": '"pqn"', "algorithm__name": NAMED.format("Unheard")}
    with pytest.raises(TopologyError, match=r"`Unheard.added_loss` would have no effect: PQN never calls it"):
        train(tmp_path, **values)
