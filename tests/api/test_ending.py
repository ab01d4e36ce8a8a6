"""How signals leave the calls of a program: whose handlers stay, what its children get, and what a notebook does."""

from __future__ import annotations

import os
import signal
import sys
import types
from collections.abc import Iterator

import pytest

from hive.api.ending import ending_as_asked, raise_for, waiting_for_runs
from hive.runtime.actor.interrupted import Interrupted, raise_interrupt
from hive.runtime.process.command import of_program, supervisor_environment
from hive.runtime.process.spawning import CALLBACKS, PROGRAM


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Have the defaults, whatever the tests' own process has."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_ctrl_c_leaves_as_keyboard_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, ending_as_asked():
        signal.raise_signal(signal.SIGINT)
    assert caught.type is KeyboardInterrupt
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_sigterm_ends_the_program_once_the_call_is_left() -> None:
    child = os.fork()
    if child == 0:
        with ending_as_asked():
            signal.raise_signal(signal.SIGTERM)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def test_the_first_process_of_a_container_exits_with_the_code_of_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_signal = signal.raise_signal
    monkeypatch.setattr(signal, "raise_signal", lambda number: None)  # no default action
    with pytest.raises(SystemExit) as caught, ending_as_asked():
        raise_signal(signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM


def test_a_handler_of_the_program_stays() -> None:
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    with ending_as_asked():
        signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGINT) is raise_interrupt
    assert received == [signal.SIGTERM]


def test_a_child_of_the_program_has_the_defaults() -> None:
    with ending_as_asked():
        child = os.fork()
        if child == 0:
            os._exit(signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL)
    assert os.waitpid(child, 0)[1] == 0


def test_in_a_notebook_ctrl_c_ends_the_run_and_sigterm_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_for({})
    with pytest.raises(Interrupted):
        raise_for({signal.SIGINT: 1})
    shell = types.SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    raise_for({signal.SIGINT: 1})
    with pytest.raises(Interrupted) as caught:
        raise_for({signal.SIGINT: 1, signal.SIGTERM: 1})
    assert caught.value.number == signal.SIGTERM


def test_a_run_knows_its_own_program_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CALLBACKS, "those of the run that this process belongs to")
    assert CALLBACKS not in supervisor_environment()
    with waiting_for_runs("here"):
        assert of_program.get() == {PROGRAM: str(os.getpid()), CALLBACKS: "here"}
    assert of_program.get() == {}
