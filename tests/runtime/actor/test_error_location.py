"""The user line that raised an error, and names of signals."""

from __future__ import annotations

import json
import signal

import pytest

from hive.runtime.actor.error_location import place_in, place_of, signal_name


def caught(work: object) -> BaseException:
    assert callable(work)
    with pytest.raises(Exception) as error:  # noqa: PT011  # any error
        work()
    return error.value


def mine() -> None:
    raise KeyError("mine")


def test_the_line_that_raised() -> None:
    line = mine.__code__.co_firstlineno + 1
    assert place_of(caught(mine)).endswith(f"test_error_location.py:{line}")


def test_an_error_in_the_standard_library_is_located_in_its_caller() -> None:
    def call() -> None:
        json.loads("{")

    assert place_of(caught(call)).endswith(f"test_error_location.py:{call.__code__.co_firstlineno + 1}")


def test_a_syntax_error_is_located_in_its_file() -> None:
    error = caught(lambda: compile("a = (", "/home/me/own.py", "exec"))
    assert place_of(error) == "/home/me/own.py:1"


def test_the_line_that_is_being_executed() -> None:
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
def test_names_of_signals(number: int, name: str) -> None:
    assert signal_name(number) == name
