"""Streams: the numbers themselves, against Philox written out, and that nothing but their key moves them."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive.experience import Purpose, stream, stream_seed, stream_seeds, streams

WORD = 2**64
MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B

seeds = st.integers(0, 2**63 - 1)
sources = st.integers(0, 2**20)
sequences = st.integers(0, 2**40)

GOLDEN = [
    ((1, Purpose.initial_weights, 0, 0), 5599841837815857887, 2799920918907928943),
    ((1, Purpose.environment, 3, 0), 864415401204736129, 432207700602368064),
    ((1, Purpose.action, 2, 17), 6366201042548526484, 3183100521274263242),
    ((7, Purpose.acting_forward, 1, 1000), 1571018848482374636, 785509424241187318),
    ((2**63 - 1, Purpose.training_forward, 5, 2**40), 13797953749042484809, 6898976874521242404),
    ((3, Purpose.minibatches, 4, 9), 8369235472427970538, 4184617736213985269),
    ((5, Purpose.evaluation, 3, 2000), 8150183408655631520, 4075091704327815760),
    ((5, Purpose.evaluation_forward, 0, 2000), 9252944376046062440, 4626472188023031220),
    ((11, Purpose.replay, 1, 123456), 12923865139648711526, 6461932569824355763),
]
"""Stream -> its first word, and its seed. Whoever changes one of these changes every run."""


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x64 with ten rounds, as Salmon et al. (2011) write it."""
    a, b, c, d = counter
    first, second = key
    for _ in range(10):
        (high_a, low_a), (high_c, low_c) = divmod(MULTIPLIERS[0] * a, WORD), divmod(MULTIPLIERS[1] * c, WORD)
        a, b, c, d = high_c ^ b ^ first, low_c, high_a ^ d ^ second, low_a
        first, second = (first + WEYL[0]) % WORD, (second + WEYL[1]) % WORD
    return [a, b, c, d]


def words(generator: np.random.Generator, count: int) -> list[int]:
    drawn: list[int] = generator.bit_generator.random_raw(count).tolist()
    return drawn


def test_purposes_keep_their_numbers() -> None:
    assert {purpose.name: int(purpose) for purpose in Purpose} == {
        "initial_weights": 0,
        "environment": 1,
        "action": 2,
        "acting_forward": 3,
        "training_forward": 4,
        "minibatches": 5,
        "evaluation": 6,
        "evaluation_forward": 7,
        "evaluation_action": 8,
        "replay": 9,
        "describing": 10,
        "building": 11,
        "resetting": 12,
        "stepping": 13,
        "evaluation_building": 14,
        "evaluation_stepping": 15,
        "policy": 16,
        "callback": 17,
        "restarted": 18,
    }


@pytest.mark.parametrize(("key", "first", "seed"), GOLDEN)
def test_streams_keep_their_numbers(key: tuple[int, Purpose, int, int], first: int, seed: int) -> None:
    assert words(stream(*key), 1) == [first]
    assert stream_seed(*key) == seed


def test_the_noise_of_actions_keeps_its_numbers() -> None:
    key = 1, Purpose.action, 2, 17
    uniform, normal = stream(*key).random(3, np.float32), stream(*key).standard_normal(3, np.float32)
    assert uniform.tolist() == pytest.approx([0.36650926, 0.34511244, 0.06966048], abs=1e-8)
    assert normal.tolist() == pytest.approx([-0.61351562, 0.27744594, -0.14046563], abs=1e-8)


def test_the_order_of_samples_keeps_its_numbers() -> None:
    assert stream(1, Purpose.minibatches, 2, 17).permutation(8).tolist() == [5, 3, 4, 7, 0, 2, 1, 6]


def test_the_seeds_of_environments_keep_their_numbers() -> None:
    assert stream_seeds(1, Purpose.environment, 3, 2, 0) == [530034752, 1457933394]


@given(seeds, st.sampled_from(Purpose), sources, sequences)
def test_a_stream_is_philox_at_its_place(seed: int, purpose: Purpose, source: int, sequence: int) -> None:
    expected = [word for block in (1, 2) for word in philox([block, 0, source, sequence], [seed, int(purpose)])]
    assert words(stream(seed, purpose, source, sequence), 8) == expected


