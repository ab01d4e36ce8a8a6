"""One actor in detail: its time, stack, history and log; without a reply; of an ended run."""

from __future__ import annotations

import pytest
from canned_runs import KILLED, STEPPED, T, lively, snapshot

from hive.monitor import Extras
from hive.monitor.actor_detail import ActorInspection, actor_detail, actor_summary
from hive.monitor.drawing import plain


def test_the_detail_of_an_actor() -> None:
    row = lively().actors[1]
    answer = ActorInspection(
        "collector-1", 'File "x.py", line 7 in step', ("starting -ready-> ready", "ready -begin-> running")
    )
    text = plain(actor_detail(row, answer, ["01:00:00 INFO hello"], 100))
    assert text.startswith(
        " collector-1  running  in `env` since 0.0 s\n"
        " pid 101 · cpu 50% · memory 190M · version 12 · lag 1 · 0 restarts"
    )
    for words in (
        "exit report: collector-1 died in `env`: killed by SIGKILL",
        "  env                     ██████████████▊       74%  busy",
        "  env steps 35k",
        '  File "x.py", line 7 in step',
        "  01:00:00 INFO hello",
    ):
        assert words in text
    assert text.index("ready -begin-> running") < text.index("starting -ready-> ready")  # the newest first


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "waiting for the reply …"),
        (ActorInspection("collector-1", error="the supervisor is gone"), "the supervisor is gone"),
        (ActorInspection("collector-1"), "no stack: its process is stopped, gone"),
    ],
)
def test_an_inspection_without_a_stack(answer: ActorInspection | None, words: str) -> None:
    lines = actor_detail(lively().actors[1], answer, [], 80)
    assert words in plain(lines)
    assert "nothing yet" in plain(lines)


def test_the_detail_of_an_actor_of_an_ended_run() -> None:
    row = snapshot(Extras(t=T), changes={"collector-0": {"phases": {}, "activity": "", "version": None}}).actors[0]
    text = plain(actor_detail(row, ActorInspection(row.name, error="the run is not running"), [], 80))
    assert "─ time" not in text
    assert "version" not in text


def test_the_environments_that_processes_step_for_an_actor() -> None:
    row = snapshot(Extras(t=T, environments=STEPPED)).actors[1]
    shown = plain(actor_detail(row, None, [], 120)).splitlines()
    begin = next(n for n, line in enumerate(shown) if line.startswith("─ environments"))
    assert shown[begin + 1] == " 2/3 envs · 3 failures · median 0.1 ms · worst 4 ms"
    assert [line.split()[:5] for line in shown[begin + 3 : begin + 6]] == [
        ["3", "running", "203", "0", "0"],
        ["4", "starting", "204", "2", "2"],
        ["5", "running", "205", "0", "1"],
    ]
    assert shown[begin + 4].endswith(KILLED)
    summary = plain(actor_summary(row, ["the end of its log"], 120, 40))
    assert "203" not in summary  # only those with trouble
    assert "204" in summary
    assert summary.endswith("the end of its log")
    assert "environments" not in plain(actor_summary(snapshot().actors[1], [], 120, 40))
