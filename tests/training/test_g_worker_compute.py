"""The gradient worker: its slot holds the gradient of the algorithm's loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_trainer import (
    Arrays,
    Page,
    allocate,
    collector_of,
    config_of,
    copies,
    same_bytes,
    weights_of,
    worker_of,
)

from hive.algorithms.losses.actor_critic import VALUE_FIT
from hive.errors import NetworkError, TopologyError
from hive.experience import SEQUENCE, Rollout
from hive.gradients import CAUSE, EPISODES, ERROR, SAMPLES, VERSION, GradAccumulator, codec_for, gradient_layout
from hive.learning import Part
from hive.networks import aligned_block
from hive.runtime.memory.status import BUSY, RUNTIME
from hive.training import Blueprint, GWorker, initial_network


def blueprint_of(**values: Any) -> Blueprint:
    return Blueprint(config_of("small_environments:Drift", **values))


class Losses:
    """A GradientReceiver that keeps losses."""

    def __init__(self) -> None:
        self.totals: list[torch.Tensor] = []
        self.statistics: Sequence[float] = ()

    def watch(self, outputs: Any) -> Any:
        return outputs

    def reinforce(self, parts: Sequence[Part], samples: int | None, statistics: Sequence[float]) -> None:
        self.totals += [part.loss for part in parts]
        self.statistics = statistics


def rollouts_of(blueprint: Blueprint, count: int = 2, sequence: int = 0) -> list[Arrays]:
    """The rollouts of one round."""
    made = []
    for source in range(count):
        collector = collector_of(blueprint, source)
        arrays = allocate(blueprint.rollout_layout)
        collector.collect(arrays, sequence=sequence, version=0)
        made.append(arrays)
    return made


def computed(worker: GWorker, blueprint: Blueprint, share: Sequence[Arrays], sequence: int = 0) -> Arrays:
    out = allocate(blueprint.gradient_layout(max(len(share), 1)))
    worker.compute(share, out, sequence=sequence, version=5)
    return out


def distance(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Relative to the size of the second."""
    return float(np.linalg.norm(one.astype(np.float64) - other) / np.linalg.norm(other))


@pytest.mark.parametrize("actions", ["discrete", "multi-discrete", "box"])
@pytest.mark.parametrize("backend", ["torch", "native"])
def test_the_slot_holds_the_gradient_of_the_loss(actions: str, backend: str) -> None:
    options = f'{{actions="{actions}", truncates=6}}'
    blueprint = blueprint_of(env__options=options, network__backend=f'"{backend}"')
    share = rollouts_of(blueprint)
    out = computed(worker_of(blueprint), blueprint, share)
    reference = blueprint_of(env__options=options, network__backend='"torch"')
    network, algorithm, seen = reference.network(), reference.algorithm(), Losses()
    algorithm.connect(network, seen)
    list(algorithm.gradients([Rollout(arrays) for arrays in share]))
    (loss,), statistics = seen.totals, seen.statistics
    expected = torch.autograd.grad(loss, list(network.parameters()))
    for array, tensor in zip(blueprint.flat.gradient_arrays(out["gradient"]), expected, strict=True):
        exact = 0.0 if backend == "torch" else 1e-6 * float(tensor.norm())
        np.testing.assert_allclose(array, tensor.numpy(), rtol=0, atol=exact)
    assert out["mask"].tolist() == [1] * len(expected)
    assert out["statistics"].tolist() == pytest.approx(list(statistics))
    assert out["header"][[VERSION, SAMPLES]].tolist() == [5, 2 * 2 * 8]


