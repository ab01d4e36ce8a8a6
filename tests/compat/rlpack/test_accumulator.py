"""GradAccumulator: equal to one batch, pure, bounded; weights, policies, types, both stores and both carriers."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hive.compat.rlpack import GradAccumulator, GradientNotFinite, MapOfTensors, accumulator
from hive.compat.rlpack.rounds import GradientField, Rounds, TorchRounds
from hive.errors import HiveError, NotFinite

STORES = ("rounds", "running")
Store = Literal["rounds", "running"]
by_store = pytest.mark.parametrize("store", STORES)


class Model(nn.Module):
    """Two layers, one of them frozen, and a parameter that no loss reaches."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.first = nn.Linear(5, 17, dtype=dtype)
        self.frozen = nn.Linear(17, 17, dtype=dtype).requires_grad_(False)
        self.last = nn.Linear(17, 3, dtype=dtype)
        self.spare = nn.Parameter(torch.ones(4, dtype=dtype))

    def loss(self, inputs: Tensor) -> Tensor:
        hidden = self.frozen(torch.tanh(self.first(inputs)))
        return (self.last(torch.tanh(hidden)) ** 2).mean()

    def backward(self, inputs: Tensor) -> Iterator[tuple[str, nn.Parameter]]:
        self.zero_grad()
        self.loss(inputs).backward()
        return self.named_parameters()


def grads(*values: float, dtype: torch.dtype = torch.float32) -> MapOfTensors:
    """The gradients of two parameters, `a` [2] and `b` [1, 1]."""
    return MapOfTensors({"a": torch.tensor(values[:2], dtype=dtype), "b": torch.tensor([values[2:]], dtype=dtype)})


def filled(*rounds: MapOfTensors, capacity: int = 4, **options: Any) -> GradAccumulator:
    accumulator = GradAccumulator(None, capacity, **options)
    for one in rounds:
        accumulator.accumulate(one)
    return accumulator


# --- what it is for


