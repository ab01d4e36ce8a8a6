"""Requests to end a run, and removed folders."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import resource
import shutil
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from hive.config import load_config, render
from hive.errors import ConfigError
from hive.records import RunDirectory, read_jsonl
from hive.records.run_warnings import RunWarning, facts_of
from hive.runtime.run.conclusion import conclude, why_inexact
from hive.runtime.run.folders import live_owners
from hive.runtime.run.live_run import LiveRun
from hive.runtime.supervise.outcome import Outcome

TERM, INT = ("SIGTERM", False, "signal"), ("Ctrl-C", False, "signal")
PASSED_ON = ("SIGTERM", False, "control")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LiveRun]:
    directory = RunDirectory.create(tmp_path / "home", "cart")
    directory.config_file.write_text('[env]\nid = "CartPole-v1"\n')
    directory.resolved_file.write_text(render(load_config(directory.config_file)))
    made = LiveRun(directory)
    made.write_facts()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("requests", "at_once"),
    [
        ([TERM], False),
        ([TERM, PASSED_ON], False),  # to the supervisor and to the command, in any order
        ([PASSED_ON, TERM], False),
        ([INT, TERM], False),  # as LSF sends them, ten seconds apart
        ([TERM, TERM], True),
        ([TERM, PASSED_ON, TERM], True),
        ([PASSED_ON, TERM, ("SIGTERM", True, "control")], True),  # the command has received a second one
        ([("hive down", False, "control"), INT], False),
        ([("hive down", False, "control")] * 2, True),
    ],
)
def test_one_request_by_several_ways_is_one_and_a_second_one_ends_the_run_at_once(
    run: LiveRun, requests: list[tuple[str, bool, str]], at_once: bool
) -> None:
    for request in requests:
        run.down(*request)
    assert run.at_once == at_once
    assert run.requested == (requests[-1][0], at_once)


def test_signals_end_the_run_and_later_ones_do_no_harm(run: LiveRun) -> None:
    before = signal.getsignal(signal.SIGTERM)
    handled: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: handled.append(number))

    async def main() -> None:
        with run.signals.handled():
            for number in (signal.SIGTERM, signal.SIGHUP):
                os.kill(os.getpid(), number)
            while run.requested is None:
                await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)  # while it closes: the handler of before is back

    try:
        asyncio.run(main())
        assert run.requested == ("SIGTERM", False)
        assert handled == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_run_may_open_as_many_files_as_the_system_allows(run: LiveRun) -> None:
    run.close()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
    LiveRun(run.directory).close()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


def test_a_removed_socket_folder_is_made_again_and_the_run_says_so(run: LiveRun) -> None:
    run.stage = 1
    shutil.rmtree(run.socket_folder)
    run.event("died", "collector-0")  # its restart needs the folder
    assert stat.S_IMODE(run.socket_folder.stat().st_mode) == 0o700
    assert (run.socket_folder / "1").is_dir()
    assert (run.directory.path, os.getpid()) in live_owners()
    assert list(run.warnings) == ["socket folder removed"]
    run.check_folders()
    assert [event["kind"] for event in read_jsonl(run.directory.events_file)] == ["warning", "died", "recovered"]
    run.close()
    assert not run.socket_folder.exists()


def test_a_socket_folder_that_cannot_be_made_again_does_not_end_the_run(run: LiveRun) -> None:
    shutil.rmtree(run.socket_folder)
    run.socket_folder.write_text("a file in its place")
    run.check_folders()
    assert not run.warnings
    assert run.requested is None
    run.socket_folder.unlink()


def test_a_socket_folder_that_a_failed_build_has_removed_is_no_warning(run: LiveRun) -> None:
    shutil.rmtree(run.socket_folder)  # as the fork server does when it exits
    conclude(run, Outcome("failed", "the build failed", "", "", False, {}, {}, {}, ""))
    assert not run.warnings
    assert not run.socket_folder.exists()


def test_a_refusal_is_that_of_the_last_change(run: LiveRun) -> None:
    run.next_config = load_config(run.directory.config_file, ["collection.workers=3"])
    run.next_stage()
    run.revert_change(ConfigError("there is no room"))
    assert run.refused == "there is no room"
    run.next_stage()
    assert (run.stage, run.refused) == (2, "")


def test_an_accepted_warning_is_a_fact(run: LiveRun) -> None:
    run.config = dataclasses.replace(run.config, run=dataclasses.replace(run.config.run, accept=("return constant",)))
    constant, skipped = (RunWarning(name, "it is so", "", 5) for name in ("return constant", "updates skipped"))
    for warning in (constant, skipped):
        run.event("warning", warning.line, {key: value for key, value in warning.event.items() if key != "kind"})
    run.event("fact", "it is so", {"fact": "global random numbers"})
    assert [*run.warnings] == ["updates skipped"]
    logged = facts_of(read_jsonl(run.directory.events_file))
    assert [*logged] == [*run.facts] == ["return constant", "global random numbers"]


def test_collectors_with_other_files_are_told_of_once(run: LiveRun) -> None:
    mine, other = {"module t": "1", "CPU kernels": "AVX2"}, {"module t": "2", "CPU kernels": "AVX512"}
    for code in (mine, mine, other, other):
        run.event("code", "left has module t", {"code": code})
    assert [event["kind"] for event in read_jsonl(run.directory.events_file)] == ["code", "warning", "code"]
    assert "module t of left" in run.warnings["other code"].text
    outcome = Outcome("finished", "", "", "", True, {}, {}, {}, "")
    assert [cause.partition(" was")[0] for cause in why_inexact(run, outcome)[-2:]] == ["module t", "CPU kernels"]
    run.close()
    again = LiveRun(run.directory)  # resumed with what the last part had
    again.event("code", "collector-0 has module t", {"code": other})
    assert not again.code.others
    again.close()


def test_a_run_whose_directory_is_removed_ends(run: LiveRun) -> None:
    shutil.rmtree(run.directory.path)
    run.check_folders()
    run.check_folders()  # is no second request
    assert run.requested == (f"{run.directory.path} was removed or renamed", False)
