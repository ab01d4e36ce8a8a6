"""Requests reach the supervisor as its own calls, and each has a notice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hive.errors import UsageError
from hive.monitor.requests import ACCEPTED, send
from hive.runtime.run.control import ControlClient


class RecordingClient(ControlClient):
    """Records what would be sent; it has no connection."""

    def __init__(self, refusal: str = "") -> None:
        self.sent: list[tuple[object, ...]] = []
        self.refusal = refusal

    def _record(self, *call: object) -> None:
        if self.refusal:
            raise UsageError(self.refusal)
        self.sent.append(call)

    def pause(self) -> None:
        self._record("pause")

    def resume(self) -> None:
        self._record("resume")

    def save(self) -> None:
        self._record("save")

    def set(self, sets: Sequence[str]) -> None:
        self._record("set", *sets)

    def scale(self, sets: Sequence[str]) -> None:
        self._record("scale", *sets)

    def down(self, reason: str, *, now: bool = False) -> None:
        self._record("down", reason, now)

    def kill(self, actor: str, *, by_hand: bool) -> None:
        self._record("kill", actor, by_hand)


@pytest.mark.parametrize(
    ("kind", "sent", "notice"),
    [
        ("pause", ("pause",), "the run is pausing"),
        ("resume", ("resume",), "the run resumes"),
        ("save", ("save",), "a checkpoint is being written"),
        ("set", ("set", "a.b=1"), "apply from the next update on"),
        ("scale", ("scale", "a.b=1"), "continues with other workers"),
        ("down", ("down", "hive web", False), "saves its state and ends"),
        ("restart", ("kill", "learner-0", True), "learner-0 was killed and is being restarted"),
        ("kill", ("kill", "learner-0", False), "learner-0 was killed and is being restarted"),
    ],
)
def test_each_request_is_one_call_and_one_notice(kind: str, sent: tuple[object, ...], notice: str) -> None:
    client = RecordingClient()
    assert notice in send(client, kind, actor="learner-0", sets=["a.b=1"], viewer="hive web")
    assert client.sent == [sent]
    assert kind in ACCEPTED


def test_a_refusal_is_passed_on() -> None:
    with pytest.raises(UsageError, match="not now"):
        send(RecordingClient("not now"), "save", viewer="hive web")
