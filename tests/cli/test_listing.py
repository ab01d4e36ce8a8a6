from __future__ import annotations

import argparse
import json
import math
import os
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from canned_runs import KILLED, STEPPED
from canned_status import actor, results, starting, status, warned

from hive.cli import logs
from hive.cli.logs import FOLLOW_LINES
from hive.cli.ps import PS_KEYS
from hive.records import RunDirectory, age_s, read_run_facts, replace_best
from hive.records.environments import write_environments
from hive.records.summary import OVERRIDDEN, ROUNDS

if TYPE_CHECKING:
    from conftest import Place

LS_KEYS = {
    *("name", "state", "path", "env", "algorithm", "scheme", "topology", "device"),
    *("env_steps", "mean_return_100", "best", "wall_s", "started"),
}


class Looks:
    """The time between two looks of `logs -f`, in which a test does something instead of waiting."""

    def __init__(self, *between: Callable[[], object]) -> None:
        self.between = list(between)
        self.time = time.time

    def sleep(self, seconds: float) -> None:
        assert seconds == logs.FOLLOW_S
        self.between.pop(0)()


def say(run: RunDirectory, actor: str, *texts: str, second: int = 0) -> None:
    """Lines in the log of an actor, as many milliseconds after each other."""
    with run.log_file(actor).open("a") as file:
        for n, text in enumerate(texts):
            file.write(f"2026-11-21 01:12:{second:02}.{n:03} {actor} INFO {text}\n")


