"""The three tables at every width: alignment, dropped columns, styles, order."""

from __future__ import annotations

import dataclasses

import pytest
from canned_runs import COLLECTING, STEPPED, T, edge, lively, looked_at, snapshot, working
from canned_status import account, status

from hive.monitor import Extras, Snapshot
from hive.monitor.drawing import BAD, WARN, plain
from hive.monitor.tables import (
    ACTORS,
    CHANNELS,
    GROUPS,
    channels_of,
    groups_of,
    sorted_rows,
    table_lines,
)
from hive.table import Table, lay_out

GROUPS_TEXT = """\
 GROUP             ACTORS  RESTARTS  BUSY                IN   OUT  EACH  WORK
 collectors             2         0   92%  █████████▎    5%    1%  ██    7.0 s ago collector-1: ki…
 gradient-workers       1         0   20%  ██           75%    0%        gradient 20%  runtime 5%
 learner                1         0    4%  ▍            94%    0%        update 4%  runtime 2%
 recorder               1         0    0%              100%    0%"""

CHANNELS_TEXT = """\
 CHANNEL           BY        FROM              TO                  HELD      RATE
 rollouts          slots     collectors        gradient-workers   ▆ 4/6      40/s
 gradients         slots     gradient-workers  learner            ▁ 0/2      20/s
 metrics           messages  learner           recorder          ▁ 0/16       0/s
 behaviour         board     learner           collectors           v40       0/s
 weights           board     learner           gradient-workers     v41       0/s"""


def drawn(table: Table) -> str:
    return "\n".join(line.rstrip() for line in plain(table_lines(table)).splitlines())


def groups(seen: Snapshot, width: int = 100) -> Table:
    return lay_out(GROUPS, groups_of(seen), width)


def actors(seen: Snapshot, width: int) -> Table:
    return lay_out(ACTORS, sorted_rows(seen, -1, False), width)


def column(title: str) -> int:
    return [c.title for c in ACTORS].index(title)


def test_groups_and_channels() -> None:
    assert drawn(groups(lively())) == GROUPS_TEXT
    assert drawn(lay_out(CHANNELS, channels_of(lively()), 100)) == CHANNELS_TEXT


@pytest.mark.parametrize("width", [30, 58, 78, 100, 160, 200])
def test_every_table_fits_and_is_aligned(width: int) -> None:
    seen = lively(collectors=[COLLECTING] * 64)
    for table in (groups(seen, width), actors(seen, width), lay_out(CHANNELS, channels_of(seen), width)):
        assert sum(size + 2 for size in table.widths) <= max(width, 60)
        for row in table.rows.values():
            assert [len(cell.text) for cell in row] == [*table.widths]
        assert [len(title) for title in table.titles] == [*table.widths]


def test_the_least_informative_columns_are_left_out_first() -> None:
    narrow, wide = ({title.strip() for title in actors(lively(), width).titles} for width in (60, 180))
    assert {"NAME", "STATE", "BUSY"} <= narrow
    assert not {"MEMORY", "PID", "VERSION", "EXIT REPORT"} & narrow
    stepped = {"ENVS", "FAILURES", "MEDIAN", "WORST"}
    assert wide == {c.title for c in ACTORS} - stepped
    seen = snapshot(Extras(t=T, environments=STEPPED))
    assert stepped <= {title.strip() for title in actors(seen, 120).titles}
    assert not stepped & {title.strip() for title in actors(seen, 60).titles}


def test_the_environments_of_each_collector_are_summed_up() -> None:
    table = lay_out(ACTORS, sorted_rows(snapshot(Extras(t=T, environments=STEPPED)), -1, False), 200)
    where = [title.strip() for title in table.titles].index("ENVS")
    work = lay_out(GROUPS, groups_of(snapshot(Extras(t=T, environments=STEPPED))), 120).rows["collectors"][-1]
    assert (work.text.strip(), work.style) == ("env 4 is being restarted", WARN)
    cells = {name: [cell.text.strip() for cell in row[where : where + 4]] for name, row in table.rows.items()}
    assert cells["collector-0"] == ["3", "0", "0.1 ms", "400 ms"]
    assert cells["collector-1"] == ["2/3", "3", "0.1 ms", "4 ms"]
    assert cells["learner-0"] == ["", "", "–", "–"]