@given(seeds, st.sampled_from(Purpose), sources, sequences)
def test_a_stream_is_numpys_with_that_key_and_counter(seed: int, purpose: Purpose, source: int, sequence: int) -> None:
    """Bit for bit, in every kind of draw that is made of it, also of odd numbers of 32-bit halves."""

    def draws(generator: np.random.Generator) -> list[bytes]:
        halves, normal = generator.random(3, np.float32), generator.standard_normal(5, np.float32)
        return [halves.tobytes(), normal.tobytes(), generator.permutation(7).tobytes(), generator.random(2).tobytes()]

    def numpys(source: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[seed, int(purpose)], counter=[0, 0, source, sequence]))

    assert draws(stream(seed, purpose, source, sequence)) == draws(numpys(source))
    used = stream(seed, purpose, source + 1, sequence)
    used.random(3, np.float32)  # in the middle of a word, and of a block
    assert stream(seed, purpose, source, sequence, used) is used
    assert draws(used) == draws(numpys(source))
    assert stream_seed(seed, purpose, source, sequence) == numpys(source).integers(1 << 63)
    expected = [int(numpys(source + k).integers(1 << 31)) for k in range(3)]
    assert stream_seeds(seed, purpose, source, 3, sequence) == expected


def test_each_thread_has_a_separate_bit_generator() -> None:
    """A seed is drawn in two steps, between which another thread's must not come."""
    kept = [streams.THREAD_LOCAL.philox]

    def draw() -> int:
        kept.append(streams.THREAD_LOCAL.philox)
        return stream_seed(*GOLDEN[0][0])

    with ThreadPoolExecutor(1) as other:
        assert other.submit(draw).result() == other.submit(draw).result() == GOLDEN[0][2]
    assert kept[1] is kept[2]
    assert kept[0] is not kept[1]


def test_streams_do_not_meet() -> None:
    """They are 2^128 blocks apart; here: no two of many begin alike or give the same seed."""
    places = list(itertools.product((0, 1, 2**32), Purpose, range(12), (*range(12), 2**33)))
    assert len({words(stream(*place), 1)[0] for place in places}) == len(places)
    assert len({stream_seed(*place) for place in places}) == len(places)


@given(seeds, sources, sequences)
def test_neighbours_differ(seed: int, source: int, sequence: int) -> None:
    key = seed, Purpose.action, source, sequence
    near = [
        (seed ^ 1, Purpose.action, source, sequence),
        (seed, Purpose.acting_forward, source, sequence),
        (seed, Purpose.action, source + 1, sequence),
        (seed, Purpose.action, source, sequence + 1),
        (seed, Purpose.action, sequence + 1, source),
    ]
    drawn = set(words(stream(*key), 64))
    assert all(drawn.isdisjoint(words(stream(*other), 64)) for other in near)


def test_the_order_of_drawing_does_not_matter() -> None:
    keys = [(5, Purpose.action, source, sequence) for source in range(3) for sequence in range(3)]
    alone = {key: words(stream(*key), 6) for key in keys}
    open_at_once = {key: stream(*key) for key in reversed(keys)}
    drawn: dict[object, list[int]] = {key: [] for key in keys}
    for _ in range(3):
        for key, generator in open_at_once.items():
            drawn[key] += words(generator, 2)
    assert drawn == alone


def test_global_generators_are_neither_read_nor_moved() -> None:
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state(legacy=True)[1:]  # noqa: NPY002
    one = words(stream(1, Purpose.action, 0, 0), 4)
    np.random.seed(2)  # noqa: NPY002
    assert words(stream(1, Purpose.action, 0, 0), 4) == one
    np.random.seed(1)  # noqa: NPY002
    stream_seeds(1, Purpose.environment, 0, 4, 0)
    after = np.random.get_state(legacy=True)[1:]  # noqa: NPY002
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_another_process_draws_the_same() -> None:
    program = (
        "import json; from hive.experience import Purpose, stream, stream_seed\n"
        "k = 3, Purpose.action, 1, 4\n"
        "print(json.dumps([stream(*k).bit_generator.random_raw(4).tolist(), stream_seed(*k)]))"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program], env={"PYTHONHASHSEED": "77"}, capture_output=True, check=True
    )
    key = 3, Purpose.action, 1, 4
    assert json.loads(ran.stdout) == [words(stream(*key), 4), stream_seed(*key)]


@given(seeds, sources, sequences)
def test_seeds_are_within_the_range_of_their_users(seed: int, source: int, sequence: int) -> None:
    """torch takes 64 bits with a sign, environments 32."""
    assert 0 <= stream_seed(seed, Purpose.acting_forward, source, sequence) < 2**63
    assert all(0 <= s < 2**31 for s in stream_seeds(seed, Purpose.environment, source, 3, sequence))


def test_the_seed_of_an_environment_is_its_own() -> None:
    """Not that of its place in a collector: four environments get theirs however they are dealt out."""
    whole = stream_seeds(9, Purpose.environment, 0, 4, 0)
    assert stream_seeds(9, Purpose.environment, 0, 2, 0) + stream_seeds(9, Purpose.environment, 2, 2, 0) == whole
    assert len(set(whole)) == 4
    assert set(whole).isdisjoint(stream_seeds(9, Purpose.environment, 0, 4, 1))
