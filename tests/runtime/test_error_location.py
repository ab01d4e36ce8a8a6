"""Whose line raised, and what a signal is called."""

from __future__ import annotations

import json
import signal

import pytest

from hive.runtime.error_location import place_in, place_of, signal_name


def caught(work: object) -> BaseException:
    assert callable(work)
    with pytest.raises(Exception) as error:  # noqa: PT011  # whatever it is
        work()
    return error.value


def mine() -> None:
    raise KeyError("mine")


def test_the_line_that_raised() -> None:
    line = mine.__code__.co_firstlineno + 1
    assert place_of(caught(mine)).endswith(f"test_error_location.py:{line}")


def test_what_the_standard_library_raises_is_of_whoever_called_it() -> None:
    def call() -> None:
        json.loads("{")

    assert place_of(caught(call)).endswith(f"test_error_location.py:{call.__code__.co_firstlineno + 1}")


def test_a_mistake_in_a_file_that_could_not_be_read_is_in_that_file() -> None:
    error = caught(lambda: compile("a = (", "/home/me/own.py", "exec"))
    assert place_of(error) == "/home/me/own.py:1"


def test_where_code_is_that_does_not_come_back() -> None:
    def at() -> str:
        frame = inspect.currentframe()
        assert frame is not None
        return place_in(frame)

    import inspect

    assert at().rpartition(":")[0].endswith("test_error_location.py")


@pytest.mark.parametrize(
    ("number", "name"),
    [(9, "SIGKILL"), (signal.SIGRTMIN, "SIGRTMIN"), (40, "signal 40"), (signal.SIGRTMAX, "SIGRTMAX")],
)
def test_what_a_signal_is_called(number: int, name: str) -> None:
    assert signal_name(number) == name
