"""The agent in a process of its own, which no head answers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from hive.hosts.agent_process import AgentProcess
from hive.runtime.wire.links import KEY_LENGTH, KeyPair


def test_a_key_pair_is_new_each_time_and_stays_here() -> None:
    agent = AgentProcess()
    (first, machine), (second, _) = agent.key(), agent.key()
    assert first != second
    assert len(second) == KEY_LENGTH
    assert machine == os.uname().nodename
    assert agent.keys is not None
    assert agent.keys.secret not in repr(agent.keys)


def test_the_agent_ends_with_its_input(tmp_path: Path) -> None:
    agent = AgentProcess()
    public, _ = agent.key()
    facts = {"run": "r", "host": "left", "address": "tcp://127.0.0.1:1", "head": KeyPair.new().public}
    lines: list[str] = []
    ran = threading.Thread(
        target=lambda: lines.append(
            agent.run(str(tmp_path / "missing"), facts | {"public": public, "secret": "", "silence_s": 2.0})
        )
    )
    ran.start()
    try:
        while agent.process is None and ran.is_alive():
            pass
        assert agent.process is not None
        agent.process.wait(10)  # the agent is not its child
    finally:
        agent.stop()
        ran.join(30)
    assert not ran.is_alive()
    assert lines in ([""], ["waiting for the head of r at tcp://127.0.0.1:1"])