def rows(text: str) -> list[dict[str, Any]]:
    """A document that any reader of JSON takes."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    listed: list[dict[str, Any]] = json.loads(text, parse_constant=refuse)
    return listed


def table(text: str) -> list[list[str]]:
    """The cells of a table, which are two blanks apart."""
    return [re.split(r" {2,}", line) for line in text.splitlines()]


# --- ls


def with_best(run: RunDirectory, by: str = "training") -> RunDirectory:
    """Write a best policy into a run."""
    state: dict[str, Any] = {"mean_return": 488.8, "by": by, "env_steps": 4800, "updates": 150}
    replace_best(run.best, 150, tensors={"w": np.zeros(1, np.float32)}, state=state)
    return run


def test_ls_of_nothing(place: Place) -> None:
    done = place.hive("ls")
    assert (done.code, done.out, done.err) == (0, f"no run in {place.runs} yet\n", "")
    assert rows(place.hive("ls", "--json").out) == []


def test_ls_of_runs_in_every_state(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with_best(place.ended("pong", started=1.0))
    place.ended("pong", started=2.0, state="failed", env_steps=512, mean_return_100=None, error="it broke")
    lost = place.lost("pong", started=3.0)
    lost.metrics_file.write_text('{"steps": 9216, "seconds": 7.06, "return/mean_100": 21.25}\n')
    place.live(status(), started=time.time() - 100)
    place.never_begun("empty")
    done = place.hive("ls")
    assert (done.code, done.err) == (0, "")
    listed = {cells[0]: cells[1:] for cells in table(done.out)}
    wall = listed["cartpole-1"].pop(-2)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", listed["cartpole-1"].pop())
    long_ago = time.strftime("%Y-%m-%d %H:%M", time.localtime(3.0))
    trained = ["CartPole-v1", "ppo"]
    assert listed == {
        "NAME": ["ENV", "ALGORITHM", "STATE", "STEPS", "RETURN", "BEST", "WALL", "STARTED"],
        "pong-1": [*trained, "finished", "500,000", "471.5", "488.8", "61.5 s", long_ago],
        "pong-2": [*trained, "failed", "512", "–", "–", "61.5 s", long_ago],
        "pong-3": [*trained, "lost", "9,216", "21.2", "–", "7.1 s", long_ago],
        "cartpole-1": [*trained, "running", "20,480", "131.6", "–"],
        "empty-1": [*trained, "lost", "–", "–", "–", "–", "–"],
    }
    age = age_s(read_run_facts(RunDirectory.open(place.runs / "cartpole-1")))  # of this process, which it names
    assert age - 60 < float(wall.removesuffix(" s")) <= age + 0.05  # it is rounded
    assert list(listed)[1:4] == ["pong-1", "pong-2", "pong-3"]


def test_best_is_of_training_and_evaluation_of_evaluations(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with_best(place.ended("trained", started=1.0))
    assert table(place.hive("ls").out)[0][5:8] == ["RETURN", "BEST", "WALL"]
    with_best(place.ended("evaluated", started=2.0), by="evaluation")
    head, *lines = table(place.hive("ls").out)
    assert [line[5:8] for line in (head, *lines)] == [
        ["RETURN", "BEST", "EVALUATION"],
        ["471.5", "488.8", "–"],
        ["471.5", "–", "488.8"],
    ]


def test_ls_fits_eighty_columns(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with_best(place.ended("cartpole-ppo", started=1.0), by="evaluation")
    run = with_best(place.ended("coin-ppo", started=time.time()))
    run.resolved_file.write_text(f'[env]\nid = "{run.session_file}:Coin"\n[algorithm]\nname = "ppo"\n')
    head, *lines = place.hive("ls").out.splitlines()
    assert max(map(len, (head, *lines))) <= 80
    assert head.split() == ["NAME", "ENV", "STATE", "STEPS", "RETURN", "EVALUATION", "STARTED"]
    assert [line.split()[1] for line in lines] == ["CartPole-v1", "Coin"]
    assert lines[0].split()[-1] == time.strftime("%Y-%m-%d", time.localtime(1.0))
    assert re.fullmatch(r"\d\d:\d\d", lines[1].split()[-1])


def test_ls_names_a_custom_topology_and_no_environment(place: Place) -> None:
    run = place.ended(started=1.0)
    run.resolved_file.write_text('[run]\ntopology = "/a/league.py:topology"\n[algorithm]\nname = "ppo"\n')
    (row,) = rows(place.hive("ls", "--json").out)
    assert (row["env"], row["topology"], row["scheme"]) == (None, "/a/league.py:topology", None)
    assert table(place.hive("ls").out)[1][:4] == ["cartpole-1", "–", "league.py", "finished"]


@pytest.mark.parametrize("text", [b"", b"\xff", b"a = ", b"run = 1", b"[env]\nid = 3", b"a = " + b"[" * 5000])
def test_ls_of_a_run_whose_config_cannot_be_read(place: Place, text: bytes) -> None:
    place.ended(started=1.0).resolved_file.write_bytes(text)
    (row,) = rows(place.hive("ls", "--json").out)
    assert (row["env"], row["algorithm"], row["state"]) == (None, None, "finished")


def test_columns_are_as_wide_as_their_widest_cell(place: Place) -> None:
    place.ended("a-name-that-is-long", started=1.0)
    place.ended("b", started=2.0)
    lines = place.hive("ls").out.splitlines()
    assert len({line.index(word) for line, word in zip(lines, ("STATE", "finished", "finished"), strict=True)}) == 1
    assert not any(line.endswith(" ") for line in lines)


def test_ls_as_json_has_the_same_keys_for_every_run(place: Place) -> None:
    ended = with_best(place.ended(started=1.0))
    place.lost(started=2.0)
    place.live(status(), started=3.0)
    place.never_begun()
    listed = {row["name"]: row for row in rows(place.hive("ls", "--json").out)}
    assert all(row.keys() == LS_KEYS for row in listed.values())
    assert listed["cartpole-1"] == {
        "name": "cartpole-1",
        "state": "finished",
        "path": str(ended.path),
        "env": "CartPole-v1",
        "algorithm": "ppo",
        "scheme": "ppo",
        "topology": None,
        "device": "cpu",
        "env_steps": 500_000,
        "mean_return_100": 471.5,
        "best": {"checkpoint": "best/000150", "mean_return": 488.8, "by": "training", "steps": 4800, "updates": 150},
        "wall_s": 61.52,
        "started": 1.0,
    }
    nothing = {"env_steps": None, "mean_return_100": None, "best": None, "wall_s": None}
    assert listed["cartpole-2"] == listed["cartpole-2"] | nothing | {"state": "lost", "started": 2.0}
    assert listed["cartpole-3"]["state"] == "running"
    assert listed["cartpole-4"] == listed["cartpole-4"] | nothing | {"state": "lost", "started": None}


@pytest.mark.parametrize(
    ("said", "state", "env_steps", "mean_return"),
    [
        (starting(), "starting", 0, None),
        (status(actor("learner-0", counters=results(episodes=0, mean_return_100=0.0))), "running", 20_480, None),
        (status(actor("learner-0", counters=results(mean_return_100=math.nan))), "running", 20_480, None),
        (status(actor("learner-0", counters=results(mean_return_100=math.inf))), "running", 20_480, None),
        (status(state="draining"), "draining", 20_480, 131.6),
    ],
)
def test_a_live_run_is_asked(
    place: Place, said: dict[str, Any], state: str, env_steps: int, mean_return: float | None
) -> None:
    place.live(said)
    (row,) = rows(place.hive("ls", "--json").out)
    assert (row["state"], row["env_steps"], row["mean_return_100"]) == (state, env_steps, mean_return)


def test_a_live_run_that_does_not_answer_is_listed_all_the_same(place: Place) -> None:
    place.live(None)
    (row,) = rows(place.hive("ls", "--json").out)
    assert (row["state"], row["env_steps"]) == ("running", None)
    assert row["wall_s"] > 0


@pytest.mark.parametrize("metrics", ["", "torn", '{"evaluation": 1}\n'])
def test_a_lost_run_without_metrics(place: Place, metrics: str) -> None:
    place.lost().metrics_file.write_text(metrics)
    (row,) = rows(place.hive("ls", "--json").out)
    assert (row["state"], row["env_steps"], row["wall_s"]) == ("lost", None, None)


# --- which run is meant


# --- ps


def test_ps_of_a_live_run(place: Place) -> None:
    waiting = actor("collector-1", activity="wait for weights", since_s=12.34, busy=0.0, wait_in=1.0, wait_out=0.0)
    place.live(status(actor("collector-0", lag=1, restarts=2), waiting, actor("learner-0", counters=results())))
    done = place.hive("ps", "cartpole-1")
    assert (done.code, done.err) == (0, "")
    title, head, *lines = table(done.out)
    assert title == ["cartpole-1", "running"]
    assert head[:5] == ["NAME", "PID", "STATE", "CPU%", "MEM"]
    assert head[5:] == ["ACTIVITY", "SINCE", "BUSY", "WAIT-IN", "WAIT-OUT", "VERSION", "LAG", "RESTARTS"]
    assert all(line[1] == str(os.getpid()) and re.fullmatch(r"\d+M", line[4]) for line in lines)
    assert {line[0]: line[5:] for line in lines} == {
        "supervisor": [*("–",) * 7, "0"],
        "fork-server": [*("–",) * 7, "0"],
        "collector-0": ["step", "0.2 s", "90%", "6%", "4%", "12", "1", "2"],
        "collector-1": ["wait for weights", "12.3 s", "0%", "100%", "0%", "12", "0", "0"],
        "learner-0": ["step", "0.2 s", "90%", "6%", "4%", "12", "0", "0"],
    }


def test_ps_as_json_has_the_same_keys_for_every_process(place: Place) -> None:
    place.live(status(actor("collector-0", pid=1 << 30), actor("learner-0", counters=results())))
    listed = {row["name"]: row for row in rows(place.hive("ps", "--json").out)}
    assert list(listed) == ["supervisor", "fork-server", "collector-0", "learner-0"]
    assert all(tuple(row) == PS_KEYS for row in listed.values())
    assert listed["learner-0"]["counters"] == results()
    assert listed["learner-0"]["memory_bytes"] > 1 << 20
    assert listed["learner-0"]["cpu_percent"] >= 0
    assert (listed["collector-0"]["memory_bytes"], listed["collector-0"]["cpu_percent"]) == (None, None)
    assert listed["collector-0"]["phases"] == {"step": 9.0, "wait": 1.0}
    assert (listed["supervisor"]["counters"], listed["supervisor"]["activity"]) == (None, None)


def test_ps_of_environments_that_processes_step(place: Place) -> None:
    run = place.live(status(actor("collector-0"), actor("collector-1"), actor("learner-0", counters=results())))
    assert "ENVS" not in place.hive("ps").out
    assert place.hive("ps", "--envs").out.splitlines()[1:] == [
        "no environment is stepped by a process of its own, or none has started yet"
    ]
    for name, each in STEPPED.items():
        write_environments(run, name, each)
    lines = {line[0]: line[-4:] for line in table(place.hive("ps").out)[1:]}
    assert lines["NAME"] == ["ENVS", "FAILURES", "MEDIAN", "WORST"]
    assert lines["collector-0"] == ["3", "0", "0.1 ms", "400 ms"]
    assert lines["collector-1"] == ["2/3", "3", "0.1 ms", "4 ms"]
    assert lines["learner-0"] == ["–"] * 4
    title, head, *each_line = table(place.hive("ps", "--envs").out)
    assert title == ["cartpole-1", "running"]
    assert head[:5] == ["NAME", "ENV", "STATE", "PID", "RESTARTS"]
    assert [line[:3] for line in each_line] == [
        *(["collector-0", str(n), "running"] for n in range(3)),
        ["collector-1", "3", "running"],
        ["collector-1", "4", "starting"],
        ["collector-1", "5", "running"],
    ]
    assert each_line[4][4:] == ["2", "2", "9000", "0.1 ms", "4 ms", KILLED]
    listed = {row["name"]: row["environments"] for row in rows(place.hive("ps", "--json").out)}
    assert listed["collector-1"][1]["last_failure"] == KILLED
    assert (len(listed["collector-0"]), listed["learner-0"]) == (3, None)


def test_ps_of_the_environments_of_an_ended_run(place: Place) -> None:
    write_environments(place.ended(restarts={"collector-0": 1}), "collector-0", STEPPED["collector-0"])
    line = table(place.hive("ps", "--envs").out)[2]
    assert line == ["collector-0", "0", "finished", "–", "0", "0", "9000", "0.1 ms", "4 ms", "–"]
    assert table(place.hive("ps").out)[-1][-4:] == ["3", "0", "0.1 ms", "400 ms"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_counter_that_is_not_finite_is_null(place: Place, value: float) -> None:
    place.live(status(actor("learner-0", counters=results(mean_return_100=value))))
    learner = rows(place.hive("ps", "--json").out)[-1]
    assert learner["counters"] == results() | {"mean_return_100": None}


def test_ps_of_sixty_four_collectors(place: Place) -> None:
    place.live(status(*(actor(f"collector-{n}") for n in range(64)), actor("learner-0")))
    lines = place.hive("ps").out.splitlines()
    assert len(lines) == 2 + 2 + 65
    assert len({line.index("running") for line in lines[2:]}) == 1


def test_ps_of_a_run_that_starts(place: Place) -> None:
    place.live(starting() | {"helpers": []})
    (row,) = rows(place.hive("ps", "--json").out)
    assert (row["name"], row["state"]) == ("supervisor", "starting")


def test_ps_of_an_ended_run(place: Place) -> None:
    place.ended()
    done = place.hive("ps")
    assert table(done.out)[0] == ["cartpole-1", "finished"]
    assert {line[0]: line[1:] for line in table(done.out)[2:]} == {
        "supervisor": ["–", "finished", *("–",) * 9, "0"],
        "collector-0": ["–", "finished", *("–",) * 9, "1"],
        "learner-0": ["–", "finished", *("–",) * 9, "0"],
    }
    listed = rows(place.hive("ps", "--json").out)
    assert all(tuple(row) == PS_KEYS for row in listed)
    assert [row["restarts"] for row in listed] == [0, 1, 0]


def test_ps_shows_the_warnings_of_a_run(place: Place) -> None:
    place.ended(warnings=[warned(), warned("return collapsed", last_steps=20_000)])
    lines = place.hive("ps", "cartpole-1").out.splitlines()
    assert lines[1] == "warning: entropy gone: it is so; raise algorithm.entropy_weight"
    assert lines[2].startswith("NAME")
    supervisor, *actors = rows(place.hive("ps", "cartpole-1", "--json").out)
    assert [warning["kind"] for warning in supervisor["warnings"]] == ["entropy gone", "return collapsed"]
    assert {actor["warnings"] for actor in actors} == {None}


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "updates in native calls"),
        (1, "updates one by one (gradients."),
        (ROUNDS.index(OVERRIDDEN + "added_loss"), "updates by torch: Close.added_loss\n"),
        (ROUNDS.index(OVERRIDDEN + "targets"), "updates one by one: Close.targets\n"),
    ],
)
def test_ps_says_how_the_updates_of_a_round_are_made(place: Place, number: int, text: str) -> None:
    run = place.live(status(actor("learner-0", counters={**results(), "rounds": float(number)})))
    run.resolved_file.write_text('[algorithm]\nname = "close:Close"\n')
    assert f"\nrounds: {text}" in place.hive("ps", "cartpole-1").out
    first, *others = rows(place.hive("ps", "cartpole-1", "--json").out)
    assert first["rounds"].startswith(text.strip())
    assert {other["rounds"] for other in others} == {None}


@pytest.mark.parametrize("begun", [True, False])
def test_ps_of_a_lost_run(place: Place, begun: bool) -> None:
    place.lost() if begun else place.never_begun()
    (row,) = rows(place.hive("ps", "cartpole-1", "--json").out)
    assert row == dict.fromkeys(PS_KEYS) | {
        "run": "cartpole-1",
        "name": "supervisor",
        "state": "lost",
        "restarts": 0,
        "warnings": [],
    }


def test_ps_of_a_run_that_does_not_answer(place: Place) -> None:
    place.live(None)
    done = place.hive("ps")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: no supervisor listens in ")


# --- logs


@pytest.fixture
def talk(place: Place) -> RunDirectory:
    """A run that has ended, with two logs."""
    run = place.ended()
    say(run, "learner-0", "l0", "l1", second=1)
    say(run, "supervisor", "s0", second=0)
    say(run, "supervisor", "s2", second=2)
    (run.logs / "supervisor.out").write_text("what Python said\n")
    return run


def test_files_with_printed_output_are_named(place: Place) -> None:
    """It has no times, so it is in no log. The supervisor runs nothing of a user's."""
    run = place.ended()
    for name, text in (("collector-0", "hello\n"), ("collector-1", ""), ("learner-0", "bye\n"), ("supervisor", "!")):
        (run.logs / f"{name}.out").write_text(text)
        (run.logs / f"{name}.log").write_text("")
    of_all = f"printed output is in: {run.logs / 'collector-0.out'}, {run.logs / 'learner-0.out'}\n"
    assert place.hive("logs").err == f"run cartpole-1, finished\n{of_all}"
    assert place.hive("logs", "cartpole-1", "learner-0").err == f"printed output is in: {run.logs / 'learner-0.out'}\n"
    (run.logs / "collector-0.out").unlink()
    (run.logs / "collector-0.out").symlink_to("nowhere")
    assert place.hive("logs", "cartpole-1").err == f"printed output is in: {run.logs / 'learner-0.out'}\n"
    assert place.hive("logs", "cartpole-1", "collector-1").err == ""
    assert place.hive("logs", "cartpole-1", "--json").err == ""


