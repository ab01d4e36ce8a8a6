"""Requests to end a run: how they are counted."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hive.config import load_config, render
from hive.records import RunDirectory
from hive.runtime.run.live_run import LiveRun

TERM, INT = ("SIGTERM", False, "signal"), ("Ctrl-C", False, "signal")
PASSED_ON = ("SIGTERM", False, "control")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LiveRun]:
    directory = RunDirectory.create(tmp_path / "home", "cart")
    directory.config_file.write_text('[env]\nid = "CartPole-v1"\n')
    directory.resolved_file.write_text(render(load_config(directory.config_file)))
    made = LiveRun(directory)
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
        with run.signals():
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