def test_a_group_is_coloured_by_a_missing_actor_and_by_a_restart() -> None:
    calm = dataclasses.replace(lively(), events=())
    assert {cell.style for cell in groups(calm).rows["collectors"]} & {BAD, WARN} == set()
    restarted = groups(lively()).rows["collectors"]
    assert {cell.style for cell in restarted} == {WARN}
    assert "7.0 s ago" in restarted[-1].text
    later = dataclasses.replace(lively(), t=T + 60.0)
    assert "ago" not in drawn(groups(later))
    missing = groups(snapshot(changes={"collector-1": {"state": "failed"}}), 120).rows["collectors"]
    assert {cell.style for cell in missing} == {BAD}
    assert missing[-1].text.startswith("collector-1 failed")
    four = {f"collector-{n}": {"state": "starting"} for n in range(4)}
    many = groups(snapshot(collectors=[COLLECTING] * 4, changes=four), 160).rows["collectors"]
    assert many[-1].text.startswith("collector-0 starting, collector-1 starting and 2 more")


def test_the_rows_of_an_ended_run_have_its_state() -> None:
    ended = lively()
    rows = tuple(dataclasses.replace(row, state="stopped", pid=0, busy=None) for row in ended.actors)
    table = groups(dataclasses.replace(ended, state="stopped", actors=rows, events=()))
    assert all(row[-1].text.strip() == "stopped" and row[-1].style != BAD for row in table.rows.values())


def test_dropped_messages_have_their_reasons() -> None:
    channels = {"rollouts": account(40, stale=3, consumer_died=1)}
    assert "4 (stale 3, consumer_died 1)" in drawn(lay_out(CHANNELS, channels_of(snapshot(channels=channels)), 140))


def test_user_defined_topologies_are_shown() -> None:
    actor = working("curriculum", "curriculum", {"runtime": 0.1, "wait evaluations": 0.9}, 10.0)
    edges = {"difficulty": edge("message", "curriculum", "collectors", 8), "goal": edge("board", "curriculum", "x")}
    seen = looked_at([status(actor, channels={"difficulty": account(7)}, edges=edges, results_actor="")])
    assert "curriculum" in drawn(groups(seen))
    shown = drawn(lay_out(CHANNELS, channels_of(seen), 100))
    assert "difficulty" in shown
    assert "no version yet" in shown


def test_actors_are_sorted_by_any_column_both_ways() -> None:
    seen = lively(collectors=[{"env": part, "wait behaviour": 1 - part} for part in (0.2, 0.9, 0.5)])
    assert [*sorted_rows(seen, column("BUSY"), True)][:2] == ["collector-1", "collector-2"]
    assert next(iter(sorted_rows(seen, column("NAME"), False))) == "collector-0"
    assert [*sorted_rows(seen, -1, False)][:2] == ["supervisor", "fork-server"]
    assert [*sorted_rows(seen, -1, True)][-1] == "supervisor"
    assert {len(sorted_rows(seen, n, False)) for n in range(len(ACTORS))} == {8}


def test_abnormal_values_are_coloured() -> None:
    changes = {"collector-0": {"activity": "env", "since_s": 12.0, "restarts": 2}, "collector-1": {"state": "failed"}}
    table = actors(snapshot(Extras(t=T), changes=changes), 160)
    first, second = (
        {cell.text.strip(): cell.style for cell in table.rows[name]} for name in ("collector-0", "collector-1")
    )
    assert first["12 s"] == second["failed"] == BAD
    assert first["2"] == WARN


def test_names_cannot_command_the_terminal() -> None:
    rows = tuple(dataclasses.replace(row, name="\x1b[2J", group="\x07") for row in lively().actors)
    seen = dataclasses.replace(lively(), actors=rows)
    for table in (groups(seen), actors(seen, 120)):
        assert all(cell.text.isprintable() for row in table.rows.values() for cell in row)