def test_logs_are_merged_by_time(place: Place, talk: RunDirectory) -> None:
    done = place.hive("logs", "cartpole-1")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "supervisor | 2026-11-21 01:12:00.000 INFO s0",
        "learner-0  | 2026-11-21 01:12:01.000 INFO l0",
        "learner-0  | 2026-11-21 01:12:01.001 INFO l1",
        "supervisor | 2026-11-21 01:12:02.000 INFO s2",
    ]


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ((), ["s0", "l0", "l1", "s2"]),
        (("-n", "2"), ["l1", "s2"]),
        (("-n", "0"), []),
        (("-n", "4"), ["s0", "l0", "l1", "s2"]),
        (("--tail", "99999"), ["s0", "l0", "l1", "s2"]),
        (("cartpole-1", "learner-0"), ["l0", "l1"]),
        (("cartpole", "learner-0", "supervisor", "-n", "3"), ["l0", "l1", "s2"]),
        (("latest", "supervisor", "supervisor"), ["s0", "s2"]),
    ],
)
def test_logs_of_some_actors_and_their_last_lines(
    place: Place, talk: RunDirectory, words: tuple[str, ...], texts: list[str]
) -> None:
    done = place.hive("logs", *words)
    named = bool(words) and not words[0].startswith("-")
    assert (done.code, done.err) == (0, "" if named else "run cartpole-1, finished\n")
    assert [line.split()[-1] for line in done.out.splitlines()] == texts
    assert [line.split()[-1] for line in json.loads(place.hive("logs", *words, "--json").out)] == texts


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("lerner-0", "; did you mean `learner-0`?"),
        ("supervisors", "; did you mean `supervisor`?"),
        ("nobody", ""),
        ("supervisor.out", "; did you mean `supervisor`?"),
        ("../log/learner-0", "; did you mean `learner-0`?"),
    ],
)
@pytest.mark.parametrize("more", [(), ("-f",), ("--json",), ("learner-0",)])
def test_logs_of_an_actor_that_is_not_there(
    place: Place, talk: RunDirectory, word: str, near: str, more: tuple[str, ...]
) -> None:
    done = place.hive("logs", "cartpole-1", word, *more)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: cartpole-1 has no log of `{word}`{near}\n\nhint: its logs are: learner-0, supervisor\n"


