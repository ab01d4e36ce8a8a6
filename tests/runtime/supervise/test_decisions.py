"""Decisions read no clock, transport, process table or shared memory, and every action can be executed."""

from __future__ import annotations

import ast
import typing
from pathlib import Path

import pytest
from supervisor_states import running

from hive.clock import RealClock
from hive.runtime.process.processes import SharedMemory
from hive.runtime.supervise import actions, supervisor
from hive.runtime.supervise.membership import Settings
from hive.runtime.supervise.outcome import Journal
from hive.runtime.supervise.supervisor import Supervisor
from hive.runtime.wire.transport import MemoryTransport

FOLDER = Path(supervisor.__file__).parent
DECISIONS = ("changes", "ending", "exits", "inbox", "joining", "membership", "pausing", "supervisor_state", "watchdog")
FORBIDDEN = {"asyncio", "time", "hive.clock", "hive.runtime.wire.transport", "hive.runtime.memory.segments"}
FORBIDDEN |= {f"hive.runtime.supervise.{name}" for name in ("effects", "recovery", "supervisor")}
ALLOWED_NAMES = {
    "hive.runtime.process.processes": {"Exit"},
    "hive.runtime.memory.status": {"BUSY", "RUNTIME", "START", "ActorStatus"},
    "hive.runtime.supervise.accounting": {"holds"},
}


@pytest.mark.parametrize("name", DECISIONS)
def test_decisions_import_nothing_that_does_input_or_output(name: str) -> None:
    for node in ast.walk(ast.parse((FOLDER / f"{name}.py").read_text())):
        if isinstance(node, ast.Import):
            assert not FORBIDDEN & {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.module not in FORBIDDEN
            names = {alias.name for alias in node.names}
            assert names <= ALLOWED_NAMES.get(str(node.module), names), node.module


class NoProcesses:
    """A process table that is never used."""

    restarts = dedicated = True

    def kill(self, process: str) -> None:
        raise AssertionError(process)


def test_every_action_is_executed_at_once_or_later() -> None:
    plan = running(["a"]).plan
    memory = SharedMemory(plan)
    journal = Journal(lambda kind, text, fields: None, lambda report: "")
    made = Supervisor(
        plan,
        NoProcesses(),
        MemoryTransport(),
        memory,
        RealClock(),
        Settings(),
        journal,
        "memory://x",  # type: ignore[arg-type]
    )
    every = set(typing.get_args(actions.Action))
    assert set(made.later) | set(made.effects.table) == every
    assert not set(made.later) & set(made.effects.table)
    memory.close()
