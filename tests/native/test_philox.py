"""Normal numbers by (seed, stream, position): their bytes, their distribution, and what they refuse."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive import _native
from hive.experience import Purpose, stream, stream_seed

WORDS = st.integers(0, 2**64 - 1)


def normals(seed: int, stream: int, count: int, first: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    out = np.empty(count, np.float32)
    _native.philox_normals(seed, stream, out, first)
    return out


def test_words_are_the_known_answers_of_random123() -> None:
    """The vectors of the reference implementation for philox4x32, 10 rounds."""
    assert _native.philox_words(0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    whole = 2**64 - 1
    assert _native.philox_words(whole, whole, whole) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    answers = [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    assert _native.philox_words(0x299F31D0A4093822, 0x0370734413198A2E, 0x85A308D3243F6A88) == answers


def test_bytes_never_change() -> None:
    """Every machine and every version must draw these: runs are repeated by them."""
    digest = hashlib.sha256(normals(41, 7, 10_000).tobytes()).hexdigest()
    assert digest == "4017c6b6efac4b9c4a8414a46e4398231b8ad96001dd390ce3a77cc5cb3edd68"


@given(WORDS, WORDS, st.integers(0, 2**62), st.integers(0, 600), st.integers(0, 600))
def test_a_number_depends_on_its_position_alone(seed: int, stream: int, first: int, skipped: int, count: int) -> None:
    whole = normals(seed, stream, skipped + count, first)
    np.testing.assert_array_equal(whole[skipped:], normals(seed, stream, count, first + skipped))


@given(WORDS, WORDS, st.integers(0, 2**62 - 1))
def test_numbers_are_those_of_box_and_muller(seed: int, stream: int, block: int) -> None:
    drawn = normals(seed, stream, 4, 4 * block).tolist()
    words = _native.philox_words(seed, stream, block)
    expected = []
    for word, turn in (words[:2], words[2:]):
        size = math.sqrt(-2.0 * math.log((word + 0.5) / 2**32))
        angle = 2.0 * math.pi * ((turn >> 30) / 4 + ((turn & 0x3FFFFFFF) + 0.5) / 2**32 - 0.125)
        expected += [size * math.cos(angle), size * math.sin(angle)]
    np.testing.assert_allclose(drawn, expected, rtol=1e-6, atol=1e-7)


def test_numbers_are_normal_and_independent() -> None:
    count = 1_000_000
    drawn = normals(1, 2, count).astype(np.float64)
    moments = [np.mean(drawn**power) for power in range(1, 5)]
    deviations = np.sqrt(np.array([1.0, 2.0, 15.0, 96.0]) / count)
    assert (np.abs(np.array(moments) - [0.0, 1.0, 0.0, 3.0]) < 4.0 * deviations).all()
    other = normals(1, 3, count).astype(np.float64)
    for left, right in ((drawn, other), (drawn[1:], drawn[:-1]), (drawn[2:], drawn[:-2]), (drawn[4:], drawn[:-4])):
        assert abs(np.mean(left * right)) < 4.0 / math.sqrt(count)


def test_factors_are_signed_roots() -> None:
    drawn, factors = normals(3, 4, 77), np.empty(77, np.float32)
    _native.philox_factors(3, 4, factors)
    np.testing.assert_array_equal(factors, np.sign(drawn) * np.sqrt(np.abs(drawn)))


@pytest.mark.parametrize("count", [1, 4, 100])
def test_words_of_a_stream_are_those_of_numpy(count: int) -> None:
    seed, source, sequence = 2**63 + 5, 3, 2**40
    words = np.empty(count, np.uint64)
    _native.stream_words(seed, Purpose.replay, source, sequence, words)
    np.testing.assert_array_equal(words, stream(seed, Purpose.replay, source, sequence).bit_generator.random_raw(count))
    assert words[0] >> np.uint64(1) == stream_seed(seed, Purpose.replay, source, sequence)


def test_other_arrays_are_refused() -> None:
    with pytest.raises(TypeError, match="to must be float32, got float64"):
        _native.philox_normals(1, 2, np.empty(3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="to must be 1-dimensional"):
        _native.philox_normals(1, 2, np.empty((3, 1), np.float32))