def test_logs_of_an_actor_of_a_run_that_never_began(place: Place) -> None:
    place.never_begun()
    done = place.hive("logs", "cartpole-1", "learner-0")
    assert (done.code, done.out, done.err) == (
        2,
        "",
        "error: cartpole-1 has no log of `learner-0`, and no other logs\n",
    )


def test_a_rotated_log_is_read_once(place: Place, talk: RunDirectory) -> None:
    log = talk.log_file("learner-0")
    log.rename(log.with_name("learner-0.log.1"))
    say(talk, "learner-0", "l2", second=3)
    lines = place.hive("logs").out.splitlines()
    assert [line.split()[-1] for line in lines] == ["s0", "l0", "l1", "s2", "l2"]
    assert {line.split()[0] for line in lines} == {"supervisor", "learner-0"}


def test_logs_of_a_run_that_never_began(place: Place) -> None:
    place.never_begun()
    for words in ((), ("-f",)):
        done = place.hive("logs", "cartpole-1", *words)
        assert (done.code, done.out, done.err) == (0, "", "")
    assert json.loads(place.hive("logs", "cartpole-1", "--json").out) == []


def test_following_an_ended_run_ends(place: Place, talk: RunDirectory) -> None:
    assert place.hive("logs", "-f").out == place.hive("logs").out


