"""The learner, compared with torch.optim over many turns, and its turns without an update."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_trainer import Arrays, Page, allocate, copies, same_bytes, wrapper_of
from torch import nn

from hive.config import A2CConfig, AlgorithmConfig, NStepQConfig, Schedule
from hive.errors import NetworkError
from hive.gradients import (
    CAUSE,
    CAUSES,
    COMPRESSIONS,
    ENV_STEPS,
    EPISODES,
    PLAIN,
    ROLLOUTS,
    SAMPLES,
    Codec,
    clear,
    codec_for,
    gradient_layout,
)
from hive.networks import aligned_block
from hive.runtime import CachedViews
from hive.runtime.memory.status import BUSY, RUNTIME
from hive.training import Learner
from hive.training.update.learner import (
    PASSED,
    RETURNS_KEPT,
    Count,
    LearnerStep,
    deviation_of_returns,
    mean_return,
    mean_statistics,
    optimizer_state_layout,
)

ELEMENTS = 160
BUFFER_BYTES = 128  # bytes after the parameters in a block of weights
EPISODES_KEPT = 300


def gradient(samples: int, seed: int = 0, scale: float = 1.0) -> Arrays:
    arrays = allocate(gradient_layout(ELEMENTS, 3, 2, EPISODES_KEPT))
    clear(arrays, version=0)
    arrays["header"][[SAMPLES, ENV_STEPS, ROLLOUTS]] = samples, samples, 1
    arrays["gradient"][:] = scale * np.random.default_rng(seed).standard_normal(ELEMENTS)
    return arrays


def encoded(codec: Codec, values: NDArray[np.float32], samples: int) -> Arrays:
    arrays = allocate(gradient_layout(ELEMENTS, 3, 2, EPISODES_KEPT, codec))
    clear(arrays, version=0)
    arrays["header"][SAMPLES] = samples
    codec.encode(values, arrays, codec.residual(ELEMENTS))
    return arrays


def with_returns(arrays: Arrays, returns: list[float]) -> Arrays:
    arrays["header"][EPISODES] = len(returns)
    arrays["episode_returns"][: len(returns)] = returns
    return arrays


class Network(nn.Module):
    """Parameters of ELEMENTS floats, and buffers of BUFFER_BYTES."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(ELEMENTS))
        self.register_buffer("seen", torch.zeros(BUFFER_BYTES // 4))


class State:
    """A learner and its two pairs of blocks; every turn is checked to leave its inputs alone."""

    def __init__(self, config: A2CConfig, steps: int = 1000, page: Page | None = None, codec: Codec = PLAIN) -> None:
        status = page.status if page else None
        self.learner = Learner(config, wrapper_of(Network()), steps, workers=2, codec=codec, status=status)
        self.weights = [aligned_block(self.learner.network.state.bytes) for _ in range(2)]
        self.optimizer_states = [aligned_block(self.learner.layout.bytes) for _ in range(2)]
        generator = np.random.default_rng(99)
        self.weights[0][:] = generator.integers(0, 256, len(self.weights[0]), np.uint8)
        self.parameters[:] = generator.standard_normal(ELEMENTS)
        self.weights[1][:], self.optimizer_states[1][:] = 0xA5, 0xA5
        self.at = 0

    def turn(self, *gradients: Arrays, factors: list[float] | None = None) -> LearnerStep:
        now, following = self.at, 1 - self.at
        before = [copies(g) for g in gradients], self.weights[now].copy(), self.optimizer_states[now].copy()
        turn = self.learner.turn(
            gradients,
            self.weights[now],
            self.optimizer_states[now],
            self.weights[following],
            self.optimizer_states[following],
            factors,
        )
        assert all(same_bytes(g, copy) for g, copy in zip(gradients, before[0], strict=True))
        assert np.array_equal(self.weights[now], before[1])
        assert np.array_equal(self.optimizer_states[now], before[2])
        self.at = following
        return turn

    @property
    def parameters(self) -> NDArray[np.float32]:
        return self.weights[getattr(self, "at", 0)][: 4 * ELEMENTS].view(np.float32)

    def version(self) -> NDArray[np.uint8]:
        """Weights, buffers and moments of advantages of the present version."""
        layout, block = self.learner.network.state, self.weights[self.at]
        return np.concatenate([layout.weights(block), layout.moments(block).view(np.uint8)])

    @property
    def buffers(self) -> bytes:
        return self.weights[self.at][4 * ELEMENTS : 4 * ELEMENTS + BUFFER_BYTES].tobytes()

    @property
    def optimizer_state(self) -> Arrays:
        return self.learner.layout.views(self.optimizer_states[self.at])

    def count(self, which: Count) -> int:
        return int(self.optimizer_state["counters"][which])


def at_constant_rate(**keys: Any) -> A2CConfig:
    return A2CConfig(**{"learning_rate_schedule": "constant", **keys})


OPTIMIZERS: dict[str, tuple[A2CConfig, Any]] = {
    "adam": (
        at_constant_rate(learning_rate=0.01, adam_beta1=0.8, adam_beta2=0.95),
        lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), eps=1e-5),
    ),
    "adamw": (
        at_constant_rate(optimizer="adamw", learning_rate=0.01, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.01, eps=1e-5, weight_decay=0.1),
    ),
    "radam": (
        at_constant_rate(optimizer="radam", learning_rate=0.01),
        lambda p: torch.optim.RAdam(p, lr=0.01, eps=1e-5),
    ),
    "rmsprop": (
        at_constant_rate(optimizer="rmsprop", learning_rate=0.01, rmsprop_decay=0.9, weight_decay=0.1),
        lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-5, weight_decay=0.1),
    ),
    "rmsprop with momentum": (
        at_constant_rate(optimizer="rmsprop", learning_rate=0.01, momentum=0.9),
        lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.99, eps=1e-5, momentum=0.9),
    ),
    "sgd": (at_constant_rate(optimizer="sgd", learning_rate=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    "sgd with momentum": (
        at_constant_rate(optimizer="sgd", learning_rate=0.1, momentum=0.8, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, weight_decay=0.01),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fifty_turns_are_those_of_torch(name: str) -> None:
    """Two gradients of unequal samples a turn; some norms lie within the limit of 0.5, some beyond."""
    config, make = OPTIMIZERS[name]
    state = State(config)
    parameters = torch.nn.Parameter(torch.from_numpy(state.parameters.copy()))
    optimizer = make([parameters])
    for number in range(50):
        one, other = gradient(24, number, 0.02 + 0.1 * (number % 2)), gradient(8, 1000 + number, 0.05)
        mean = 0.75 * one["gradient"].astype(np.float64) + 0.25 * other["gradient"]
        turn = state.turn(one, other)
        assert turn.norm == pytest.approx(np.linalg.norm(mean), rel=1e-5)
        parameters.grad = torch.from_numpy(mean.astype(np.float32))
        torch.nn.utils.clip_grad_norm_([parameters], 0.5)
        optimizer.step()
    expected = parameters.detach().numpy()
    assert np.linalg.norm(state.parameters - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("codec", [codec_for(name) for name in COMPRESSIONS], ids=lambda codec: codec.name)
def test_a_turn_applies_the_documented_mean_of_its_gradients(codec: Codec) -> None:
    """Unequal samples, stale factors and a lost share: weights by samples, in order, in float32."""
    state = State(at_constant_rate(optimizer="sgd", learning_rate=1.0, clip_gradients=0.0), codec=codec)
    before = state.parameters.copy()
    samples, factors = [24, 0, 8], [1.0, 1.0, 0.25]
    values = [np.random.default_rng(seed).standard_normal(ELEMENTS, np.float32) for seed in range(3)]
    given = [encoded(codec, one, n) for one, n in zip(values, samples, strict=True)]
    parts = []
    for one in (given[0], given[2]):
        alone = State(at_constant_rate(), codec=codec)
        alone.turn(one)
        parts.append(alone.learner.gradient.copy())
    state.turn(*given, factors=factors)
    mean = np.float32(0.75) * parts[0] + np.float32(0.0625) * parts[1]
    assert np.array_equal(state.learner.gradient, mean)
    assert np.array_equal(state.parameters, before - mean)


def test_gradients_are_adopted_only_during_the_turn() -> None:
    state = State(at_constant_rate())
    state.turn(gradient(4), gradient(8, 1))
    accumulator = state.learner.accumulator
    with pytest.raises(ValueError, match="no gradients have been adopted"):
        accumulator.mean_reduce()
    assert accumulator.report is not None
    assert (accumulator.report.rounds, accumulator.report.samples) == (2, 12)
    wrong = {**gradient(4), "gradient": np.zeros(ELEMENTS + 1, np.float32)}
    with pytest.raises(ValueError, match="gradient must have 160 elements, got 161"):
        state.turn(gradient(4), wrong)
    with pytest.raises(ValueError, match="no gradients have been adopted"):
        accumulator.mean_reduce()


def test_a_single_plain_gradient_is_adopted_and_read_where_it_lies() -> None:
    state, given = State(at_constant_rate()), gradient(4)
    given["norm"][0] = np.linalg.norm(given["gradient"])
    state.turn(given)
    assert np.shares_memory(state.learner.gradient, given["gradient"])
    assert [state.count(which) for which in PASSED] == [1, 1, 1, 0]


def test_a_single_gradient_is_clipped_by_the_norm_that_its_worker_has_computed() -> None:
    config = at_constant_rate(optimizer="sgd", learning_rate=1.0, clip_gradients=1.0)
    changes, norms = [], []
    for named, others in ((False, 0), (True, 0), (True, 1)):
        state, given = State(config), gradient(8)
        given["gradient"][:] *= 4.0 / np.linalg.norm(given["gradient"])
        if named:
            given["norm"][0] = 8.0  # twice the true one, so that it shows which is used
        before = state.parameters.copy()
        norms.append(state.turn(given, *[gradient(0)] * others).norm)
        changes.append(float(np.linalg.norm(state.parameters - before)))
    assert norms == pytest.approx([4.0, 8.0, 4.0])
    assert changes == pytest.approx([1.0, 0.5, 1.0], rel=1e-5)


def test_clipping_is_off_at_zero() -> None:
    state = State(at_constant_rate(optimizer="sgd", learning_rate=1.0, clip_gradients=0.0))
    before, given = state.parameters.copy(), gradient(4, scale=100.0)
    state.turn(given)
    np.testing.assert_allclose(state.parameters, before - given["gradient"], rtol=1e-6)


def test_a_tiny_gradient_is_clipped_by_the_factor_of_torch() -> None:
    """The 1e-6 that torch adds to the norm is a third of a percent of this one."""
    state = State(at_constant_rate(optimizer="sgd", learning_rate=1e4, clip_gradients=1e-4))
    before, given = state.parameters.copy(), gradient(4, scale=2.5e-5)
    state.turn(given)
    parameter = torch.nn.Parameter(torch.zeros(ELEMENTS))
    parameter.grad = torch.from_numpy(given["gradient"].copy())
    torch.nn.utils.clip_grad_norm_([parameter], 1e-4)
    np.testing.assert_allclose(before - state.parameters, 1e4 * parameter.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("linear", (0.3, 0.1, 0.0, 0.0)),
        ("cosine", [0.25 * (1 + math.cos(math.pi * done)) for done in (0.4, 0.8, 1.0, 1.0)]),
        ("constant", (0.5, 0.5, 0.5, 0.5)),
        (((60, 0.3), (140, 0.2), (150, 0.0)), (0.3, 0.275, 0.225, 0.0)),
    ],
)
def test_a_schedule_falls_with_the_environment_steps(schedule: Schedule, rates: Sequence[float]) -> None:
    """After 40, 80, 120 and 160 of 100 steps: the steps of the applied gradient count already."""
    config = at_constant_rate(optimizer="sgd", learning_rate=0.5, learning_rate_schedule=schedule, clip_gradients=0.0)
    state = State(config, steps=100)
    given = gradient(40)
    expected = state.parameters.copy()
    for rate in rates:
        assert state.turn(given).learning_rate == pytest.approx(rate)
        expected -= np.float32(rate) * given["gradient"]
        np.testing.assert_allclose(state.parameters, expected, rtol=1e-5, atol=1e-6)


def test_the_constant_schedule_is_constant() -> None:
    state = State(at_constant_rate(learning_rate=0.25), steps=10)
    assert {state.turn(gradient(40)).learning_rate for _ in range(3)} == {0.25}


def test_buffers_pass_on_untouched() -> None:
    state = State(at_constant_rate())
    before = state.buffers
    for number in range(3):
        state.turn(gradient(4, number))
    assert state.buffers == before


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_gradient_that_is_not_finite_is_not_applied(poison: float, optimizer: str) -> None:
    state = State(at_constant_rate(optimizer=optimizer))
    state.turn(gradient(4, 1))
    weights, moments = state.version(), state.optimizer_state["moments"].copy()
    good, bad, late = gradient(4, 2), gradient(8, 3), gradient(4, 4)
    bad["gradient"][ELEMENTS - 1] = late["gradient"][0] = poison
    turn = state.turn(good, bad, late)
    assert (turn.applied, turn.cause, turn.bad, turn.samples) == (False, "gradient", 1, 16)
    assert not math.isfinite(turn.norm)
    assert np.array_equal(state.version(), weights)
    assert np.array_equal(state.optimizer_state["moments"], moments)
    assert (state.count(Count.updates), state.count(Count.skipped)) == (1, 1)


@pytest.mark.parametrize("cause", ["observation", "reward", "weight", "loss", "gradient"])
def test_a_gradient_marked_as_not_finite_is_not_applied(cause: str) -> None:
    """Its numbers may all be finite: a loss can be infinite where its gradient is zero."""
    state = State(at_constant_rate())
    before, bad = state.version(), gradient(8, 3)
    bad["header"][CAUSE] = CAUSES.index(cause)
    turn = state.turn(gradient(4, 2), bad)
    assert (turn.applied, turn.cause, turn.bad) == (False, cause, 1)
    assert np.array_equal(state.version(), before)
    assert (state.count(Count.updates), state.count(Count.skipped)) == (0, 1)


def test_an_update_that_would_make_weights_infinite_is_not_applied() -> None:
    state = State(at_constant_rate(optimizer="sgd", learning_rate=1e38, momentum=0.9, clip_gradients=0.0))
    before, large = state.version(), gradient(4)
    large["gradient"][3] = 1e38
    turn = state.turn(large)
    assert (turn.applied, turn.cause, turn.bad) == (False, "update", -1)
    assert math.isfinite(turn.norm)
    assert np.array_equal(state.version(), before)
    assert not state.optimizer_state["moments"].any()
    assert (state.count(Count.updates), state.count(Count.skipped)) == (0, 1)


def test_training_continues_after_a_skipped_turn_unchanged() -> None:
    """Also the step number that Adam corrects by."""
    clean, disturbed = State(at_constant_rate()), State(at_constant_rate())
    bad = gradient(4)
    bad["gradient"][:] = np.nan
    for number in range(4):
        clean.turn(gradient(4, number))
        disturbed.turn(gradient(4, number))
        disturbed.turn(bad)
    assert np.array_equal(clean.parameters, disturbed.parameters)
    assert disturbed.count(Count.skipped) == 4
    assert disturbed.count(Count.updates) == clean.count(Count.updates) == 4


def told(*gradients: Arrays) -> list[tuple[int, NDArray[np.float64]]]:
    return [(int(gradient["header"][SAMPLES]), gradient["statistics"]) for gradient in gradients]


def test_zero_samples_pass_everything_on() -> None:
    state = State(at_constant_rate())
    state.turn(gradient(4, 1))
    weights, moments = state.version(), state.optimizer_state["moments"].copy()
    lost = gradient(0)
    lost["gradient"][:] = np.nan
    turn = state.turn(lost, lost)
    assert (turn.applied, turn.samples, turn.norm, turn.cause, turn.bad) == (False, 0, 0.0, "", -1)
    assert not mean_statistics(told(lost, lost)).any()
    assert np.array_equal(state.version(), weights)
    assert np.array_equal(state.optimizer_state["moments"], moments)
    counts = [state.count(which) for which in (Count.updates, Count.skipped, Count.env_steps)]
    assert counts == [1, 0, 4]


def test_a_lost_share_weighs_nothing() -> None:
    whole, part = State(at_constant_rate()), State(at_constant_rate())
    lost = gradient(0)
    lost["gradient"][:] = np.inf
    whole.turn(gradient(4, 1))
    turn = part.turn(lost, gradient(4, 1))
    assert (turn.applied, turn.bad) == (True, -1)
    assert np.array_equal(whole.parameters, part.parameters)


def test_counters() -> None:
    state = State(at_constant_rate())
    state.turn(with_returns(gradient(4), [1.0, 2.0]), with_returns(gradient(6, 1), [3.0]))
    state.turn(with_returns(gradient(0), [4.0]))
    counted = {which.name: state.count(which) for which in Count}
    wanted = {"updates": 1, "env_steps": 10, "episodes": 4, "skipped": 0, "rollouts": 3}
    assert wanted.items() <= counted.items()


def test_what_a_turn_does_not_do_is_not_counted() -> None:
    """Gradients without samples have nothing to adopt, and one that is not finite is reduced and not applied."""
    state = State(at_constant_rate())
    state.turn(gradient(4), gradient(0), gradient(6, 1))
    assert [state.count(which) for which in PASSED] == [2, 1, 1, 0]
    state.turn(gradient(0))
    assert [state.count(which) for which in PASSED] == [2, 1, 1, 0]
    bad = gradient(4)
    bad["gradient"][3] = np.nan
    state.turn(bad)
    assert [state.count(which) for which in PASSED] == [3, 2, 1, 0]


def test_steps_are_counted_once_however_many_gradients_are_made_of_them() -> None:
    """In an algorithm with epochs the first gradient counts the steps of a round, the last one its rollouts."""
    state, first, second = State(at_constant_rate()), gradient(8, 1), gradient(8, 2)
    first["header"][[ENV_STEPS, ROLLOUTS]], second["header"][[ENV_STEPS, ROLLOUTS]] = (20, 0), (0, 1)
    state.turn(first)
    state.turn(second)
    assert [state.count(which) for which in (Count.updates, Count.env_steps, Count.rollouts)] == [2, 20, 1]


def test_a_stale_gradient_counts_by_its_factor() -> None:
    state = State(at_constant_rate(optimizer="sgd", learning_rate=1.0, clip_gradients=0.0))
    before, given = state.parameters.copy(), gradient(4)
    state.turn(given, factors=[0.25])
    np.testing.assert_allclose(state.parameters, before - 0.25 * given["gradient"], rtol=1e-5, atol=1e-6)


def test_the_counts_of_applied_gradients_are_copied() -> None:
    state = State(at_constant_rate())
    state.optimizer_state["applied"][:] = 7, 9
    state.turn(gradient(4))
    assert state.optimizer_state["applied"].tolist() == [7, 9]


def test_statistics_are_means_by_samples() -> None:
    one, other, lost = gradient(30), gradient(10), gradient(0)
    one["statistics"][:], other["statistics"][:], lost["statistics"][:] = (1.0, -2.0), (5.0, 2.0), (9.0, 9.0)
    assert mean_statistics(told(one, other, lost)).tolist() == pytest.approx([2.0, -1.0])


def test_the_last_hundred_returns_are_kept_in_the_order_given() -> None:
    state = State(at_constant_rate())
    numbers = itertools.count()
    seen: list[float] = []
    for sizes in ((3, 0, 40), (70, 1), (0,), (99, 99, 99)):
        parts = [[float(next(numbers)) for _ in range(size)] for size in sizes]
        state.turn(*(with_returns(gradient(4), part) for part in parts))
        seen += [value for part in parts for value in part]
        notify, count = state.optimizer_state["returns"], state.count(Count.episodes)
        assert count == len(seen)
        for position, value in list(enumerate(seen))[-RETURNS_KEPT:]:
            assert notify[position % RETURNS_KEPT] == value
        assert mean_return(notify, count) == pytest.approx(np.mean(seen[-RETURNS_KEPT:]))


def test_the_mean_return_before_the_first_episode() -> None:
    assert math.isnan(mean_return(np.zeros(RETURNS_KEPT, np.float32), 0))
    assert mean_return(np.float32([4.0, 8.0] + [0.0] * 98), 2) == 6.0


def test_returns_of_a_gradient_that_is_not_applied_count() -> None:
    """The episodes are counted; only their gradient is lost."""
    state = State(at_constant_rate())
    bad = with_returns(gradient(4), [7.0])
    bad["gradient"][0] = np.nan
    state.turn(bad)
    assert (state.count(Count.episodes), state.optimizer_state["returns"][0]) == (1, 7.0)


@pytest.mark.parametrize(
    ("optimizer", "momentum", "blocks"),
    [("adam", 0.0, 2), ("rmsprop", 0.0, 1), ("sgd", 0.0, 0), ("sgd", 0.9, 1)],
)
def test_the_optimizer_state_has_the_optimizers_moments(optimizer: str, momentum: float, blocks: int) -> None:
    layout = Learner(
        at_constant_rate(optimizer=optimizer, momentum=momentum), wrapper_of(Network()), 10, workers=3
    ).layout
    assert layout.fields == optimizer_state_layout(blocks, ELEMENTS, 3).fields
    assert {name: (dtype.name, shape) for name, (dtype, shape) in layout.fields.items()} == {
        "counters": ("int64", (16,)),
        "applied": ("int64", (3,)),
        "returns": ("float32", (100,)),
        "moments": ("float32", (blocks, ELEMENTS)),
    }


def test_counter_positions() -> None:
    """They lie in checkpoints: append only."""
    names = ["updates", "rollouts", "env_steps", "episodes", "skipped", "first_ns", "last_ns", "stale"]
    names += ["largest_leaf", "saturated", "first_steps", "adopted", "reduced", "applied", "target_updates", "given"]
    assert [which.name for which in Count] == names
    assert [int(which) for which in Count] == list(range(16))


def test_it_shows_what_it_does() -> None:
    page = Page()
    State(at_constant_rate(), page=page).turn(gradient(4))
    shown = page.read()
    assert shown.spent_ns["update"][0] == BUSY
    assert shown.spent_ns["update"][1] > 0
    assert shown.kind == RUNTIME


def test_cached_blocks_are_released() -> None:
    """A loop that brings new memory for every turn does not fill the machine."""
    learner = Learner(at_constant_rate(), wrapper_of(Network()), 1000, workers=2)
    weights, optimizer_state = np.zeros(4 * ELEMENTS, np.uint8), np.zeros(learner.layout.bytes, np.uint8)
    seen = []
    for _ in range(4 * CachedViews.MOST_BLOCKS):
        following = np.zeros(learner.layout.bytes, np.uint8)
        learner.turn([gradient(8)], weights, optimizer_state, weights.copy(), following)
        optimizer_state = following
        seen.append(weakref.ref(following))
    del following
    gc.collect()
    assert sum(ref() is not None for ref in seen) <= CachedViews.MOST_BLOCKS
    assert learner.views(optimizer_state)["counters"][Count.updates] == 4 * CachedViews.MOST_BLOCKS


def test_views_of_a_block_are_made_once() -> None:
    """A run has a few blocks, and passes the same arrays for them every time."""
    learner = Learner(at_constant_rate(), wrapper_of(Network()), 1000)
    blocks = [np.zeros(learner.layout.bytes, np.uint8) for _ in range(CachedViews.MOST_BLOCKS)]
    first = [learner.views(block) for block in blocks]
    assert all(learner.views(block) is views for block, views in zip(blocks, first, strict=True))


def test_the_deviation_is_that_of_the_returns_in_the_mean() -> None:
    returns = np.zeros(RETURNS_KEPT, np.float32)
    returns[:4] = 1.0, 3.0, 1.0, 3.0
    assert deviation_of_returns(returns, 4) == 1.0
    assert deviation_of_returns(returns, 1) == 0.0
    assert deviation_of_returns(returns, 1000) == pytest.approx(math.sqrt(20 / 100 - 0.08**2))
    assert math.isnan(deviation_of_returns(returns, 0))
    returns[0] = math.inf
    assert math.isnan(deviation_of_returns(returns, 4))


class Agent(nn.Module):
    """A network of two parameter groups, of 16 and 144 elements."""

    parameter_groups = ("actor", "critic")

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Linear(16, 1, bias=False)
        self.critic = nn.Linear(16, 9, bias=False)


ACTOR, CRITIC = slice(0, 16), slice(16, ELEMENTS)


class AgentState(State):
    """A learner of `Agent` with a target network, and its blocks."""

    def __init__(self, config: AlgorithmConfig) -> None:
        self.learner = Learner(config, wrapper_of(Agent(), has_target=True), 1000)
        layout = self.learner.network.state
        self.weights = [aligned_block(layout.bytes) for _ in range(2)]
        self.optimizer_states = [aligned_block(self.learner.layout.bytes) for _ in range(2)]
        self.at = 0
        self.parameters[:] = np.random.default_rng(99).standard_normal(ELEMENTS)
        layout.begin_target(self.weights[0])

    def learn(self, *groups: slice, samples: int = 4) -> tuple[list[int], list[bool]]:
        """Make a turn with a gradient of these groups; return the updates of all groups, and whether each changed."""
        given = allocate(gradient_layout(ELEMENTS, 2, 2, 0))
        clear(given, version=0)
        given["header"][SAMPLES] = samples
        given["gradient"][:] = 0.0
        for group in groups:
            given["gradient"][group] = 1.0
            given["mask"][[ACTOR, CRITIC].index(group)] = 1
        before, old = self.parameters.copy(), [moments.copy() for moments in self.optimizer_state["moments"]]
        self.turn(given)
        new = self.optimizer_state["moments"]
        changed = []
        for group in (ACTOR, CRITIC):
            differ = [not np.array_equal(old[m][group], new[m][group]) for m in range(2)]
            differ.append(not np.array_equal(before[group], self.parameters[group]))
            assert all(differ) or not any(differ)
            changed.append(all(differ))
        return self.optimizer_state["group_updates"].tolist(), changed

    @property
    def target(self) -> NDArray[np.float32]:
        layout = self.learner.network.state
        return layout.target(self.weights[self.at])[: 4 * ELEMENTS].view(np.float32)


def test_a_turn_steps_the_groups_that_have_a_gradient() -> None:
    state = AgentState(NStepQConfig(target_interval=2, target_rate=1.0, clip_gradients=0.0))
    assert state.learn(CRITIC) == ([0, 1], [False, True])
    assert state.learn(CRITIC) == ([0, 2], [False, True])
    assert state.learn(ACTOR) == ([1, 2], [True, False])
    assert state.learn(ACTOR, CRITIC) == ([2, 3], [True, True])
    assert state.learn(ACTOR, samples=0) == ([2, 3], [False, False])
    assert state.optimizer_state["counters"][Count.updates] == 4


def test_a_codec_with_a_residual_is_refused_with_several_groups() -> None:
    learner = AgentState(NStepQConfig()).learner
    learner.use_codec(codec_for("bf16"))
    with pytest.raises(NetworkError, match='"top-k" cannot send the gradients of actor, critic separately'):
        learner.use_codec(codec_for("top-k"))


def test_the_target_follows_the_updates_of_the_first_group() -> None:
    state = AgentState(NStepQConfig(target_interval=2, target_rate=1.0, clip_gradients=0.0))
    first = state.target.copy()
    for groups in ([CRITIC], [ACTOR], [CRITIC], [CRITIC]):
        state.learn(*groups)
        assert np.array_equal(state.target, first)
    state.learn(ACTOR)
    second = state.target.copy()
    assert np.array_equal(second, state.parameters)
    state.learn(CRITIC)
    assert np.array_equal(state.target, second), "an update of the critic alone is not counted again"


def test_each_group_has_its_own_learning_rate_and_norm() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TwoRates(NStepQConfig):
        actor_learning_rate: float = 0.1
        critic_learning_rate: float = 0.0

    config = TwoRates(learning_rate=0.01, optimizer="sgd", clip_gradients=2.0, learning_rate_schedule="constant")
    state = AgentState(config)
    before = state.parameters.copy()
    given = allocate(gradient_layout(ELEMENTS, 2, 2, 0))
    clear(given, version=0)
    given["header"][SAMPLES], given["gradient"][:], given["mask"][:] = 4, 1.0, 1
    state.turn(given)
    steps = before - state.parameters
    np.testing.assert_allclose(steps[ACTOR], 0.1 * 2 / 4, rtol=1e-3)
    np.testing.assert_allclose(steps[CRITIC], 0.01 * 2 / 12, rtol=1e-3)
    state.learner.reconfigure(dataclasses.replace(config, learning_rate_schedule=((0, 0.02), (9, 0.0))))
    assert state.learner.described(0.02)["learning_rates"] == [0.1, 0.02]  # points are of `learning_rate` alone


def test_only_an_update_that_is_not_finite_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other error of the network is a mistake in a program, which must not train nothing for hours."""
    state = State(at_constant_rate())

    def refuse(*arguments: object, **options: object) -> None:
        raise NetworkError("clipped by another method")

    monkeypatch.setattr(state.learner.network, "apply_gradients_to_global_network", refuse)
    with pytest.raises(NetworkError, match="clipped by another method"):
        state.turn(gradient(4, 1))
