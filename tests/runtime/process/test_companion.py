"""A companion whose exit status user code has taken: a handler of SIGCHLD in an environment waits for any child."""

from __future__ import annotations

import os

from hive.runtime.process.user_code.companion import Companion


def reaped() -> Companion:
    """A companion that has exited, after code of a user has waited for it."""
    companion = Companion(lambda: None, "hive:helper", "failed")
    os.waitpid(companion.pid, 0)
    return companion


def test_its_end_is_told() -> None:
    companion = reaped()
    assert companion.exited(1.0) == "exit code unknown (an environment's code has waited for it)"
    companion.end()


def test_it_can_be_ended() -> None:
    reaped().end()