@pytest.mark.parametrize("tail", [100, 1, 0])
def test_following_shows_every_new_line_once(place: Place, monkeypatch: pytest.MonkeyPatch, tail: int) -> None:
    run = place.live(None)
    say(run, "learner-0", "old", "l0", second=1)
    longer = "gradient-worker-0"  # makes the column of names wider

    def end() -> None:
        say(run, "learner-0", "last", second=9)
        place.end(run)

    looks = Looks(
        lambda: say(run, "learner-0", "l1", "l2", second=2),
        lambda: None,
        lambda: say(run, longer, "g0", second=3),
        lambda: say(run, longer, *(f"g{n}" for n in range(1, FOLLOW_LINES // 2)), second=4),
        end,
    )
    monkeypatch.setattr(logs, "time", looks)
    done = place.hive("logs", "cartpole-1", "-f", "-n", tail)
    assert (done.code, done.err, looks.between) == (0, "", [])
    new = ["l1", "l2", *(f"g{n}" for n in range(FOLLOW_LINES // 2)), "last"]
    assert [line.split()[-1] for line in done.out.splitlines()] == [*["old", "l0"][2 - min(tail, 2) :], *new]


def test_following_shows_lines_that_repeat(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tracebacks have lines in common, which bear no time."""
    run = place.live(None)
    traceback = "Traceback (most recent call last):\n  in step\n"

    def crash(second: int, text: str) -> None:
        say(run, "collector-0", text, second=second)
        with run.log_file("collector-0").open("a") as file:
            file.write(traceback)

    crash(1, "one")
    monkeypatch.setattr(logs, "time", Looks(lambda: crash(2, "two"), lambda: place.end(run)))
    lines = place.hive("logs", "cartpole-1", "-f").out.splitlines()
    last = [line.split()[-1] for line in lines]
    assert last == ["one", "last):", "step", "two", "last):", "step"]


def test_following_may_be_left(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    run = place.live(None)
    say(run, "learner-0", "l0")

    def leave() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(logs, "time", Looks(leave))
    done = place.hive("logs", "-f")
    assert (done.code, done.err) == (130, "run cartpole-1, running\n")
    assert done.out.endswith("l0\n")
    assert not run.summary_file.exists()


def test_a_number_of_lines() -> None:
    assert [logs._count(text) for text in ("007", "0", "000")] == [7, 0, 0]
    assert logs._count("9" * 20) == logs._count("9" * 5000) == logs.MOST_LINES
    for wrong in ("", "-1", "1.5", "many", "٣"):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a number of lines from 0 on, got"):
            logs._count(wrong)


def test_any_number_of_lines_is_shown(place: Place, talk: RunDirectory) -> None:
    every = place.hive("logs", talk.name, "-n", 1000).out
    assert place.hive("logs", talk.name, "-n", "9" * 20).out == every
    assert place.hive("logs", talk.name, "-n", 0).out == ""