@by_store
@pytest.mark.parametrize("carrier", ["native", "torch"])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("even", [True, False])
def test_micro_batches_and_mean_equal_one_batch(
    store: Store, carrier: str, count: int, even: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if carrier == "torch":
        on_torch(monkeypatch)
    model = Model()
    sizes = [8] * count if even else [3 * k + 1 for k in range(count)]
    batch = torch.randn(sum(sizes), 5, generator=torch.Generator().manual_seed(count))
    model.backward(batch)
    expected = {name: p.grad if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    accumulator = GradAccumulator([name for name, _ in model.named_parameters()], count, store=store)
    for part in batch.split(sizes):
        assert not accumulator.step_due()
        accumulator.accumulate(model.backward(part), weight=len(part))
    assert accumulator.step_due()
    mean = accumulator.mean_reduce(into=model)
    assert accumulator.report is not None
    norm = torch.cat([g.flatten() for g in expected.values() if g is not None]).double().norm().item()
    assert accumulator.report.norm == pytest.approx(norm, rel=1e-5)
    for name, parameter in model.named_parameters():
        if expected[name] is None:
            assert parameter.grad is None
            assert not mean[name].any()
        else:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=0.0, atol=1e-6)


def on_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Selects the implementation for GPU tensors, for tensors on the CPU."""

    def rounds_for(_native: object, fields: list[GradientField]) -> Rounds:
        return TorchRounds(fields)

    monkeypatch.setattr(accumulator, "rounds_for", rounds_for)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("count", [1, 3, 8, 9, 19])
def test_both_stores_have_the_same_bits(dtype: torch.dtype, count: int) -> None:
    model = Model(dtype)
    generator = torch.Generator().manual_seed(count)
    stores = [GradAccumulator(None, count, store=store) for store in STORES]
    for k in range(count):
        model.backward(torch.randn(4, 5, generator=generator).to(dtype))
        for one in stores:
            one.accumulate(model.named_parameters(), weight=k / 3)
    if count == 1:
        with pytest.raises(ValueError, match="weights of all rounds are 0"):
            stores[0].mean_reduce()
    else:
        assert stores[0].mean_reduce() == stores[1].mean_reduce()
        assert stores[0].report == stores[1].report
    assert stores[0].sum_reduce() == stores[1].sum_reduce()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bit_gradients_are_summed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    rounds = [torch.randn(5000, generator=generator).to(dtype) for _ in range(9)]
    accumulator = filled(*(MapOfTensors({"w": one}) for one in rounds), capacity=9)
    total = torch.zeros(5000)
    for one in rounds:
        total += one.float()
    assert torch.equal(accumulator.mean_reduce()["w"], (total / 9).to(dtype))
    assert torch.equal(accumulator.sum_reduce()["w"], total.to(dtype))


def test_mixed_types_keep_their_own_and_share_one_norm() -> None:
    maps = [
        MapOfTensors(
            {
                "half": torch.full((3,), 1.0 + k, dtype=torch.float16),
                "single": torch.full((2, 2), 2.0),
                "double": torch.full((1,), 3.0, dtype=torch.float64),
                "brain": torch.full((5,), 4.0, dtype=torch.bfloat16),
                "single2": torch.full((), 5.0),
                "empty": torch.zeros(0, 3),
            }
        )
        for k in range(2)
    ]
    one = filled(*maps)
    mean = one.mean_reduce()
    assert {name: tensor.dtype for name, tensor in mean.items()} == {n: t.dtype for n, t in maps[0].items()}
    assert mean["half"].tolist() == [1.5] * 3
    assert one.report is not None
    assert one.report.norm == pytest.approx((3 * 2.25 + 4 * 4 + 9 + 5 * 16 + 25) ** 0.5)


@by_store
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
def test_torch_reduces_as_the_native_part_does(
    store: Store, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = [grads(1.0, -2.0, 3.0 * k, dtype=dtype) for k in range(3)]
    expected = filled(*maps, store=store).mean_reduce()
    on_torch(monkeypatch)
    one = filled(*maps, store=store, capacity=3)
    assert one.mean_reduce() == expected
    assert one.report is not None
    assert one.report.norm == pytest.approx((1 + 4 + 9) ** 0.5)
    one.clear()
    with pytest.raises(GradientNotFinite, match="`b`"):
        one.accumulate(grads(0.0, 0.0, float("nan"), dtype=dtype))


def test_strange_gradients_are_taken_too() -> None:
    embedding = nn.Embedding(6, 3, sparse=True)
    turned = nn.Parameter(torch.randn(4, 3))
    named = [("embedding", embedding.weight), ("turned", turned)]
    (embedding(torch.tensor([1, 1, 4])).sum() + (turned.t() @ torch.ones(4, 2)).sum()).backward()
    turned.grad = torch.arange(12.0).view(3, 4).t()
    mean = filled_from(named).mean_reduce()
    assert mean["embedding"].sum(dim=1).tolist() == [0.0, 6.0, 0.0, 0.0, 3.0, 0.0]
    assert torch.equal(mean["turned"], turned.grad)


def filled_from(named: Any) -> GradAccumulator:
    one = GradAccumulator(None, 1)
    one.accumulate(named)
    return one


# --- weights, partial reductions, reports


@by_store
def test_rounds_are_weighted(store: Store) -> None:
    one = GradAccumulator(None, 4, store=store)
    one.accumulate(grads(1.0, 2.0, 3.0), weight=3)
    one.accumulate(grads(5.0, 6.0, 7.0), weight=1)
    one.accumulate(grads(1e30, 1.0, 1.0), weight=0)
    assert one.mean_reduce() == grads(2.0, 3.0, 4.0)
    assert one.sum_reduce() == grads(8.0, 12.0, 16.0)
    report = one.report
    assert report is not None
    assert (report.rounds, report.bootstrap_rounds, report.weight, report.partial) == (3, 4, 4.0, True)
    assert (report.finite, report.parameter) == (True, "")


@by_store
def test_a_partial_reduction_divides_by_the_held_weights_or_is_refused(store: Store) -> None:
    assert filled(grads(2.0, 4.0, 6.0), store=store).mean_reduce() == grads(2.0, 4.0, 6.0)
    with pytest.raises(ValueError, match="1 of 4 rounds are held"):
        filled(grads(2.0, 4.0, 6.0), store=store, strict=True).mean_reduce()
    with pytest.raises(ValueError, match="no gradients have been accumulated"):
        GradAccumulator(["a"], 4, store=store).sum_reduce()


@by_store
@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_weights_are_finite_and_not_negative(store: Store, weight: float) -> None:
    one = GradAccumulator(None, 2, store=store)
    with pytest.raises(ValueError, match="weight must be a finite number of at least 0"):
        one.accumulate(grads(1.0, 2.0, 3.0), weight=weight)


@by_store
def test_a_full_accumulator_refuses_and_is_empty_after_clear(store: Store) -> None:
    one = filled(grads(1.0, 1.0, 1.0), grads(3.0, 3.0, 3.0), capacity=2, store=store)
    assert one.full
    with pytest.raises(OverflowError, match="all 2 rounds are held"):
        one.accumulate(grads(9.0, 9.0, 9.0))
    assert one.mean_reduce() == grads(2.0, 2.0, 2.0)
    one.clear()
    assert (len(one), one.full, one.step_due()) == (0, False, False)
    one.accumulate(grads(5.0, 5.0, 5.0))
    assert one.mean_reduce() == grads(5.0, 5.0, 5.0)


# --- what is not finite


@by_store
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_one_bad_element_names_its_parameter(store: Store, bad: float, dtype: torch.dtype) -> None:
    one = filled(grads(1.0, 2.0, 3.0, dtype=dtype), store=store)
    with pytest.raises(GradientNotFinite, match="the gradient of `b` is not finite") as error:
        one.accumulate(grads(1.0, 2.0, bad, dtype=dtype))
    assert error.value.parameter == "b"
    assert isinstance(error.value, NotFinite)
    assert isinstance(error.value, RuntimeError)
    assert len(one) == 1
    assert one.mean_reduce() == grads(1.0, 2.0, 3.0, dtype=dtype)


@by_store
def test_a_bad_round_can_be_skipped_and_the_step_still_comes(store: Store) -> None:
    one = filled(grads(1.0, float("nan"), 1.0), capacity=2, store=store, non_finite="skip")
    assert (len(one), one.skipped, one.step_due()) == (0, 1, False)
    one.accumulate(grads(1.0, 2.0, 3.0))
    assert (len(one), one.full, one.step_due()) == (1, False, True)
    assert one.mean_reduce() == grads(1.0, 2.0, 3.0)
    one.clear()
    assert one.skipped == 0


@by_store
def test_bad_elements_can_be_zeroed(store: Store) -> None:
    given = grads(float("nan"), 2.0, float("inf"))
    one = filled(given, grads(2.0, 2.0, 2.0), store=store, non_finite="zero")
    assert one.mean_reduce() == grads(1.0, 2.0, 1.0)
    assert one.zeroed == 2
    assert given["a"][0].isnan()


@by_store
def test_finite_rounds_that_overflow_are_named(store: Store) -> None:
    one = filled(grads(1.0, 2.0, 3e38), grads(1.0, 2.0, 3e38), store=store)
    with pytest.raises(GradientNotFinite, match="the reduced gradient of `b`"):
        one.sum_reduce()
    assert one.report is not None
    assert (one.report.finite, one.report.parameter) == (False, "b")


def test_large_float64_gradients_are_finite_though_their_norm_is_not() -> None:
    one = filled(grads(1e200, 1.0, 1.0, dtype=torch.float64))
    one.mean_reduce()
    assert one.report is not None
    assert (one.report.norm, one.report.finite) == (float("inf"), True)


# --- frozen and unused parameters


@by_store
def test_parameters_without_gradient_count_as_zeros_and_are_counted(store: Store) -> None:
    model = Model()
    one = GradAccumulator(None, 2, store=store)
    one.accumulate(model.backward(torch.ones(2, 5)))
    expected = {"frozen.weight": 1, "frozen.bias": 1, "spare": 1}
    assert one.unused_counts == expected
    assert not one.mean_reduce()["spare"].any()
    with pytest.raises(RuntimeError, match="no gradient of `spare`: was backward"):
        GradAccumulator(None, 2, store=store, unused="raise").accumulate(model.named_parameters())


@by_store
def test_a_round_without_any_gradient_is_an_error(store: Store) -> None:
    with pytest.raises(RuntimeError, match=r"was backward\(\) called on the loss"):
        GradAccumulator(None, 2, store=store).accumulate(Model().named_parameters())


def test_the_grad_of_a_frozen_parameter_does_not_change() -> None:
    model = Model()
    model.backward(torch.ones(2, 5))
    model.frozen.bias.grad = stale = torch.ones(17)
    one = filled_from(model.named_parameters())
    mean = one.mean_reduce(into=model)
    assert not mean["frozen.bias"].any()
    assert model.frozen.bias.grad is stale


# --- a list


def test_indices_and_slices_are_those_of_a_list() -> None:
    maps = [grads(float(k), 0.0, 0.0) for k in range(4)]
    one = filled(*maps)
    assert [m["a"][0].item() for m in one] == [0.0, 1.0, 2.0, 3.0]
    assert one[-1] == maps[3]
    assert one[1:3] == maps[1:3]
    assert one[::-2] == maps[::-2]
    for index in (4, -5):
        with pytest.raises(IndexError):
            one[index]
        with pytest.raises(IndexError):
            one[index] = maps[0]
        with pytest.raises(IndexError):
            del one[index]
    del one[1:3]
    assert list(one) == [maps[0], maps[3]]
    one[0:1] = [maps[2], maps[1]]
    assert list(one) == [maps[2], maps[1], maps[3]]
    one[-1] = one[0]
    assert list(one) == [maps[2], maps[1], maps[2]]
    with pytest.raises(OverflowError, match="3 rounds do not fit"):
        one[0:1] = maps[:3]
    with pytest.raises(ValueError, match="cannot assign 2 rounds to a slice of 1"):
        one[:1:2] = maps[:2]
    assert list(one) == [maps[2], maps[1], maps[2]]


def test_a_round_that_is_replaced_keeps_its_weight() -> None:
    one = GradAccumulator(None, 3)
    one.accumulate(grads(1.0, 1.0, 1.0), weight=3)
    one.accumulate(grads(2.0, 2.0, 2.0), weight=5)
    one[0] = grads(7.0, 7.0, 7.0)
    one[1:] = [grads(1.0, 1.0, 1.0), grads(0.0, 0.0, 0.0)]
    assert one.weights == (3.0, 5.0, 1.0)
    with pytest.raises(GradientNotFinite):
        one[0] = grads(float("nan"), 1.0, 1.0)
    assert one[0] == grads(7.0, 7.0, 7.0)


@by_store
def test_cleared_rounds_are_in_no_later_sum(store: Store) -> None:
    one = filled(grads(7.0, 7.0, 7.0), store=store)
    one.clear()
    one.accumulate(grads(1.0, 1.0, 1.0), weight=0)
    assert one.sum_reduce() == grads(0.0, 0.0, 0.0)


def test_a_running_accumulator_keeps_no_rounds() -> None:
    one = filled(grads(1.0, 1.0, 1.0), store="running")
    attempts: list[Callable[[], object]] = [
        lambda: one[0],
        lambda: one.__setitem__(0, grads(1.0, 1.0, 1.0)),
        lambda: one.__delitem__(0),
        lambda: list(one),
        lambda: one.weights,
    ]
    for attempt in attempts:
        with pytest.raises(TypeError, match="a running accumulator stores no rounds"):
            attempt()


# --- purity


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["get", "mean", "sum", "slice", "iterate", "set", "delete", "add"]), st.integers(-3, 2)),
    max_size=25,
)


@given(OPERATIONS)
@settings(max_examples=60, deadline=None)
def test_no_order_of_operations_changes_the_held_rounds(operations: list[tuple[str, int]]) -> None:
    one, model = GradAccumulator(None, 3), list[list[float]]()
    results: list[tuple[MapOfTensors, MapOfTensors]] = []
    for number, (operation, index) in enumerate(operations):
        inside = -len(model) <= index < len(model)
        values = [float(number), number / 3, -1.0]
        if operation == "add" and len(model) < 3:
            one.accumulate(grads(*values))
            model.append(values)
        elif operation in ("mean", "sum") and model:
            reduced = one.mean_reduce() if operation == "mean" else one.sum_reduce()
            results.append((reduced, reduced.clone()))
        elif operation == "set" and inside:
            one[index] = grads(*values)
            model[index] = values
        elif operation == "delete" and inside:
            del one[index]
            del model[index]
        elif operation == "get" and inside:
            assert one[index] == grads(*model[index])
        assert one[:] == [grads(*values) for values in model]
    assert all(reduced == before for reduced, before in results)


def test_blocks_with_views_of_the_caller_are_not_reused() -> None:
    one = filled(grads(1.0, 1.0, 1.0), capacity=1)
    kept = one[0]
    one.clear()
    one.accumulate(grads(2.0, 2.0, 2.0))
    assert kept == grads(1.0, 1.0, 1.0)
    first = one.mean_reduce()
    one[0]["a"][0] = 9.0  # a round is live
    assert one.mean_reduce()["a"][0] == 9.0
    assert first["a"][0] == 2.0
    assert one.map_of_tensors == one[0]


def test_memory_of_rounds_is_used_again() -> None:
    one = filled(grads(1.0, 1.0, 1.0), capacity=2)
    one.clear()
    blocks = list(one._free)
    one.accumulate(grads(2.0, 2.0, 2.0))
    assert one._held[0].block is blocks[0]


@by_store
def test_out_is_written_in_place(store: Store) -> None:
    one = filled(grads(1.0, 2.0, 3.0), grads(3.0, 4.0, 5.0), store=store)
    out = one.mean_reduce()
    address = out["a"].data_ptr()
    assert one.sum_reduce(out=out) is out
    assert out == grads(4.0, 6.0, 8.0)
    assert out["a"].data_ptr() == address
    foreign = grads(0.0, 0.0, 0.0)
    assert one.mean_reduce(out=foreign) is foreign
    assert foreign == grads(2.0, 3.0, 4.0)
    with pytest.raises(ValueError, match="out has no tensor `b`"):
        one.mean_reduce(out=MapOfTensors({"a": torch.zeros(2)}))


def test_out_is_never_a_round() -> None:
    one = filled(grads(1.0, 2.0, 3.0), grads(3.0, 4.0, 5.0))
    for out in (one[0], one[0].copy()):
        with pytest.raises(ValueError, match="of this accumulator, which a reduction must not overwrite"):
            one.mean_reduce(out=out)
    assert one[0] == grads(1.0, 2.0, 3.0)


# --- copies


def by_pickle(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


def by_torch(one: Any) -> Any:
    file = io.BytesIO()
    torch.save(one, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


every_way = pytest.mark.parametrize("copied", [by_pickle, by_torch, copy.deepcopy, copy.copy])


@every_way
@by_store
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_a_copy_has_the_rounds_of_the_original(copied: Callable[[Any], Any], store: Store, dtype: torch.dtype) -> None:
    one = GradAccumulator(None, 3, store=store, non_finite="skip")
    one.accumulate(grads(1.0, 2.0, 3.0, dtype=dtype), weight=3)
    one.accumulate(grads(float("nan"), 2.0, 3.0, dtype=dtype))
    one.mean_reduce()
    other = copied(one)
    assert (len(other), other.skipped, other.report, other.unused_counts) == (1, 1, one.report, {})
    for made in (one, other):
        made.accumulate(grads(5.0, 6.0, 7.0, dtype=dtype))
    assert other.mean_reduce() == one.mean_reduce() == grads(2.0, 3.0, 4.0, dtype=dtype)
    one.clear()
    one.accumulate(grads(9.0, 9.0, 9.0, dtype=dtype))
    assert other.mean_reduce() == grads(2.0, 3.0, 4.0, dtype=dtype)


@every_way
def test_an_accumulator_that_knows_nothing_yet_can_be_copied(copied: Callable[[Any], Any]) -> None:
    other = copied(GradAccumulator(None, 2))
    other.accumulate(grads(1.0, 2.0, 3.0))
    assert other.mean_reduce() == grads(1.0, 2.0, 3.0)


@every_way
def test_results_and_rounds_can_be_copied(copied: Callable[[Any], Any]) -> None:
    one = filled(grads(1.0, 2.0, 3.0))
    mean, kept = copied(one.mean_reduce()), copied(one[0])
    assert mean == kept == grads(1.0, 2.0, 3.0)
    assert list(mean) == ["a", "b"]
    assert one.mean_reduce(out=mean) is mean


def test_a_pickled_map_does_not_bring_the_block_with_every_tensor() -> None:
    shapes = {f"w{k}": torch.ones(1000) for k in range(50)}
    mean = filled(MapOfTensors(shapes)).mean_reduce()
    assert len(pickle.dumps(mean)) < 2 * 50 * 4000


# --- arguments


def test_a_mapping_is_as_good_as_pairs_and_order_does_not_matter() -> None:
    model = Model()
    model.backward(torch.ones(3, 5))
    names = [name for name, _ in model.named_parameters()]
    expected = filled_from(model.named_parameters()).mean_reduce()
    assert filled_from(dict(model.named_parameters())).mean_reduce() == expected
    turned = GradAccumulator(names[::-1], 1)
    turned.accumulate([*model.named_parameters(), ("other", nn.Parameter(torch.ones(1)))])
    assert list(turned.mean_reduce()) == names[::-1]
    assert turned.mean_reduce() == expected


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((["a"], 0), ValueError, "at least 1, got 0"),
        ((["a"], -3), ValueError, "at least 1, got -3"),
        ((["a"], 2.0), TypeError, "must be an integer, got float"),
        ((["a"], True), TypeError, "must be an integer, got bool"),
        ((["a", "b", "a"], 2), ValueError, "names `a` twice"),
        (([], 2), ValueError, "parameter_keys is empty"),
        (("ab", 2), TypeError, "a sequence of names"),
    ],
)
def test_wrong_constructor_arguments_are_named(
    arguments: tuple[Any, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        GradAccumulator(*arguments)


@pytest.mark.parametrize("option", ["store", "non_finite", "unused"])
def test_wrong_options_are_named(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} must be one of"):
        GradAccumulator(None, 1, **{option: "maybe"})  # type: ignore[arg-type]


@by_store
def test_gradients_unlike_the_first_are_refused_and_change_nothing(store: Store) -> None:
    one = filled(grads(1.0, 2.0, 3.0), store=store)
    with pytest.raises(
        ValueError, match=r"the gradient of `b` is float32 \[2\] on cpu, in earlier rounds it was float32 \[1, 1\]"
    ):
        one.accumulate(MapOfTensors({"a": torch.zeros(2), "b": torch.zeros(2)}))
    with pytest.raises(ValueError, match="`a` is float64"):
        one.accumulate(grads(1.0, 2.0, 3.0, dtype=torch.float64))
    with pytest.raises(ValueError, match="on meta"):
        one.accumulate(MapOfTensors({"a": torch.zeros(2, device="meta"), "b": torch.zeros(1, 1)}))
    with pytest.raises(ValueError, match="lacks the parameter `b`"):
        one.accumulate({"a": torch.zeros(2)})
    assert one.mean_reduce() == grads(1.0, 2.0, 3.0)


def bad_first_calls() -> list[Callable[[GradAccumulator], None]]:
    return [
        lambda one: one.accumulate(MapOfTensors({"c": torch.full((3,), float("nan"))})),
        lambda one: one.accumulate(Model().named_parameters()),  # backward() was not called
        lambda one: one.accumulate({"c": torch.zeros(2)}),
        lambda one: one.accumulate(MapOfTensors({"c": torch.zeros(2, dtype=torch.int64)})),
        lambda one: one.__setitem__(slice(0, 0), [grads(1.0, 2.0, 3.0), grads(float("nan"), 2.0, 3.0)]),
    ]


@by_store
@pytest.mark.parametrize("attempt", bad_first_calls())
@pytest.mark.parametrize("keys", [None, ["a", "b"]])
def test_a_refused_first_call_fixes_nothing(
    store: Store, attempt: Callable[[GradAccumulator], None], keys: list[str] | None
) -> None:
    one = GradAccumulator(keys, 2, store=store)
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        attempt(one)
    for _ in range(2):
        one.accumulate(grads(1.0, 2.0, 3.0, dtype=torch.float64))
    assert one.mean_reduce() == grads(1.0, 2.0, 3.0, dtype=torch.float64)


@by_store
def test_a_bad_round_can_be_taken_and_reported(store: Store) -> None:
    one = filled(grads(1.0, 2.0, 3.0), grads(1.0, 2.0, float("inf")), store=store, non_finite="report")
    mean = one.mean_reduce()
    assert mean["a"].tolist() == [1.0, 2.0]
    assert one.report is not None
    assert (one.report.finite, one.report.parameter) == (False, "b")
    assert one.report.bad_round == (1 if store == "rounds" else -1)
    assert len(one) == 2


def test_tensors_without_gradients_are_refused() -> None:
    with pytest.raises(TypeError, match="`a` is not a parameter; pass gradients themselves as a MapOfTensors"):
        GradAccumulator(None, 1).accumulate({"a": torch.zeros(2)})
    with pytest.raises(TypeError, match="`a` must be a parameter, not int"):
        GradAccumulator(None, 1).accumulate({"a": 1})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="`a` is int64, gradients must be floats"):
        GradAccumulator(None, 1).accumulate(MapOfTensors({"a": torch.zeros(2, dtype=torch.int64)}))


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("keys", [None, ["weight"]])
def test_a_module_and_its_parameters_are_refused_with_what_to_pass(size: int, keys: list[str] | None) -> None:
    layer = nn.Linear(size, 2, bias=False)
    layer(torch.ones(size)).sum().backward()
    for wrong in (layer, layer.parameters(), layer.weight, [layer.weight]):
        with pytest.raises(TypeError, match=r"must be pairs .*model\.named_parameters\(\)"):
            GradAccumulator(keys, 1).accumulate(wrong)  # type: ignore[arg-type]


def test_the_error_is_a_hive_error_and_a_runtime_error() -> None:
    error = GradientNotFinite("the gradient of `w` is not finite", "w", hint="check the loss")
    assert isinstance(error, HiveError)
    assert isinstance(error, RuntimeError)
    assert (error.parameter, error.permanent) == ("w", True)
    assert error.render() == "error: the gradient of `w` is not finite\n\nhint: check the loss"
