"""The user line that raised an error, and names of signals."""

from __future__ import annotations

import json
import signal

import pytest

from hive.runtime.actor.error_location import (
    describe,
    named,
    place_in,
    place_of,
    signal_name,
    source_lines,
    user_frames,
)


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


def test_the_frames_of_user_code_come_from_the_cause() -> None:
    def deeper() -> None:
        mine()

    def outer() -> None:
        try:
            deeper()
        except KeyError as error:
            raise ValueError("outer") from error

    trace = describe(caught(outer))[2]
    shown = user_frames(trace).splitlines()
    names = [line.rpartition(" in ")[2] for line in shown if line.startswith("  File")]
    assert names == ["outer", "deeper", "mine"]
    assert shown[-1] == '    raise KeyError("mine")'
    lines = source_lines(trace)
    assert lines[2].endswith(f"test_error_location.py:{mine.__code__.co_firstlineno + 1}")
    assert len(lines) == 5  # three of the cause, and caught and outer of the error


def test_library_code_has_no_frames_to_show() -> None:
    assert user_frames('Traceback\n  File "<string>", line 1, in <module>\nValueError: x\n') == ""
    assert user_frames("") == ""


def test_an_assertion_without_a_text_is_its_statement() -> None:
    def checks(joints: int) -> None:
        assert joints == 7

    error = caught(lambda: checks(6))
    error.args = ()  # pytest has written a text
    assert named(error).startswith("AssertionError: assert joints == 7")
    assert describe(error)[1].startswith("assert joints == 7")
    assert named(AssertionError("six joints")) == "AssertionError: six joints"
    assert named(AssertionError()) == "AssertionError"
