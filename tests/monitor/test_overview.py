"""The content of the overview over canned snapshots: complete, empty, lost, narrow, 64 collectors."""

from __future__ import annotations

import dataclasses

import pytest
from canned_runs import COLLECTING, lively
from canned_status import starting, status, warned

from hive.monitor import Snapshot, snapshot_of
from hive.monitor.drawing import BAD, WARN, plain, width_of
from hive.monitor.overview import event_lines, header, overview, rates_line
from hive.records.run_warnings import RunWarning
from hive.records.standings import PolicyStanding


def drawn(seen: Snapshot, width: int = 100) -> str:
    return plain(overview(seen, width))


def test_a_run_at_work() -> None:
    text = drawn(lively())
    assert text.startswith(" cartpole-1  running 44 s   70k / 500k steps   14%   1 min 26 s left\n")
    for words in (
        " env steps/s     5000       –       –\n",
        " return         131.6\n",
        " cores busy     1.4/2\n",
        " GROUP ",
        " rollouts ",
        " bound by: collectors (env 74 % of their time) - collection.workers\n",
        " collector-1       died in `env`: killed by SIGKILL\n",
    ):
        assert words in text
    assert plain([rates_line(lively())]) == " 5000 steps/s   return 131.6   lag 1   cores 1.4/2"


def test_a_narrow_header_loses_the_steps_and_then_the_duration() -> None:
    texts = [plain([header(lively(), width, readonly=True)[0]]) for width in (100, 70, 55)]
    assert texts == [
        " cartpole-1  running 44 s   70k / 500k steps   14%   1 min 26 s left   readonly",
        " cartpole-1  running 44 s   14%   1 min 26 s left   readonly",
        " cartpole-1  running   14%   1 min 26 s left   readonly",
    ]


def test_of_consecutive_checkpoints_the_last_is_an_event() -> None:
    events = [
        {"t": 0.0, "kind": kind, "text": f"{kind} {n}"} for n, kind in enumerate(["saved", "saved", "died", "saved"])
    ]
    text = plain(event_lines(events, 40, 9))
    assert [line.split()[-1] for line in text.splitlines()] == ["1", "2", "3"]
    assert event_lines(events, 40, 0) == []
    long = [{"t": 0.0, "kind": "died", "actor": "a-0", "text": "a-0 " + "word " * 12}]
    lines = event_lines(long, 60, 9)
    assert plain(lines).count("a-0") == 1
    assert len(lines) == 2


def test_a_replay_memory_is_described() -> None:
    values = {"steps": 123_456, "fill": 1.0, "draws_per_step": 0.03125, "age_steps": 61_234.5, "priority_share": 0.36}
    text = drawn(dataclasses.replace(lively(), replay=values), width=80)
    assert " replay 123.5k (100%)  drawn ×0.0312\n" in text
    assert "   age 61.23k steps   priorities 36%\n" in text


def states() -> dict[str, Snapshot]:
    return {
        "whole": lively(),
        "empty": snapshot_of(starting()),
        "young": snapshot_of(status()),
        "many": lively(collectors=[COLLECTING] * 64),
        "silent": dataclasses.replace(lively(), supervisor="does not answer, since 01:15:02"),
        "failed": lively(state="failed", reason="collector-1 failed"),
    }


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("state", states())
def test_it_fits_wherever_it_is_drawn(state: str, width: int) -> None:
    assert {width_of(line) for line in overview(states()[state], width)} == {width}


def test_before_there_is_an_actor() -> None:
    text = drawn(snapshot_of(starting()))
    assert "starting" in text
    assert "no update yet" in text
    assert "the actors are starting" in text
    assert "bound by: nothing yet" in text


def test_before_an_episode_has_ended() -> None:
    text = drawn(snapshot_of(status()))
    assert "no metrics recorded yet - 4.0 s since the first update" in text
    young = dataclasses.replace(snapshot_of(status()), episodes=0, mean_return=None)
    assert "no episode has ended yet - 4.0 s since the first update" in drawn(young)


def test_a_supervisor_that_is_gone_is_reported_in_the_header() -> None:
    said = "gone since 01:15:02, last words: saved: checkpoint 000250"
    lines = overview(dataclasses.replace(lively(), state="lost", supervisor=said), 100)
    assert plain(lines[1:2]) == f" supervisor {said}"
    assert lines[1][0][1] == BAD


def test_warnings_are_below_the_header_of_every_screen() -> None:
    """Two are shown in full, in at most two lines each; of further ones the names."""
    kinds = ["a", "b", "c", "d"]
    some = dataclasses.replace(lively(), warnings=tuple(RunWarning.of(warned(kind)) for kind in kinds))
    lines = overview(some, 40)
    assert plain(lines[1:6]) == "\n".join(
        [
            " a: it is so; raise",
            " algorithm.entropy_weight",
            " b: it is so; raise",
            " algorithm.entropy_weight",
            " and c, d",
        ]
    )
    assert {line[0][1] for line in lines[1:6]} == {WARN}
    over = dataclasses.replace(lively(), warnings=(RunWarning.of(warned(last_steps=20_000)),))
    assert drawn(over) == drawn(lively())


def test_a_long_sentence_takes_two_lines() -> None:
    seen = dataclasses.replace(lively(), bound_by="collector-1 (failed: " + "word " * 40 + ")")
    text = drawn(seen, 80)
    assert "bound by: collector-1 (failed:" in text
    assert " …\n" in text


def test_control_characters_are_not_printed() -> None:
    seen = dataclasses.replace(
        lively(), run="x\x1b[2J", bound_by="\x1b]0;", reason="\x07", events=({"text": "\x1b[31m"},)
    )
    assert "\x1b" not in drawn(seen)
    assert "\x07" not in plain(header(dataclasses.replace(seen, state="failed"), 100))


def test_several_policies() -> None:
    policies = PolicyStanding("cross", ["a"], "ppo", 1, 0.25), PolicyStanding("a_longer_name", ["b"], "dqn", 1, -12.0)
    points = ((0.0, -20.0), (70_000.0, -12.0))
    seen = dataclasses.replace(lively(), policies=policies, policy_returns={"a_longer_name": points})
    text = drawn(seen)
    assert " return cross    0.25 ppo\n        a_longer_name -12.0 dqn\n" in text
    assert "─ return (last 100 episodes) cross a_longer_name ─" in text
    assert "-20" in text, "the curve of the second is drawn, too"
    assert "   return cross 0.25, a_longer_name -12.0   " in plain([rates_line(seen)])
