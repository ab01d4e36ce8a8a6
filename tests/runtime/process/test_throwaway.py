"""Children that are thrown away: results, errors, crashes, limits, output, and nothing left."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hive.errors import EnvironmentFailed, EnvironmentMissing
from hive.runtime.process.user_code import throwaway
from hive.runtime.process.user_code.throwaway import Holdings, children, forks, in_child, keep_safe_to_fork

WHAT = "the environment `mine:Env`"


def test_the_result_is_plain_data() -> None:
    value = {"a": [1, 2.5, None, True, float("inf")], "é": "x" * 200_000}  # more than a pipe holds
    assert in_child(lambda: value, WHAT) == value


def test_an_error_keeps_its_kind_hint_and_traceback() -> None:
    def work() -> None:
        raise EnvironmentMissing("no environment", hint="install it")

    with pytest.raises(EnvironmentMissing, match="no environment") as caught:
        in_child(work, WHAT)
    assert (caught.value.hint, caught.value.exit_code) == ("install it", 2)
    assert 'raise EnvironmentMissing("no environment"' in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (lambda: {}["x"], r"cannot be examined: KeyError: 'x' \(.*test_throwaway.py:\d+\)"),
        (lambda: os._exit(5), r"cannot be examined: SystemExit: os._exit\(5\)"),
        (lambda: ctypes.CDLL(None)._exit(3), "ended the process that constructed it with exit code 3"),
        (lambda: ctypes.CDLL(None)._exit(0), "ended the process that constructed it with exit code 0"),
        (
            lambda: ctypes.string_at(0),
            r"crashed the process that constructed it: killed by SIGSEGV \(.*test_throwaway.py:\d+\), 2 times",
        ),
        (lambda: os.kill(os.getpid(), 9), r"crashed .*: killed by SIGKILL, 2 times"),
        (lambda: object(), "cannot be examined: TypeError: Object of type object is not JSON serializable"),
    ],
)
def test_whatever_ends_a_child_is_an_error_that_names_it(work: Callable[[], Any], text: str) -> None:
    with pytest.raises(EnvironmentFailed, match=f"^the environment `mine:Env` {text}"):
        in_child(work, WHAT)


def test_a_late_child_is_named_with_its_line() -> None:
    with pytest.raises(EnvironmentFailed, match=r"was not constructed within 0.05 s \(.*test_throwaway.py:\d+\)"):
        in_child(lambda: threading.Event().wait(), WHAT, 0.05)


def test_threads_and_children_of_a_child_do_not_outlive_it(tmp_path: Path) -> None:
    """Not even a process in a session of its own, whose parent has already exited."""
    started = tmp_path / "pid"

    def work() -> int:
        threading.Thread(target=time.sleep, args=(1000,)).start()
        shell = f"setsid sleep 1000 >/dev/null 2>&1 & echo $! > {started}"
        subprocess.run(["sh", "-c", shell], check=True)
        return subprocess.Popen(["sleep", "1000"]).pid

    before = children()
    pids = [in_child(work, WHAT), int(started.read_text())]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert children() == before


def test_no_descriptor_is_left() -> None:
    before = Holdings.now()
    in_child(lambda: None, WHAT)
    assert Holdings.now() == before


def test_output_is_passed_on_up_to_a_limit(capfd: pytest.CaptureFixture[str]) -> None:
    in_child(lambda: [os.write(fd, b"a license note\n") for fd in (1, 2)], WHAT)
    assert capfd.readouterr().out == "a license note\n" * 2

    def print_much() -> None:
        for _ in range(300):
            os.write(1, b"x" * 10_000)
        os.write(2, b"the end\n")

    in_child(print_much, WHAT)
    out = capfd.readouterr().out
    assert throwaway.OUTPUT_BYTES < len(out) < throwaway.OUTPUT_BYTES + throwaway.TAIL_BYTES + 200
    assert " bytes of output were dropped here" in out
    assert out.endswith("the end\n")


def test_only_the_process_itself_is_marked_as_forking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(throwaway, "_forking", 0)
    monkeypatch.setattr(throwaway, "_leave_behind", int)
    assert not forks()
    keep_safe_to_fork((tmp_path / "left").touch)
    assert forks()
    assert in_child(forks, WHAT) is False
    assert (tmp_path / "left").exists()


def test_what_an_import_leaves_decides_whether_it_is_shared() -> None:
    """Each in a child, which has one thread as a fork server has."""

    def shareable(leave: Callable[[], Any]) -> Any:
        def work() -> bool:
            before = Holdings.now()
            kept.append(leave())
            return Holdings.now().shareable_after(before)

        return in_child(work, WHAT)

    kept: list[Any] = []
    assert shareable(lambda: None)
    assert shareable(lambda: subprocess.run(["true"], check=True))
    assert not shareable(lambda: threading.Thread(target=time.sleep, args=(1000,)).start())
    assert not shareable(lambda: subprocess.Popen(["sleep", "1000"]))
    assert not shareable(lambda: os.open(__file__, os.O_RDONLY))
    assert not shareable(os.pipe)
