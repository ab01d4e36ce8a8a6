"""The table of actors at every width, sorted and scrolled; one actor in detail."""

from __future__ import annotations

import pytest
from canned_runs import COLLECTING, T, lively, snapshot

from hive.monitor import Extras
from hive.monitor.actors_screen import COLUMNS, Inspection, actor_detail, actors_table, sorted_rows
from hive.monitor.drawing import BAD, SELECTED, WARN, plain, width_of

TABLE = """\
 NAME                STATE     ACTIVITY        SINCE   CPU    MEM      RATE  BUSY    IN   OUT   VERSION   LAG  RST
 supervisor          running   –                   –     –   190M         –     –     –     –         –     –    0
 fork-server         running   –                   –     –      –         –     –     –     –         –     –    0
 collector-0         running   env              0.0s   50%   190M    2500/s   92%    5%    1%        12     0    0"""

NARROW = """\
 NAME               STATE    ACTIVITY       SINCE  CPU BUSY   IN  OUT  LAG RST
"""


def column(title: str) -> int:
    return [c.title for c in COLUMNS].index(title)


def test_the_table() -> None:
    text = plain(actors_table(lively(), 120, 20, selected=2))
    expected = TABLE.splitlines()
    expected[1] = expected[1].replace("–     –   190M", "–   50%   190M", 1)
    assert text.splitlines()[0] == expected[0]
    assert text.splitlines()[3] == expected[3]
    assert text.splitlines()[1].split()[:4] == ["supervisor", "running", "–", "–"]
    assert len(text.splitlines()) == 8


@pytest.mark.parametrize("width", [40, 79, 80, 100, 120, 160, 200])
def test_it_fits(width: int) -> None:
    lines = actors_table(lively(collectors=[COLLECTING] * 64), width, 22)
    assert len(lines) == 22
    assert {width_of(line) for line in lines} == {width}


def test_the_least_informative_columns_are_left_out_first() -> None:
    titles = [plain(actors_table(lively(), width, 9)).splitlines()[0].split() for width in (80, 120, 160)]
    assert plain(actors_table(lively(), 80, 9)).startswith(NARROW.rstrip())
    assert {"CPU", "BUSY", "IN", "OUT", "RST"} <= {*titles[0]}
    assert "MEM" not in titles[0]
    assert titles[2][-2:] == ["EXIT", "REPORT"]


def test_sorted_by_any_column_both_ways() -> None:
    seen = lively(collectors=[{"env": part, "wait behaviour": 1 - part} for part in (0.2, 0.9, 0.5)])
    by_busy = [row.name for row in sorted_rows(seen, column("BUSY"), True)]
    assert by_busy[:2] == ["collector-1", "collector-2"]
    assert sorted_rows(seen, column("NAME"), False)[0].name == "collector-0"
    assert [row.name for row in sorted_rows(seen, -1, False)][:2] == ["supervisor", "fork-server"]
    heading = plain(actors_table(seen, 120, 9, column=column("BUSY"), reverse=True)).splitlines()[0]
    assert "↑BUS" in heading
    for number in range(len(COLUMNS)):
        assert len(sorted_rows(seen, number, False)) == 8


def test_the_selected_row_is_on_the_screen() -> None:
    seen = lively(collectors=[COLLECTING] * 64)
    for selected in (0, 1, 33, 68):
        lines = actors_table(seen, 100, 10, selected=selected)
        marked = [line for line in lines if line[0][1] == SELECTED]
        assert len(marked) == 1
        assert sorted_rows(seen, -1, False)[selected].name in plain(marked)


def test_the_exit_report_has_a_column_or_a_line() -> None:
    wide = plain(actors_table(lively(), 200, 10, selected=3))
    assert wide.splitlines()[4].endswith("collector-1 died in `env`: killed by SIGKILL")
    lines = actors_table(lively(), 80, 10, selected=3)
    assert plain(lines[-1:]) == " exit report: collector-1 died in `env`: killed by SIGKILL"
    assert "exit report" not in plain(actors_table(lively(), 80, 10, selected=2))


def test_abnormal_values_are_coloured() -> None:
    changes = {"collector-0": {"activity": "env", "since_s": 12.0, "restarts": 2}, "collector-1": {"state": "failed"}}
    lines = actors_table(snapshot(changes=changes), 120, 10, selected=0)
    styles = {text.strip(): style for line in lines[3:5] for text, style in line}
    assert styles["12s"] == styles["failed"] == BAD
    assert styles["2"] == WARN


# --- one actor


def test_the_detail_of_an_actor() -> None:
    row = lively().actors[1]
    answer = Inspection(
        "collector-1", 'File "x.py", line 7 in step', ("starting -ready-> ready", "ready -begin-> running")
    )
    lines, most = actor_detail(row, answer, ["01:00:00 INFO hello"], 100, 60)
    text = plain(lines)
    assert most == 0
    assert text.startswith(
        " collector-1  running  in `env` since 0.0s\n pid 101 · cpu 50% · memory 190M · version 12 · lag 1"
    )
    for words in (
        "exit report: collector-1 died in `env`: killed by SIGKILL",
        "  env                     ██████████████▊       74%  busy",
        "  env_steps 35k",
        '  File "x.py", line 7 in step',
        "  01:00:00 INFO hello",
    ):
        assert words in text
    assert text.index("ready -begin-> running") < text.index("starting -ready-> ready")  # the newest first


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "waiting for the reply …"),
        (Inspection("another", "x"), "waiting for the reply …"),
        (Inspection("collector-1", error="the supervisor is gone"), "the supervisor is gone"),
        (Inspection("collector-1"), "no stack: its process is stopped, gone"),
    ],
)
def test_an_inspection_without_a_stack(answer: Inspection | None, words: str) -> None:
    lines, _ = actor_detail(lively().actors[1], answer, [], 80, 40)
    assert words in plain(lines)
    assert "nothing yet" in plain(lines)


def test_the_detail_scrolls_to_its_end_and_no_further() -> None:
    row, log = lively().actors[0], [f"line {n}" for n in range(100)]
    _, most = actor_detail(row, None, log, 80, 20)
    lines, _ = actor_detail(row, None, log, 80, 20, scrolled=most + 500)
    assert plain(lines).splitlines()[-1] == "  line 99"
    assert {width_of(line) for line in lines} == {80}


def test_the_detail_of_an_actor_of_an_ended_run() -> None:
    row = snapshot(Extras(t=T), changes={"collector-0": {"phases": {}, "activity": "", "version": None}}).actors[0]
    text = plain(actor_detail(row, Inspection(row.name, error="the run is not running"), [], 80, 20)[0])
    assert "─ time" not in text
    assert "version" not in text
