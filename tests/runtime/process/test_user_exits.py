"""`os._exit` of user code as an exception."""

from __future__ import annotations

import os
import threading

import pytest

from hive.runtime.process.user_code import user_exits


def test_os_exit_raises_in_the_main_thread_of_this_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(user_exits, "leave", left.append)
    before, pid = os._exit, os.getpid()
    with user_exits.raising_on_exit():
        exit_now = os._exit
        with pytest.raises(SystemExit, match=r"^os\._exit\(3\)$"):
            exit_now(3)
        thread = threading.Thread(target=exit_now, args=(4,))
        thread.start()
        thread.join()
        monkeypatch.setattr(os, "getpid", lambda: pid + 1)  # as in a process that user code forked
        exit_now(5)
    assert os._exit is before
    assert left == [4, 5]
