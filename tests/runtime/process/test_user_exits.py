"""`os._exit` of user code as an exception."""

from __future__ import annotations

import os
import threading

import pytest

from hive.runtime.process import user_exits


def test_os_exit_raises_in_the_main_thread_of_this_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", os._exit)  # restored after the test
    monkeypatch.setattr(user_exits, "leave", left.append)
    user_exits.raise_on_exit()
    with pytest.raises(SystemExit, match=r"^os\._exit\(3\)$"):
        os._exit(3)
    thread = threading.Thread(target=os._exit, args=(4,))
    thread.start()
    thread.join()
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a process that user code forked
    os._exit(5)  # type: ignore[unreachable]
    assert left == [4, 5]
