"""The overview screen over canned snapshots: complete, empty, lost, narrow, 64 collectors, a user-defined topology."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from canned_runs import COLLECTING, edge, lively, looked_at, snapshot, working
from canned_status import account, starting, status, warned

from hive.monitor import Snapshot, snapshot_of
from hive.monitor.drawing import BAD, WARN, plain, width_of
from hive.monitor.overview_screen import header, overview
from hive.records.run_warnings import RunWarning

SIZES = pytest.mark.parametrize(("width", "height"), [(80, 22), (100, 30), (120, 40), (200, 60), (40, 12), (20, 5)])


def drawn(seen: Snapshot, width: int = 100, height: int = 40) -> str:
    return plain(overview(seen, width, height))


LIVELY = """\
 cartpole-1  running 44s   70k / 500k steps (14%)   left 01:26
─ return (last 100 episodes) ──────────────────────────────── ─ rates ──────   10 s    1 m    5 m
    138┤                                                 ⣀⣠⠤⠞  env steps/s     5000      –      –
       ┤                                             ⢀⡤⠴⠋⠁     updates/s         20      –      –
       ┤                                         ⣠⠤⠤⠞⠉         episodes/s        10      –      –
       ┤                                     ⢀⡤⠴⠋⠁             return         131.6  updates 280
       ┤                                 ⣠⠤⠞⠉⠉                 lag 1   dropped 0   cores 1.4/2"""

PIPELINE = """\
 collectors ×2      █████████▎  92%  in   5%  out   1%  env 74% policy 18%  ██
   ══ rollouts    ▆ 4/6          40/s ══▶ gradient-workers
 gradient-workers   ██          20%  in  75%  out   0%  gradient 20% runtime 5%
   ══ gradients   ▁ 0/2          20/s ══▶ learner
 learner            ▍            4%  in  94%  out   0%  update 4% runtime 2%
   ── metrics     ▁ 0/16          0/s ──▶ recorder
   ▒ behaviour v40 ▒▶ collectors   ▒ weights v41 ▒▶ gradient-workers
 recorder                        0%  in 100%  out   0%
 bound by: collectors (env 74 % of their time) - collection.workers
"""


def test_a_run_at_work() -> None:
    text = drawn(lively())
    assert text.startswith(LIVELY)
    assert PIPELINE in text
    assert text.splitlines()[-2].endswith("collector-1        collector-1 died in `env`: killed by SIGKILL")
    assert "cores 1.4/2" in text
    assert "lag 1   dropped 0" in text


def test_a_replay_memory_fits_beside_the_chart() -> None:
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


@SIZES
@pytest.mark.parametrize("state", states())
def test_it_fits_wherever_it_is_drawn(state: str, width: int, height: int) -> None:
    lines = overview(states()[state], width, height)
    assert len(lines) <= height
    assert {width_of(line) for line in lines} <= {width}


def test_on_the_smallest_terminal_everything_important_is_there() -> None:
    text = drawn(lively(), 80, 22)
    for word in ("70k / 500k", "collectors ×2", "rollouts", "4/6", "gradient-workers", "learner", "bound by: coll"):
        assert word in text
    assert len(text.splitlines()) == 22


def test_before_there_is_an_actor() -> None:
    text = drawn(snapshot_of(starting()))
    assert "starting" in text
    assert "no update yet" in text
    assert "the actors are starting" in text
    assert "bound by: nothing yet" in text
    assert text.splitlines()[5].split()[-4:] == ["return", "–", "updates", "0"]


def test_before_an_episode_has_ended() -> None:
    text = drawn(snapshot_of(status()))
    assert "no metrics recorded yet - 4.0s since the first update" in text
    young = dataclasses.replace(snapshot_of(status()), episodes=0, mean_return=None)
    assert "no episode has ended yet - 4.0s since the first update" in drawn(young)


def test_a_supervisor_that_is_gone_is_reported_in_the_header() -> None:
    said = "gone since 01:15:02, last words: saved: checkpoint 000250"
    lines = overview(dataclasses.replace(lively(), state="lost", supervisor=said), 100, 30)
    assert plain(lines[1:2]) == f" supervisor {said}"
    assert lines[1][0][1] == BAD


def test_warnings_are_below_the_header_of_every_screen() -> None:
    """Two are shown in full, in at most two lines each; of further ones the names."""
    kinds = ["a", "b", "c", "d"]
    some = dataclasses.replace(lively(), warnings=tuple(RunWarning.of(warned(kind)) for kind in kinds))
    lines = overview(some, 40, 30)
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
    assert len(overview(some, 100, 30)) <= 30
    over = dataclasses.replace(lively(), warnings=(RunWarning.of(warned(last_steps=20_000)),))
    assert drawn(over) == drawn(lively())


def test_sixty_four_collectors_are_one_line_with_a_cell_for_each() -> None:
    shares = [COLLECTING] * 63 + [{"env": 0.1, "wait behaviour": 0.9}]
    line = next(line for line in drawn(lively(collectors=shares), 160).splitlines() if "collectors ×64" in line)
    assert line.endswith("█" * 63 + "▁")


def test_actors_that_do_not_run_are_named() -> None:
    text = drawn(snapshot(changes={"collector-1": {"state": "failed"}}))
    assert "collector-1 failed" in text
    many = drawn(
        snapshot(collectors=[COLLECTING] * 4, changes={f"collector-{n}": {"state": "starting"} for n in range(4)}), 160
    )
    assert "collector-0 starting, collector-1 starting and 2 more" in many


def test_dropped_messages_are_shown_with_their_reasons() -> None:
    channels = {"rollouts": account(40, stale=3, consumer_died=1)}
    text = drawn(snapshot(channels=channels))
    assert "dropped 4 (stale 3, consumer_died 1)" in text
    assert "   dropped 4 " in text


def test_a_long_topology_shows_how_many_lines_are_hidden() -> None:
    channels: dict[str, Any] = {f"channel-{n}": account(n) for n in range(40)}
    edges = {name: edge("message", "collectors", "learner", 4) for name in channels}
    text = drawn(snapshot(channels=channels, edges=edges), 80, 24)
    assert "more lines" in text
    assert "bound by:" in text


def test_user_defined_topologies_are_drawn() -> None:
    documents = [
        status(
            working("curriculum", "curriculum", {"runtime": 0.1, "wait evaluations": 0.9}, 10.0 + second),
            channels={"difficulty": account(7)},
            edges={
                "difficulty": edge("message", "curriculum", "collectors", 8),
                "goal": edge("board", "curriculum", "x"),
            },
            results_actor="",
        )
        for second in range(3)
    ]
    text = drawn(looked_at(documents))
    assert " curriculum " in text
    assert "── difficulty" in text
    assert "▒ goal no version yet ▒▶ x" in text


def test_a_long_sentence_takes_two_lines() -> None:
    seen = dataclasses.replace(lively(), bound_by="collector-1 (failed: " + "word " * 40 + ")")
    text = drawn(seen, 80, 24)
    assert "bound by: collector-1 (failed:" in text
    assert " …\n" in text


def test_control_characters_are_not_printed() -> None:
    seen = dataclasses.replace(
        lively(), run="x\x1b[2J", bound_by="\x1b]0;", reason="\x07", events=({"text": "\x1b[31m"},)
    )
    assert "\x1b" not in drawn(seen)
    assert "\x07" not in plain(header(dataclasses.replace(seen, state="failed"), 100))