def test_the_padding_of_the_slot_is_zero() -> None:
    """The learner's norm and optimizer pass over it."""
    blueprint = blueprint_of()
    out = computed(worker_of(blueprint), blueprint, rollouts_of(blueprint))
    filled = np.zeros(blueprint.flat.parameter_elements, bool)
    for field in blueprint.flat.parameters:
        filled[field.offset // 4 : (field.offset + field.nbytes) // 4] = True
    assert not out["gradient"][~filled].any()
    assert not filled.all()


def test_a_slot_used_again_holds_the_new_gradient_only() -> None:
    blueprint = blueprint_of()
    worker, share = worker_of(blueprint), rollouts_of(blueprint, 2)
    fresh = computed(worker, blueprint, share[1:])
    used = allocate(blueprint.gradient_layout(1))
    worker.compute(share[:1], used, sequence=0, version=5)
    assert distance(used["gradient"], fresh["gradient"]) > 0.1
    worker.compute(share[1:], used, sequence=0, version=5)
    assert np.array_equal(used["gradient"], fresh["gradient"])
    assert used["header"].tolist() == fresh["header"].tolist()


def test_weights_are_those_that_are_bound() -> None:
    blueprint = blueprint_of()
    worker, share = worker_of(blueprint), rollouts_of(blueprint)
    at_first = computed(worker, blueprint, share)
    moved = weights_of(blueprint)
    moved[: blueprint.flat.parameter_bytes].view(np.float32)[:] *= 2.0
    worker.bind(moved)
    assert distance(computed(worker, blueprint, share)["gradient"], at_first["gradient"]) > 0.1
    worker.bind(weights_of(blueprint))
    assert np.array_equal(computed(worker, blueprint, share)["gradient"], at_first["gradient"])


@pytest.mark.parametrize("normalize", ["true", "false"])
def test_rollouts_in_one_share_are_one_batch(normalize: str) -> None:
    """Their number and order in a share change no more than the order of summation."""
    blueprint = blueprint_of(algorithm__normalize_advantages=normalize)
    worker, share = worker_of(blueprint), rollouts_of(blueprint, 3)
    forward = computed(worker, blueprint, share)
    backward = computed(worker, blueprint, share[::-1])
    assert distance(backward["gradient"], forward["gradient"]) < 1e-5


def test_several_workers_are_one() -> None:
    """Shares of one, two and three rollouts, one of them cut short, reduced as the learner does."""
    blueprint = blueprint_of(env__options="{truncates=5}")
    rollouts = rollouts_of(blueprint, 6)
    rollouts[0]["header"][1] = 3
    rollouts[2]["valid"][4:, 1] = 0
    whole = computed(worker_of(blueprint), blueprint, rollouts)
    shares = [rollouts[:1], rollouts[1:3], rollouts[3:]]
    parts = [computed(worker_of(blueprint, i), blueprint, share) for i, share in enumerate(shares)]
    accumulator = GradAccumulator.for_slots(len(whole["gradient"]), len(parts))
    for part in parts:
        accumulator.adopt(part, int(part["header"][SAMPLES]))
    reduced = accumulator.mean_reduce().array
    assert accumulator.report is not None
    samples = accumulator.report.samples
    assert samples == whole["header"][SAMPLES] == 6 * 16 - 10 - 4
    assert accumulator.report.finite
    assert distance(reduced, whole["gradient"]) < 1e-6
    statistics = sum(part["statistics"] * part["header"][SAMPLES] for part in parts) / samples
    means = len(statistics) - len(VALUE_FIT)  # how well values fit is judged in each share, and is no mean over samples
    np.testing.assert_allclose(statistics[:means], whole["statistics"][:means], rtol=1e-5, atol=1e-7)


def test_episodes_are_passed_on_in_the_order_of_the_share() -> None:
    blueprint = blueprint_of(env__options="{truncates=3}")
    share = rollouts_of(blueprint, 3)
    out = computed(worker_of(blueprint), blueprint, share)
    parts = [Rollout(arrays).episodes() for arrays in share]
    count = int(out["header"][EPISODES])
    assert count == sum(len(returns) for returns, _ in parts) >= 3 * 2 * 2
    assert np.array_equal(out["episode_returns"][:count], np.concatenate([returns for returns, _ in parts]))
    assert np.array_equal(out["episode_lengths"][:count], np.concatenate([lengths for _, lengths in parts]))


def test_a_share_without_a_valid_step_is_zero_samples_with_its_episodes() -> None:
    blueprint = blueprint_of(env__options="{truncates=3}")
    share = rollouts_of(blueprint, 1)
    share[0]["valid"][:] = 0
    out = computed(worker_of(blueprint), blueprint, share)
    assert out["header"][[VERSION, SAMPLES]].tolist() == [5, 0]
    assert out["header"][EPISODES] > 0
    assert not out["mask"].any()
    assert not out["statistics"].any()


def test_an_empty_share_owes_nothing() -> None:
    blueprint = blueprint_of()
    out = computed(worker_of(blueprint), blueprint, [])
    assert out["header"][[SAMPLES, EPISODES]].tolist() == [0, 0]


@pytest.mark.parametrize("mode", ["interval", "max_lag"])
def test_a_rollout_of_an_older_policy_is_corrected(mode: str) -> None:
    """Whatever makes it older: two rounds are collected with each version, or each with the version before."""
    changes = (
        {"collection__broadcast_interval": 2} if mode == "interval" else {"collection__communication": "pipelined"}
    )
    blueprint = blueprint_of(**changes)
    assert blueprint.behaviour_log_probs
    worker, (rollout,) = worker_of(blueprint), rollouts_of(blueprint, 1)
    rollout["header"][SEQUENCE] = 1
    rollout["log_probs"][:] = np.log(0.9)  # of another policy: the weights of the actions are 0.5 / 0.9
    older, current = computed(worker, blueprint, [rollout], 1), computed(worker, blueprint, [rollout], 0)
    mean = blueprint.statistics.index("importance_mean")
    assert older["statistics"][mean] == pytest.approx(0.5 / 0.9, rel=0.1)
    assert current["statistics"][mean] == 1.0
    assert distance(older["gradient"], current["gradient"]) > 0.01


def test_rollouts_and_weights_are_only_read() -> None:
    blueprint = blueprint_of(env__options="{truncates=3}")
    share, weights = rollouts_of(blueprint), weights_of(blueprint)
    before = [copies(arrays) for arrays in share], weights.copy()
    worker = worker_of(blueprint)
    worker.bind(weights)
    computed(worker, blueprint, share)
    assert all(same_bytes(arrays, copy) for arrays, copy in zip(share, before[0], strict=True))
    assert np.array_equal(weights, before[1])


def test_buffers_that_a_forward_pass_writes_stay_private(monkeypatch: pytest.MonkeyPatch) -> None:
    """BatchNorm writes its statistics while it trains; the block is the learner's state. (A run refuses such a one.)"""
    monkeypatch.setattr(initial_network, "buffers_that_training_changes", lambda *_: [])
    monkeypatch.setattr(initial_network, "varies", lambda *_: "")
    blueprint = blueprint_of(network__module='"small_environments:Running"')
    assert len(blueprint.flat.buffers) == 4
    weights = weights_of(blueprint)
    before, worker = weights.copy(), worker_of(blueprint)
    worker.bind(weights)
    first = computed(worker, blueprint, rollouts_of(blueprint))
    assert np.array_equal(weights, before)
    worker.bind(weights)
    assert np.array_equal(computed(worker, blueprint, rollouts_of(blueprint))["gradient"], first["gradient"])


def test_randomness_in_the_network_belongs_to_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout draws the same for the same gradient of the same worker, whatever was drawn before. (A2C refuses it.)"""
    monkeypatch.setattr(initial_network, "varies", lambda *_: "")
    blueprint = blueprint_of(network__module='"small_environments:Dropping"')
    share = rollouts_of(blueprint)

    def made(source: int, sequence: int) -> bytes:
        return computed(worker_of(blueprint, source), blueprint, share, sequence)["gradient"].tobytes()

    first = made(0, 3)
    torch.rand(17)
    assert made(0, 3) == first
    assert len({first, made(1, 3), made(0, 4)}) == 3


def test_rewards_are_clipped_at_the_key_and_counted() -> None:
    found = []
    for clip in (1e-3, 10.0, 1e6):
        blueprint = blueprint_of(network__normalize_rewards="true", network__reward_clip=clip)
        share = rollouts_of(blueprint)
        for arrays in share:
            arrays["rewards"][:] = 1.0
            arrays["discounted"][:] = np.linspace(0.0, 4.0, arrays["discounted"].size).reshape(
                arrays["discounted"].shape
            )
        out = computed(worker_of(blueprint), blueprint, share)
        rewards, clipped = out["clipped"][:2].tolist()
        assert rewards == sum(int(arrays["valid"].sum()) for arrays in share)
        found.append((clipped == rewards, out["gradient"].copy()))
    assert [is_all for is_all, _ in found] == [True, False, False]
    assert not np.array_equal(found[0][1], found[1][1])
    assert np.array_equal(found[1][1], found[2][1]), "nothing is clipped"


def test_a_parameter_without_a_gradient_is_masked() -> None:
    blueprint = blueprint_of()
    worker = worker_of(blueprint)
    next(worker.actor.parameters()).requires_grad_(False)
    out = computed(worker, blueprint, rollouts_of(blueprint))
    assert out["mask"][0] == 0
    assert out["mask"][1:].all()
    assert not blueprint.flat.gradient_arrays(out["gradient"])[0].any()


def test_it_shows_what_it_does() -> None:
    blueprint, page = blueprint_of(), Page()
    worker = worker_of(blueprint, status=page.status)
    computed(worker, blueprint, rollouts_of(blueprint))
    shown = page.read()
    assert shown.spent_ns["gradient"][0] == BUSY
    assert shown.spent_ns["gradient"][1] > 0
    assert shown.kind == RUNTIME


def test_a_block_of_another_network_is_refused() -> None:
    with pytest.raises(NetworkError, match="is too small for"):
        worker_of(blueprint_of()).bind(aligned_block(64))


# --- compressed


def compressing(blueprint: Blueprint, name: str = "top-k") -> GWorker:
    return worker_of(blueprint, codec=codec_for(name))


def slot_for(worker: GWorker, blueprint: Blueprint, share: Sequence[Arrays], sequence: int = 0) -> Arrays:
    sizes = blueprint.flat.parameter_elements, len(blueprint.flat.parameters), len(blueprint.statistics)
    out = allocate(gradient_layout(*sizes, 64, worker.codec))
    worker.compute(share, out, sequence=sequence, version=5)
    return out


@pytest.mark.parametrize("name", ["bf16", "fp16", "top-k"])
def test_a_compressed_slot_decodes_to_the_gradient_within_its_error(name: str) -> None:
    blueprint = blueprint_of()
    share, worker = rollouts_of(blueprint), compressing(blueprint, name)
    whole = computed(worker_of(blueprint), blueprint, share)
    out = slot_for(worker, blueprint, share)
    accumulator = GradAccumulator.for_slots(len(whole["gradient"]), 1, worker.codec)
    accumulator.adopt(out, int(out["header"][SAMPLES]))
    received = accumulator.mean_reduce().array
    assert out["header"][SAMPLES] == whole["header"][SAMPLES]
    assert np.array_equal(out["mask"], whole["mask"])
    assert distance(received, whole["gradient"]) == pytest.approx(out["coding"][ERROR], rel=1e-4)
    kept = worker.slot.residual if name == "top-k" else 0.0
    assert distance(received + kept, whole["gradient"]) <= (0.0 if name == "top-k" else 4e-3)


def test_the_residual_is_sent_later_unless_it_is_cleared() -> None:
    blueprint = blueprint_of()
    worker, share = compressing(blueprint), rollouts_of(blueprint)
    first = slot_for(worker, blueprint, share)
    assert worker.slot.residual.any()
    second = slot_for(worker, blueprint, share, 1)
    assert second["values"].tobytes() != first["values"].tobytes()
    worker.clear_residual()
    assert not worker.slot.residual.any()
    again = slot_for(worker, blueprint, share)
    assert again["values"].tobytes() == first["values"].tobytes()


def test_a_gradient_that_is_not_finite_is_reported_and_leaves_the_residual() -> None:
    blueprint = blueprint_of()
    worker, share = compressing(blueprint), rollouts_of(blueprint)
    slot_for(worker, blueprint, share)
    waiting = worker.slot.residual.copy()
    told: list[str] = []
    worker.slot.on_not_finite = lambda finding, header: told.append(finding.cause)
    share[0]["rewards"][0, 0] = np.nan
    out = slot_for(worker, blueprint, share, 1)
    assert told == ["reward"]
    assert out["header"][CAUSE] != 0
    assert not out["values"].any()
    assert np.array_equal(worker.slot.residual, waiting)


def test_an_algorithm_with_a_replay_memory_is_refused() -> None:
    config = config_of("CartPole-v1", run__scheme='"dqn"', collection__rollout=4, collection__envs=1)
    with pytest.raises(TopologyError, match="dqn learns from a replay memory, and a GWorker from rollouts"):
        GWorker.of_run(Blueprint(config), 0)


def test_arguments_of_a_script_name_its_own_class() -> None:
    with pytest.raises(TypeError, match=r"one that collects is hive\.compat\.pytorchrl\.GWorker"):
        GWorker(0, lambda *_: None)  # type: ignore[arg-type]
