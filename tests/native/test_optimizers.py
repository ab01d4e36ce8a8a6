"""The native optimizer steps against torch.optim over 200 random steps, and what only they promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from hive import _native

Block = NDArray[np.float32]
SIZE = 1003
STEPS = 200


def gradients(seed: int = 0) -> Iterator[Block]:
    """Gradients whose size differs by element and drifts, so that moments matter."""
    generator = np.random.default_rng(seed)
    scale = np.exp(generator.uniform(-6, 2, SIZE)).astype(np.float32)
    for _ in range(STEPS):
        yield scale * (0.3 + generator.standard_normal(SIZE, dtype=np.float32))


def initial() -> Block:
    return np.random.default_rng(9).standard_normal(SIZE, dtype=np.float32)


def torch_result(make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer], scale: float) -> Block:
    parameter = torch.nn.Parameter(torch.from_numpy(initial()))
    optimizer = make([parameter])
    for gradient in gradients():
        parameter.grad = torch.from_numpy(gradient * np.float32(scale))
        optimizer.step()
    return parameter.detach().numpy()


def native_result(
    step: Callable[..., bool],
    settings: dict[str, Any],
    *,
    moments: int,
    absent: int = 0,
    counted: bool = False,
) -> Block:
    """The last of STEPS blocks, each step reading the blocks that the one before wrote.

    `moments` of the buffers exist, `absent` ones are None; a `counted` step takes its number.
    """
    before = [initial(), *(np.zeros(SIZE, np.float32) for _ in range(moments))]
    after = [np.full(SIZE, np.nan, np.float32) for _ in before]
    for number, gradient in enumerate(gradients(), start=1):
        buffers = [block for pair in zip(before[1:], after[1:], strict=True) for block in pair]
        count = {"step": number} if counted else {}
        step(before[0], after[0], gradient, *buffers, *[None] * (2 * absent), **settings, **count)
        before, after = after, before
    return before[0]


def assert_same_path(native: Block, reference: Block) -> None:
    """Within 1e-6 of themselves, or of 1 where they are smaller; and the steps moved them."""
    assert np.abs(reference - initial()).max() > 0.05
    np.testing.assert_allclose(native, reference, rtol=1e-6, atol=1e-6)


HUGE, LARGE = np.float32(3.4e38), np.float32(1e30)  # twice the one, and the square of the other, are infinite
OVERFLOWS = {  # step, moments it has and has not, settings, and what stands in which block: weights, gradient, moments
    "sgd's weights": (_native.sgd_step, 0, 1, {"momentum": 0.0}, {0: HUGE, 1: -HUGE}),
    "sgd's momentum": (_native.sgd_step, 1, 0, {"momentum": 1.0}, {1: HUGE, 2: HUGE}),
    "rmsprop's squares": (_native.rmsprop_step, 1, 1, {"decay": 0.5, "epsilon": 1e-8, "momentum": 0.0}, {1: LARGE}),
    "adam's squares": (_native.adam_step, 2, 0, {"beta1": 0.9, "beta2": 0.9, "decoupled": False}, {1: LARGE}),
    "radam's early squares": (
        *(_native.adam_step, 2, 0),
        *({"beta1": 0.9, "beta2": 0.9, "decoupled": False, "rectified": True}, {1: LARGE}),
    ),
    "adamw's weights": (_native.adam_step, 2, 0, {"beta1": 0.5, "beta2": 0.5, "decoupled": True}, {0: -HUGE, 2: HUGE}),
}


@pytest.mark.parametrize("place", [None, 0, SIZE // 2, SIZE - 1])
@pytest.mark.parametrize("name", OVERFLOWS)
def test_a_step_says_whether_all_that_it_wrote_is_finite(name: str, place: int | None) -> None:
    step, moments, absent, settings, poison = OVERFLOWS[name]
    settings |= {"learning_rate": 1.0, "weight_decay": 0.0, "gradient_scale": 1.0}
    if step is _native.adam_step:
        settings = {"step": 1, "epsilon": 1e-8, "rectified": False} | settings
    before = [np.ones(SIZE, np.float32) for _ in range(2 + moments)]
    after = [np.zeros(SIZE, np.float32) for _ in range(1 + moments)]
    if place is not None:
        for block, value in poison.items():
            before[block][place] = value
    pairs = [block for pair in zip(before[2:], after[1:], strict=True) for block in pair]
    finite = step(before[0], after[0], before[1], *pairs, *[None] * (2 * absent), **settings)
    assert finite is (place is None)
    assert all(np.isfinite(block).all() for block in after) is finite


@pytest.mark.parametrize("scale", [1.0, 0.37])
@pytest.mark.parametrize("weight_decay", [0.0, 0.02])
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("beta1", [0.9, 0.0])
def test_adam(decoupled: bool, weight_decay: float, scale: float, beta1: float) -> None:
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    reference = torch_result(
        lambda p: kind(p, lr=1e-3, betas=(beta1, 0.99), eps=1e-6, weight_decay=weight_decay), scale
    )
    settings = {
        "learning_rate": 1e-3, "beta1": beta1, "beta2": 0.99, "epsilon": 1e-6, "weight_decay": weight_decay,
        "decoupled": decoupled, "rectified": False, "gradient_scale": scale,
    }  # fmt: skip
    assert_same_path(native_result(_native.adam_step, settings, moments=2, counted=True), reference)


@pytest.mark.parametrize("scale", [1.0, 0.37])
@pytest.mark.parametrize("weight_decay", [0.0, 0.02])
@pytest.mark.parametrize("beta2", [0.999, 0.9, 0.5])  # rectified from step 6 on, from 8 on, and never
def test_radam(beta2: float, weight_decay: float, scale: float) -> None:
    reference = torch_result(
        lambda p: torch.optim.RAdam(p, lr=2e-3, betas=(0.9, beta2), eps=1e-6, weight_decay=weight_decay), scale
    )
    settings = {
        "learning_rate": 2e-3, "beta1": 0.9, "beta2": beta2, "epsilon": 1e-6, "weight_decay": weight_decay,
        "decoupled": False, "rectified": True, "gradient_scale": scale,
    }  # fmt: skip
    assert_same_path(native_result(_native.adam_step, settings, moments=2, counted=True), reference)


@pytest.mark.parametrize("scale", [1.0, 0.37])
@pytest.mark.parametrize("weight_decay", [0.0, 0.02])
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_rmsprop(momentum: float, weight_decay: float, scale: float) -> None:
    reference = torch_result(
        lambda p: torch.optim.RMSprop(p, lr=1e-3, alpha=0.95, eps=1e-5, momentum=momentum, weight_decay=weight_decay),
        scale,
    )
    settings = {
        "learning_rate": 1e-3, "decay": 0.95, "epsilon": 1e-5, "momentum": momentum,
        "weight_decay": weight_decay, "gradient_scale": scale,
    }  # fmt: skip
    kept = int(momentum != 0)
    assert_same_path(native_result(_native.rmsprop_step, settings, moments=1 + kept, absent=1 - kept), reference)


@pytest.mark.parametrize("scale", [1.0, 0.37])
@pytest.mark.parametrize("weight_decay", [0.0, 0.02])
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_sgd(momentum: float, weight_decay: float, scale: float) -> None:
    reference = torch_result(lambda p: torch.optim.SGD(p, lr=1e-3, momentum=momentum, weight_decay=weight_decay), scale)
    settings = {
        "learning_rate": 1e-3, "momentum": momentum, "weight_decay": weight_decay, "gradient_scale": scale,
    }  # fmt: skip
    kept = int(momentum != 0)
    assert_same_path(native_result(_native.sgd_step, settings, moments=kept, absent=1 - kept), reference)


INPUTS = ("parameters_in", "gradient", "exp_avg_in", "exp_avg_sq_in")
OUTPUTS = ("parameters_out", "exp_avg_out", "exp_avg_sq_out")
ADAM = {
    "learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "weight_decay": 0.01,
    "decoupled": False, "rectified": False, "gradient_scale": 1.0,
}  # fmt: skip


def adam_blocks() -> dict[str, Block]:
    generator = np.random.default_rng(3)
    blocks = {name: generator.uniform(0, 1, SIZE).astype(np.float32) for name in INPUTS}
    return blocks | {name: np.full(SIZE, np.nan, np.float32) for name in OUTPUTS}


def test_out_of_place_leaves_its_inputs_and_equals_in_place() -> None:
    blocks = adam_blocks()
    before = {name: block.copy() for name, block in blocks.items()}
    for name, block in blocks.items():
        block.flags.writeable = name.endswith("_out")
    _native.adam_step(**blocks, step=4, **ADAM)
    for name in INPUTS:
        np.testing.assert_array_equal(blocks[name], before[name])
    in_place = before | {name: before[name.replace("_out", "_in")] for name in OUTPUTS}
    _native.adam_step(**in_place, step=4, **ADAM)
    for name in OUTPUTS:
        assert in_place[name].tobytes() == blocks[name].tobytes()


def test_folded_scale_equals_a_gradient_scaled_before() -> None:
    folded, scaled = adam_blocks(), adam_blocks()
    scaled["gradient"] *= np.float32(0.37)
    _native.adam_step(**folded, step=1, **(ADAM | {"gradient_scale": 0.37}))
    _native.adam_step(**scaled, step=1, **ADAM)
    assert folded["parameters_out"].tobytes() == scaled["parameters_out"].tobytes()


def test_first_step_of_sgd_fills_the_buffer_with_the_gradient() -> None:
    parameters, gradient, zero, out, buffer = np.float32([[1, 2], [3, 4], [0, 0], [9, 9], [9, 9]])
    settings = {"learning_rate": 0.5, "momentum": 0.9, "weight_decay": 0.0, "gradient_scale": 1.0}
    _native.sgd_step(parameters, out, gradient, zero, buffer, **settings)
    assert (out.tolist(), buffer.tolist()) == ([-0.5, 0.0], [3.0, 4.0])


@pytest.mark.parametrize("size", [0, 1, 7, 64, 100_003])
def test_polyak(size: int) -> None:
    generator = np.random.default_rng(size)
    target, source = (generator.standard_normal(size, dtype=np.float32) for _ in range(2))
    out = np.empty_like(target)
    _native.polyak(target, source, out, 0.25)
    np.testing.assert_array_equal(out, np.float32(0.75) * target + np.float32(0.25) * source)
    _native.polyak(target, source, out, 0.0)
    np.testing.assert_array_equal(out, target)
    target[:] = np.nan
    _native.polyak(target, source, target, 1.0)
    assert target.tobytes() == source.tobytes()


@pytest.mark.parametrize(
    ("name", "block", "error", "message"),
    [
        ("gradient", np.ones(SIZE), TypeError, "gradient must be float32, got float64"),
        ("gradient", torch.ones(SIZE), TypeError, "gradient must be a numpy array of float32, got Tensor"),
        ("exp_avg_in", np.ones(SIZE - 1, np.float32), ValueError, "exp_avg_in and parameters_in must"),
        ("exp_avg_sq_out", np.ones((SIZE, 2), np.float32)[:, 0], ValueError, "exp_avg_sq_out must be"),
        ("parameters_out", np.broadcast_to(np.float32(0), SIZE), ValueError, "parameters_out"),
    ],
)
def test_wrong_arrays_are_named(name: str, block: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        _native.adam_step(**(adam_blocks() | {name: block}), step=1, **ADAM)


def test_only_the_input_of_its_own_name_may_be_an_output() -> None:
    blocks = adam_blocks()
    with pytest.raises(ValueError, match="gradient overlaps parameters_out"):
        _native.adam_step(**(blocks | {"gradient": blocks["parameters_out"]}), step=1, **ADAM)
    memory = np.zeros(SIZE + 1, np.float32)
    shifted = {"parameters_in": memory[:-1], "parameters_out": memory[1:]}
    with pytest.raises(ValueError, match="parameters_out overlaps parameters_in"):
        _native.adam_step(**(blocks | shifted), step=1, **ADAM)


@pytest.mark.parametrize(
    ("settings", "message"), [({"step": 0}, "step"), ({"beta1": 1.0}, "beta1"), ({"beta2": -0.1}, "beta2")]
)
def test_settings_without_a_meaning_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"{message} must be"):
        _native.adam_step(**adam_blocks(), **({"step": 1} | ADAM | settings))


def test_momentum_needs_both_buffers() -> None:
    blocks = [np.zeros(4, np.float32) for _ in range(4)]
    settings = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.0, "gradient_scale": 1.0}
    with pytest.raises(ValueError, match="momentum needs momentum_in and momentum_out"):
        _native.sgd_step(*blocks[:3], None, None, **settings)
    with pytest.raises(ValueError, match="given together"):
        _native.sgd_step(*blocks[:3], blocks[3], None, **settings)


@pytest.mark.parametrize("rate", [-0.1, 1.1, np.nan])
def test_polyak_rate_is_a_fraction(rate: float) -> None:
    target, source, out = (np.zeros(4, np.float32) for _ in range(3))
    with pytest.raises(ValueError, match=r"rate must be in \[0, 1\]"):
        _native.polyak(target, source, out, rate)
