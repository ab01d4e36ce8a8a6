"""Priorities: trees against sums and searches in Python integers, and the distribution of what they draw."""

from __future__ import annotations

import bisect
import contextlib
import decimal
import gc
import itertools
import mmap
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hive.experience import PriorityTree, Purpose, importance_weights, priority_leaves, replay_words, stream

MOST = 2**32 - 1
WORD = 2**64
UNIT = 2**20  # the leaf of a priority of 1

sizes = st.sampled_from([1, 7, 8, 9, 15, 16, 17, 64, 65, 127, 128, 129, 1023, 1025])
leaf_values = st.one_of(st.just(0), st.integers(0, 9), st.integers(0, MOST), st.just(MOST))
word_values = st.one_of(st.just(0), st.just(WORD - 1), st.integers(0, WORD - 1))


def tree_of(leaves: Sequence[int]) -> PriorityTree:
    return PriorityTree(np.array(leaves, np.uint32))


def rebuilt(tree: PriorityTree) -> PriorityTree:
    return PriorityTree(tree.leaves.copy())


def drawn_by_hand(leaves: Sequence[int], words: Sequence[int]) -> list[int]:
    """Return the position of each draw, by a search in the sums of all leaves before each one."""
    ends, n = list(itertools.accumulate(leaves)), len(words)
    points = [(k * ends[-1] + (word * ends[-1] >> 64)) // n for k, word in enumerate(words)]
    return [bisect.bisect_right(ends, point) for point in points]


@st.composite
def changes(draw: st.DrawFn) -> tuple[int, list[tuple[Any, ...]]]:
    """Return a size, and writes (positions, values) and fills (first, count, value) that fit it."""
    size = draw(sizes)
    pairs = st.lists(st.tuples(st.integers(0, size - 1), leaf_values), max_size=40)
    writes = pairs.map(
        lambda pairs: (np.array([p for p, _ in pairs], np.int64), np.array([v for _, v in pairs], np.uint32))
    )
    edges = st.tuples(st.integers(0, size), st.integers(0, size))
    fills = st.tuples(edges, leaf_values).map(lambda f: (min(f[0]), max(f[0]) - min(f[0]), f[1]))
    return size, draw(st.lists(st.one_of(writes, fills), max_size=8))


def change(tree: PriorityTree, one: tuple[Any, ...]) -> None:
    if len(one) == 2:
        tree.write(*one)
    else:
        tree.fill(*one)


# --- sums


@given(changes())
def test_a_rebuilt_tree_has_the_bytes_of_a_grown_one(given_changes: tuple[int, list[tuple[Any, ...]]]) -> None:
    size, several = given_changes
    tree, plain = PriorityTree(np.zeros(size, np.uint32)), [0] * size
    for one in several:
        change(tree, one)
        if len(one) == 2:
            for position, value in zip(*one, strict=True):
                plain[position] = int(value)
        else:
            first, count, value = one
            plain[first : first + count] = [value] * count
    assert len(tree) == size
    assert tree.leaves.tolist() == plain
    assert tree.total == sum(plain)
    assert tree.sums.tobytes() == rebuilt(tree).sums.tobytes()
    before = tree.sums.tobytes()
    tree.rebuild()
    assert tree.sums.tobytes() == before


@settings(max_examples=40)
@given(changes(), st.data())
def test_repeating_a_change_that_a_kill_cut_short_completes_it(
    given_changes: tuple[int, list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    size, several = given_changes
    undisturbed = PriorityTree(np.zeros(size, np.uint32))
    killed = PriorityTree(np.zeros(size, np.uint32))
    for one in several:
        change(undisturbed, one)
    for one in several:  # some of the leaves had been changed; the sums went with the process
        done = data.draw(st.integers(0, len(one[0]) if len(one) == 2 else one[1]))
        if len(one) == 2:
            for position, value in itertools.islice(zip(*one, strict=True), done):
                killed.leaves[position] = value
        else:
            killed.leaves[one[0] : one[0] + done] = one[2]
        killed = PriorityTree(killed.leaves)
        change(killed, one)
        change(killed, one)
    assert killed.leaves.tobytes() == undisturbed.leaves.tobytes()
    assert killed.sums.tobytes() == undisturbed.sums.tobytes()


def test_a_tree_changes_only_its_part_of_a_larger_array() -> None:
    whole = np.full(100, 7, np.uint32)
    tree = PriorityTree(whole[3:70])  # 67 leaves that are not aligned to 64 bytes
    assert tree.total == 67 * 7
    tree.fill(0, 67, 5)
    tree.write(np.array([0, 66]), np.array([9, 8], np.uint32))
    assert tree.total == 65 * 5 + 9 + 8
    assert whole.tolist() == [7] * 3 + [9] + [5] * 65 + [8] + [7] * 30
    positions, leaves = tree.draw(replay_words(1, 0, 0, 50))
    assert leaves.tolist() == whole[3:][positions].tolist()


def test_sums_are_16_leaves_then_8_sums_each() -> None:
    sums = tree_of(range(200)).sums
    rows = [sum(range(16 * row, min(200, 16 * row + 16))) for row in range(13)]
    assert sums.tolist() == [*rows, 0, 0, 0, sum(rows[:8]), sum(rows[8:]), *[0] * 6, sum(rows), *[0] * 7]
    assert not sums.flags.writeable


# --- draws


@given(st.lists(leaf_values, min_size=1, max_size=300).filter(any), st.lists(word_values, min_size=1, max_size=60))
def test_draws_are_those_of_exact_arithmetic(given_leaves: list[int], words: list[int]) -> None:
    tree = tree_of(given_leaves)
    positions, leaves = tree.draw(np.array(words, np.uint64))
    assert positions.tolist() == drawn_by_hand(given_leaves, words)
    assert leaves.tolist() == [given_leaves[position] for position in positions]
    assert leaves.all()


@settings(max_examples=30)
@given(st.integers(1, 3000), st.data())
def test_deep_trees_draw_by_exact_arithmetic(size: int, data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.tuples(st.integers(0, size - 1), leaf_values.filter(bool)), min_size=1, max_size=20))
    given_leaves = [0] * size
    for position, leaf in chosen:
        given_leaves[position] = leaf
    words = data.draw(st.lists(word_values, min_size=33, max_size=70))
    positions, leaves = tree_of(given_leaves).draw(np.array(words, np.uint64))
    assert positions.tolist() == drawn_by_hand(given_leaves, words)
    assert leaves.all()


@given(st.lists(leaf_values, min_size=1, max_size=100).filter(any), st.lists(word_values, min_size=1, max_size=40))
def test_each_draw_lies_in_its_stratum(given_leaves: list[int], words: list[int]) -> None:
    """Draw k falls on a leaf that has a point, or a part of one, in the k-th of n equal parts of the total."""
    n, ends = len(words), [0, *itertools.accumulate(given_leaves)]
    positions, _ = tree_of(given_leaves).draw(np.array(words, np.uint64))
    for k, position in enumerate(positions.tolist()):
        assert n * ends[position] < (k + 1) * ends[-1]
        assert n * ends[position + 1] > k * ends[-1]
    assert positions.tolist() == sorted(positions)


@pytest.mark.parametrize(
    ("leaves", "n"), [([3, 0, 4], 3), ([3, 0, 4], 20), ([1, 1], 3), ([5, 9, 1, 0, 2], 4), ([6], 7)]
)
def test_probabilities_are_in_proportion_for_totals_that_n_does_not_divide(leaves: list[int], n: int) -> None:
    """Over a grid of all words, each leaf is drawn in proportion, up to one word at each edge of a part or leaf."""
    tree, counts, grid = tree_of(leaves), np.zeros(len(leaves)), 4096
    for step in range(grid):
        words = np.full(n, step * (WORD // grid) + WORD // grid // 2, np.uint64)
        counts += np.bincount(tree.draw(words)[0], minlength=len(leaves))
    expected = grid * n * np.array(leaves) / sum(leaves)
    assert np.abs(counts - expected).max() <= 1.0


def test_single_draws_have_the_frequencies_of_their_leaves() -> None:
    leaves = np.arange(64, dtype=np.uint32) * 1000
    tree, draws = PriorityTree(leaves), 20_000
    words = replay_words(5, 0, 0, draws)
    counts = np.zeros(64)
    for word in words.reshape(-1, 1):
        counts[tree.draw(word)[0]] += 1
    assert counts[0] == 0
    expected = draws * leaves[1:] / tree.total
    chi_squared = float((np.square(counts[1:] - expected) / expected).sum())
    assert 32.0 < chi_squared < 103.0  # 62 degrees of freedom: exceeded, or undercut, by 1 of 1000 seeds


def test_a_batch_spreads_its_draws_over_the_leaves() -> None:
    """Independent draws would be off by more than 2 for nearly every batch; n leaf / total draws are expected."""
    leaves = np.array([50, 0, 300, 1, 149, 500], np.uint32)
    tree = PriorityTree(leaves)
    for number in range(50):
        positions, _ = tree.draw(replay_words(3, 1, number, 512))
        counts = np.bincount(positions, minlength=6)
        assert np.abs(counts - 512 * leaves / 1000).max() < 2


def test_totals_beyond_the_integers_of_a_double_are_exact() -> None:
    size = 2**21 + 5
    tree = PriorityTree(np.full(size, MOST, np.uint32))
    assert tree.total == size * MOST > 2**53
    words = np.array([0, WORD - 1, 1, WORD - 1, WORD // 2, WORD - 1, 0], np.uint64)
    points = [(k * tree.total + (int(word) * tree.total >> 64)) // 7 for k, word in enumerate(words)]
    assert tree.draw(words)[0].tolist() == [point // MOST for point in points]
    tree.fill(0, size - 1, 0)
    tree.write(np.array([7]), np.array([1], np.uint32))
    assert tree.total == 1 + MOST
    assert tree.draw(np.array([0, WORD - 1], np.uint64))[0].tolist() == [7, size - 1]
    assert tree.draw(np.array([0], np.uint64))[0].tolist() == [7]
    assert tree.draw(np.array([WORD // (MOST + 1)], np.uint64))[0].tolist() == [size - 1]


@pytest.mark.parametrize("size", [1, 65])
def test_a_total_of_0_draws_nothing(size: int) -> None:
    tree = PriorityTree(np.zeros(size, np.uint32))
    out = np.full(3, 77), np.full(3, 77, np.uint32)
    positions, leaves = tree.draw(np.zeros(3, np.uint64), out)
    assert (len(positions), len(leaves)) == (0, 0)
    assert [array.tolist() for array in out] == [[77] * 3] * 2


def test_no_words_draw_nothing() -> None:
    positions, leaves = tree_of([1, 2]).draw(np.zeros(0, np.uint64))
    assert (positions.dtype, len(positions), leaves.dtype, len(leaves)) == (np.int64, 0, np.uint32, 0)


def test_draws_are_written_to_given_arrays() -> None:
    out = np.zeros(2, np.int64), np.zeros(2, np.uint32)
    drawn = tree_of([0, 3]).draw(np.zeros(2, np.uint64), out)
    assert drawn[0] is out[0]
    assert drawn[1] is out[1]
    assert [array.tolist() for array in out] == [[1, 1], [3, 3]]


@settings(max_examples=50)
@given(sizes, st.data())
def test_leaves_that_other_code_changed_are_refused_or_drawn_within_the_array(size: int, data: st.DataObject) -> None:
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    tree = PriorityTree(generator.integers(0, 9, size).astype(np.uint32))
    tree.leaves[:] = generator.integers(0, MOST, size)
    tree.write(np.arange(size), generator.integers(0, 9, size).astype(np.uint32))  # sums wrap around
    words = generator.integers(0, WORD, 40, np.uint64)
    with contextlib.suppress(RuntimeError):
        positions, _ = tree.draw(words)
        assert all(0 <= position < size for position in positions)
    tree.rebuild()
    if tree.total:
        assert tree.draw(words)[0].tolist() == drawn_by_hand(tree.leaves.tolist(), words.tolist())


def test_a_drawn_leaf_that_became_0_is_noticed() -> None:
    tree = tree_of([5, 5])
    tree.leaves[:] = 0
    with pytest.raises(RuntimeError, match="call rebuild"):
        tree.draw(np.zeros(1, np.uint64))


# --- leaves and weights


def leaf_by_hand(priority: float, alpha: float) -> decimal.Decimal:
    """Return priority^alpha * 2^20 with 40 digits."""
    with decimal.localcontext(decimal.Context(prec=40)):
        return (decimal.Decimal(priority).ln() * decimal.Decimal(alpha)).exp() * UNIT


floats = st.lists(st.floats(2.0**-126, 2.0**127, width=32), min_size=1, max_size=20)


@given(floats, st.sampled_from([0.1, 0.5, 0.6, 0.7, 1]))
def test_leaves_are_rounded_powers(values: list[float], alpha: float) -> None:
    priorities = np.array(values, np.float32)
    leaves, saturated = priority_leaves(priorities, alpha)
    exact = [leaf_by_hand(value, alpha) for value in priorities.tolist()]
    assert saturated == sum(value >= MOST + decimal.Decimal("0.5") for value in exact)
    for leaf, value in zip(leaves.tolist(), exact, strict=True):
        limited = min(max(value, decimal.Decimal(1)), decimal.Decimal(MOST))
        assert abs(leaf - limited) < decimal.Decimal("0.5001")


def test_leaves_have_the_same_bytes_on_every_machine() -> None:
    """The hash is that of native/tests/test_priority_tree.cpp, whose program has no SIMD instructions."""
    priorities = (np.arange(200_000, dtype=np.uint32) * np.uint32(10007)).view(np.float32)
    found = 0
    powers = np.full(200_000, 1000003, np.uint64)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)[::-1]  # modulo 2^64
    for alpha in (0.0, 0.4, 0.6, 1.0):
        leaves, saturated = priority_leaves(priorities, alpha)
        part = int((leaves * powers).sum(dtype=np.uint64))
        found = ((found * 1000003 + saturated) * pow(1000003, 200_000, WORD) + part) % WORD
    assert found == 18165434562237067309


@pytest.mark.parametrize(
    ("priority", "alpha", "leaf", "saturated"),
    [
        (1.0, 0.6, UNIT, 0),
        (4.0, 0.5, 2 * UNIT, 0),
        (0.25, 1.0, UNIT // 4, 0),
        (0.0, 0.6, 1, 0),
        (-0.0, 0.6, 1, 0),
        (1e-45, 0.01, 1, 0),  # below 2^-126
        (2.0**-126, 0.01, 437827, 0),
        (0.0, 0.0, UNIT, 0),
        (1e30, 0.0, UNIT, 0),
        (2.0**-22, 1.0, 1, 0),
        (4095.0, 1.0, 4095 * UNIT, 0),
        (4096.0, 1.0, MOST, 1),
        (3.4e38, 1.0, MOST, 1),
    ],
)
def test_leaves_stay_within_their_limits(priority: float, alpha: float, leaf: int, saturated: int) -> None:
    leaves, found = priority_leaves(np.full(20, priority, np.float32), alpha)
    assert leaves.tolist() == [leaf] * 20
    assert found == saturated * 20


@given(st.lists(st.integers(1, MOST), min_size=1, max_size=30), st.floats(0, 1))
def test_weights_are_powers_of_the_share_of_the_least_leaf(given_leaves: list[int], beta: float) -> None:
    leaves = np.array(given_leaves, np.uint32)
    weights = importance_weights(leaves, beta)
    expected = [(min(given_leaves) / leaf) ** beta for leaf in given_leaves]
    np.testing.assert_allclose(weights, expected, rtol=1.2e-7)
    assert weights.dtype == np.float32
    assert weights.max() == 1.0


def test_weights_relate_to_a_given_least_leaf() -> None:
    leaves = np.array([4 * UNIT, 16 * UNIT], np.uint32)
    assert importance_weights(leaves, 0.5).tolist() == [1.0, 0.5]
    assert importance_weights(leaves, 0.5, UNIT).tolist() == [0.5, 0.25]
    assert importance_weights(leaves, 0.0, UNIT).tolist() == [1.0, 1.0]
    assert importance_weights(leaves, 1.0).tolist() == [1.0, 0.25]
    assert importance_weights(leaves[:0], 0.4).tolist() == []


def test_words_are_those_of_the_replay_stream() -> None:
    words = replay_words(3, 1, 17, 5)
    assert words.tolist() == stream(3, Purpose.replay, 1, 17).bit_generator.random_raw(5).tolist()
    assert words.dtype == np.uint64
    others = [replay_words(*key, 5) for key in ((4, 1, 17), (3, 2, 17), (3, 1, 18))]
    assert len({tuple(one) for one in (words, *others)}) == 4
    used = np.random.Generator(np.random.Philox(1))
    assert replay_words(3, 1, 17, 5, used).tolist() == words.tolist()


# --- bad input


def zeros(count: int, dtype: Any = np.uint32) -> NDArray[Any]:
    return np.zeros(count, dtype)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("leaves", "error", "text"),
    [
        (zeros(3, np.int64), TypeError, "leaves must be uint32, got int64"),
        ([1, 2], TypeError, "leaves must be a numpy array of uint32, got list"),
        (zeros(4).reshape(2, 2), ValueError, "leaves must be 1-dimensional, got shape (2, 2)"),
        (zeros(6)[::2], ValueError, "leaves must be contiguous and aligned"),
        (frozen(zeros(3)), ValueError, "leaves is read-only"),
        (zeros(0), ValueError, "leaves must have 1 to 2^32 elements, got 0"),
    ],
)
def test_bad_leaves_are_refused(leaves: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        PriorityTree(leaves)
    assert str(caught.value) == text


def test_more_leaves_than_the_total_has_room_for_are_refused() -> None:
    no_reserve = 0x4000  # MAP_NORESERVE, which the module lacks
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    try:
        memory = mmap.mmap(-1, 4 * (2**32 + 1), flags=flags)  # never touched
    except OSError as error:
        pytest.skip(f"16 GiB of addresses are not to be had: {error}")
    with pytest.raises(ValueError, match=r"leaves must have 1 to 2\^32 elements, got 4294967297"):
        PriorityTree(np.frombuffer(memory, np.uint32))


@pytest.mark.parametrize(
    ("positions", "values", "error", "text"),
    [
        (np.array([1, 10]), zeros(2), ValueError, "positions[1] is 10, expected 0 to 9"),
        (np.array([-1]), zeros(1), ValueError, "positions[0] is -1, expected 0 to 9"),
        (np.array([1], np.int32), zeros(1), TypeError, "positions must be int64, got int32"),
        (np.array([1]), zeros(1, np.int64), TypeError, "values must be uint32, got int64"),
        (np.array([1]), zeros(2), ValueError, "values and positions must have the same shape, got (2,) and (1,)"),
        (np.array([1, 2, 3])[::2], zeros(2), ValueError, "positions must be contiguous and aligned"),
    ],
)
def test_bad_writes_change_nothing(positions: Any, values: Any, error: type[Exception], text: str) -> None:
    tree = tree_of(range(10))
    before = tree.sums.tobytes()
    with pytest.raises(error) as caught:
        tree.write(positions, values)
    assert str(caught.value) == text
    assert tree.leaves.tolist() == list(range(10))
    assert tree.sums.tobytes() == before


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((-1, 1, 0), "first must be 0 to 10, got -1"),
        ((11, 0, 0), "first must be 0 to 10, got 11"),
        ((4, 7, 0), "count must be 0 to 6, got 7"),
        ((4, -1, 0), "count must be 0 to 6, got -1"),
        ((4, 2**62, 0), f"count must be 0 to 6, got {2**62}"),
        ((0, 1, -1), "value must be 0 to 4294967295, got -1"),
        ((0, 1, 2**32), "value must be 0 to 4294967295, got 4294967296"),
    ],
)
def test_bad_fills_change_nothing(arguments: tuple[int, int, int], text: str) -> None:
    tree = tree_of(range(10))
    with pytest.raises(ValueError, match="must be") as caught:
        tree.fill(*arguments)
    assert str(caught.value) == text
    assert tree.leaves.tolist() == list(range(10))


@pytest.mark.parametrize(
    ("words", "out", "error", "text"),
    [
        (zeros(2, np.int64), None, TypeError, "words must be uint64, got int64"),
        (zeros(2, np.uint64), (zeros(2, np.int64), zeros(2, np.int64)), TypeError, "leaves must be uint32, got int64"),
        (zeros(2, np.uint64), (zeros(2, np.int32), zeros(2)), TypeError, "positions must be int64, got int32"),
        (
            *(zeros(2, np.uint64), (zeros(3, np.int64), zeros(2)), ValueError),
            "positions and words must have the same shape, got (3,) and (2,)",
        ),
        (zeros(2, np.uint64), (frozen(zeros(2, np.int64)), zeros(2)), ValueError, "positions is read-only"),
    ],
)
def test_bad_arrays_of_a_draw_are_refused(words: Any, out: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        tree_of([1, 2, 3]).draw(words, out)
    assert str(caught.value) == text


def test_arrays_must_not_overlap_the_leaves() -> None:
    leaves = np.arange(8, dtype=np.uint32)
    tree = PriorityTree(leaves)
    with pytest.raises(ValueError, match="values overlaps the tree's leaves"):
        tree.write(np.arange(2), leaves[:2])
    with pytest.raises(ValueError, match="positions overlaps the tree's leaves"):
        tree.write(leaves[2:4].view(np.int64), zeros(1))
    with pytest.raises(ValueError, match="leaves overlaps the tree's leaves"):
        tree.draw(zeros(2, np.uint64), (zeros(2, np.int64), leaves[6:]))
    with pytest.raises(ValueError, match="positions overlaps the tree's leaves"):
        tree.draw(zeros(1, np.uint64), (leaves[6:].view(np.int64), zeros(1)))
    words = zeros(2, np.uint64)
    with pytest.raises(ValueError, match="positions overlaps words"):
        tree.draw(words, (words.view(np.int64), zeros(2)))
    assert leaves.tolist() == list(range(8))


@pytest.mark.parametrize(
    ("bad", "shown"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf"), (-1.5, "-1.5"), (-1e-45, "-1.40")]
)
def test_bad_priorities_are_refused_by_index(bad: float, shown: str) -> None:
    for index in (0, 5, 18):
        priorities = np.ones(19, np.float32)
        priorities[index] = bad
        with pytest.raises(ValueError, match="priorities") as caught:
            priority_leaves(priorities, 0.6)
        assert str(caught.value).startswith(f"priorities[{index}] is {shown}")
        assert str(caught.value).endswith(", expected a finite number of at least 0")


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan])
def test_bad_exponents_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\]"):
        priority_leaves(np.ones(2, np.float32), bad)
    with pytest.raises(ValueError, match=r"beta must be in \[0, 1\]"):
        importance_weights(np.ones(2, np.uint32), bad)


def test_bad_arguments_of_conversions_are_refused() -> None:
    with pytest.raises(TypeError, match="priorities must be float32, got float64"):
        priority_leaves(np.ones(2), 0.6)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="leaves must be uint32, got int64"):
        importance_weights(np.ones(2, np.int64), 0.4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"leaves\[1\] is 4, expected at least 5, the least leaf"):
        importance_weights(np.array([5, 4], np.uint32), 0.4, 5)
    for least, leaves in ((0, [0, 4]), (None, [3, 0])):
        with pytest.raises(ValueError, match="least must be 1 to 4294967295, got 0"):
            importance_weights(np.array(leaves, np.uint32), 0.4, least)


def test_a_tree_keeps_its_leaves_alive_and_sums_their_tree() -> None:
    leaves = zeros(9)
    before = sys.getrefcount(leaves)
    tree = PriorityTree(leaves)
    tree.fill(0, 9, 4)
    sums = tree.sums
    del tree
    gc.collect()
    assert sys.getrefcount(leaves) > before
    assert sums[0] == 36
    del sums
    gc.collect()
    assert sys.getrefcount(leaves) == before
