"""Several seeds: their syntax, the runs one after another or at once, the table, and the end when one is stopped."""

from __future__ import annotations

import dataclasses
import io
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from canned_status import status
from emulated import lines_on_screen
from fake_process import FakeProcess, fail, nothing

from hive.cli.parts import seed_run, seed_sweep, seed_table
from hive.cli.parts.seed_run import SeedRun
from hive.cli.parts.seed_sweep import MAX_SEEDS, seeds_of
from hive.cli.parts.seed_table import window
from hive.config import Config, load_config
from hive.cores import LIMIT
from hive.errors import ConfigError, UsageError
from hive.launch import new_run
from hive.monitor import StatusLine
from hive.records import RunDirectory, Summary, read_run_facts, write_run_facts
from hive.records.owner import give_up
from hive.tuning import Choice, Placement

if TYPE_CHECKING:
    from conftest import Done, Place


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ENDED = Summary(
    name="cart-1", scheme="a2c", state="finished", stop_reason="", seed=1, exact=True, env_steps=1000, updates=10,
    episodes=3, mean_return_100=20.0, started=0.0, wall_s=2.0, train_s=1.0, weights_sha256="", channels={}, restarts={},
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1..5", [1, 2, 3, 4, 5]), ("7", [7]), ("3,1,2", [3, 1, 2]), ("0..0", [0]), ("8..9", [8, 9]), ("1,2,2", [1, 2])],
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["", "5..1", "a..b", "1...3", "-1", "1,", f"0..{MAX_SEEDS}", "1..99999999999", "1 2"])
def test_invalid_seeds(text: str) -> None:
    with pytest.raises(UsageError, match="invalid seeds"):
        seeds_of(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("1-5", "did you mean 1..5?"),
        ("5..1", "did you mean 1..5?"),
        ("1:5", "did you mean 1..5?"),
        ("1,", "at most"),
        ("0-9999", "at most"),
    ],
)
def test_invalid_seeds_propose_the_range_that_was_meant(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        seeds_of(text)
    assert hint in caught.value.hint


class Runs:
    """Runs that end after some polls: seed 3 fails, 4 is stopped by the user, 5 ends before an episode, 6 is killed,
    and 7 cannot start.

    log: what happened, in order. polls: for how many polls a seed runs; 1 unless it is set. at_poll: what happens at
    the first one.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.log: list[str] = []
        self.polls: dict[int, int] = {}
        self.at_poll: dict[int, Callable[[], object]] = {}
        self.processes: dict[int, FakeProcess] = {}

    def start(self, directory: RunDirectory) -> FakeProcess:
        give_up(directory)
        seed = load_config(directory.resolved_file).run.seed
        self.log.append(f"start {seed} with {os.environ.get(LIMIT)}")
        script = [self.at_poll.get(seed, nothing), *[nothing] * self.polls.get(seed, 0)]
        self.processes[seed] = process = FakeProcess(*script, lambda: self.end(seed, directory))
        process.code = {6: -9, 7: 2}.get(seed, 0)
        if seed == 6:
            self.place.serve(directory, None)
            write_run_facts(
                directory, dataclasses.replace(read_run_facts(directory), start_time=1)
            )  # it is no longer alive
            process.pid = os.getpid()
        return process

    def end(self, seed: int, directory: RunDirectory) -> None:
        self.log.append(f"end {seed}")
        if seed == 7:
            fail(directory, ConfigError("no such environment"))
        elif seed == 6:
            directory.metrics_file.write_text('{"steps": 640, "updates": 5, "return/mean_100": 9.0}\n')
        else:
            stopped = seed == 4 or self.processes[seed].signals
            state = "failed" if seed == 3 else "stopped" if stopped else "finished"
            mean = None if seed == 5 else 10.0 * seed
            dataclasses.replace(
                ENDED, state=state, mean_return_100=mean, env_steps=1000 * seed, error="it broke" * (seed == 3) or None
            ).write(directory.summary_file)


@pytest.fixture
def runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> Runs:
    made = Runs(place)
    monkeypatch.setattr(seed_run, "start", made.start)
    monkeypatch.setattr(seed_sweep, "POLL_S", 0.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)))
    return made


def rows_of(done: Done) -> list[list[str]]:
    return [line.split() for line in done.out.splitlines()]


def test_one_after_the_other_in_one_table(place: Place, runs: Runs) -> None:
    done = place.hive("up", place.config(), "--seeds", "1,2,5", "--name", "cart")
    assert (done.code, done.err) == (0, "")
    assert runs.log == ["start 1 with None", "end 1", "start 2 with None", "end 2", "start 5 with None", "end 5"]
    assert rows_of(done) == [
        ["seed", "run", "state", "steps", "updates", "return", "seconds"],
        ["1", "cart-1", "finished", "1,000", "10", "10.0", "2.0"],
        ["2", "cart-2", "finished", "2,000", "10", "20.0", "2.0"],
        ["5", "cart-3", "finished", "5,000", "10", "–", "2.0"],
        ["median", "2,000", "15.0", "2.0"],
    ]


def test_jobs_run_at_once_each_with_its_share_of_the_cores(place: Place, runs: Runs) -> None:
    runs.polls = {1: 2}
    done = place.hive("up", place.config(), "--seeds", "1,2,5", "--jobs", "2")
    assert (done.code, done.err) == (0, "")
    assert runs.log == ["start 1 with 3", "start 2 with 3", "end 2", "start 5 with 3", "end 1", "end 5"]
    assert [row[0] for row in rows_of(done)] == ["seed", "2", "1", "5", "median"]
    assert LIMIT not in os.environ


def test_more_jobs_than_seeds_share_the_cores_among_the_seeds(place: Place, runs: Runs) -> None:
    assert place.hive("up", place.config(), "--seeds", "1..2", "--jobs=64").code == 0
    assert runs.log[:2] == ["start 1 with 3", "start 2 with 3"]


def test_a_failed_run_does_not_stop_the_others(place: Place, runs: Runs) -> None:
    done = place.hive("up", place.config(), "--seeds", "2,3,5", "--jobs", "2")
    assert (done.code, runs.log[-1]) == (1, "end 5")
    assert done.err == "seed 3: error: it broke\n\nhint: hive doctor cart-2, hive logs cart-2\n"


def test_a_killed_supervisor_fails_its_row_with_what_the_files_have(place: Place, runs: Runs) -> None:
    runs.polls = {2: 5}
    done = place.hive("up", place.config(), "--seeds", "2,6", "--jobs", "2")
    assert (done.code, rows_of(done)[1][:6]) == (1, ["6", "cart-2", "failed", "640", "5", "9.0"])
    assert "seed 6: error: the supervisor was killed (SIGKILL); the run cart-2 is lost" in done.err
    assert runs.log[-1] == "end 2"


def test_a_first_start_that_fails_starts_no_other(place: Place, runs: Runs) -> None:
    done = place.hive("up", place.config(), "--seeds", "7,1,2")
    assert (done.code, runs.log) == (2, ["start 7 with None", "end 7"])
    assert done.err == "seed 7: error: no such environment\n"
    assert rows_of(done)[1][:6] == ["7", "–", "failed", "–", "–", "–"]


def test_a_later_start_that_fails_does_not_stop_the_others(place: Place, runs: Runs) -> None:
    done = place.hive("up", place.config(), "--seeds", "1,7,2")
    assert (done.code, runs.log[-1]) == (1, "end 2")


def test_a_stopped_run_is_the_last(place: Place, runs: Runs) -> None:
    done = place.hive("up", place.config(), "--seeds", "1,4,2")
    assert (done.code, runs.log[-1]) == (0, "end 4")
    assert done.err == "to continue seed 4: hive resume cart-2\nto run the seeds that did not begin: --seeds 2\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_that_run_and_starts_no_other(place: Place, runs: Runs, number: signal.Signals) -> None:
    runs.polls = {1: 4, 2: 4}
    runs.at_poll = {1: lambda: signal.raise_signal(number)}
    done = place.hive("up", place.config(), "--seeds", "1,2,5", "--jobs", "2")
    assert (done.code, runs.log[2:]) == (0, ["end 1", "end 2"])
    asked = signal.SIGTERM if number == signal.SIGHUP else number
    assert [process.signals for process in runs.processes.values()] == [[asked], [asked]]
    assert [row[2] for row in rows_of(done)[1:3]] == ["stopped", "stopped"]
    assert done.err.startswith("stopping: saving the state of all that run - ")
    assert done.err.endswith(
        "again to stop at once\nto continue seed 1: hive resume cart-1\n"
        "to continue seed 2: hive resume cart-2\nto run the seeds that did not begin: --seeds 5\n"
    )


def test_what_the_first_run_measured_is_given_to_all(place: Place, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[list[str], str | None]] = []

    def decide(config: Config, report: object) -> Choice:
        measured.append((runs.log[:], os.environ.get(LIMIT)))
        return Choice(Placement(2, 0, 8), {"collection.workers": 2}, "two are faster")

    monkeypatch.setattr(new_run, "decide", decide)
    done = place.hive("up", place.config(), "--seeds", "1,2,5", "--jobs", "3", "-s", "collection.workers=auto")
    assert done.code == 0
    assert measured == [([], "2")]
    chosen = [load_config(place.runs / f"cart-{n}/resolved.toml").collection.workers for n in (1, 2, 3)]
    assert chosen == [2, 2, 2]


def test_a_terminal_has_a_row_for_each_seed(place: Place, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(seed_table, "StatusLine", lambda _: StatusLine(terminal))
    seen: list[list[list[str]]] = []

    def look() -> None:
        seen.append([line.split() for line in lines_on_screen(terminal.getvalue())])
        if "20,480" not in terminal.getvalue():  # the status of the supervisor is on its way
            runs.processes[1].script.insert(0, look)

    def serve() -> None:
        place.serve(RunDirectory.open(place.runs / "cart-1"), status())
        look()

    runs.at_poll = {1: serve}
    assert place.hive("up", place.config(), "--seeds", "1,2,5", "--jobs", "2").code == 0
    first, last = seen[0], seen[-1]
    assert [row[:3] for row in first] == [
        ["seed", "run", "state"], ["1", "cart-1", "running"], ["2", "cart-2", "running"], ["5", "–", "waiting"],
    ]  # fmt: skip
    assert last[1][:5] == ["1", "cart-1", "running", "20,480", "40"]
    shown = [line.split()[:3] for line in lines_on_screen(terminal.getvalue())]
    assert shown == [
        ["seed", "run", "state"], ["1", "cart-1", "finished"], ["2", "cart-2", "finished"], ["5", "cart-3", "finished"],
        ["median", "2,000", "15.0"], [],
    ]  # fmt: skip


def test_a_low_terminal_shows_the_rows_around_those_that_run() -> None:
    runs = [SeedRun(seed) for seed in range(9)]
    for run in runs[:4]:
        run.state = "finished"
    runs[4].state = "running"
    rows = [row.split()[0] for row in window(runs, 4)]
    assert rows == ["4", "5", "6", "9"]
    assert window(runs, 4)[-1] == "9 seeds, of which 4 are waiting"
    assert [row.split()[0] for row in window(runs, 9)] == [*"012345678"]
    assert [row.split()[0] for row in window(runs[:6], 4)] == ["3", "4", "5", "6"]


def test_bad_seeds_start_nothing(place: Place, runs: Runs) -> None:
    done = place.hive("up", place.config(), "--seeds", "many")
    assert (done.code, runs.log) == (2, [])
    assert "error: invalid seeds `many`" in done.err
    assert not place.runs.exists()
