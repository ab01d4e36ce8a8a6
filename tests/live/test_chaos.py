"""The short form of scripts/chaos: real runs whose processes are killed and stopped at random, judged by its report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import House

CHAOS = Path(__file__).parents[2] / "scripts" / "chaos"
LIMIT_S = 300.0  # for a form of a minute on a busy machine; one that hangs ends itself before
ROLES = {"collector", "gradient-worker", "learner", "evaluator", "recorder", "fork-server"}


def chaos(house: House, config: Path, *words: str) -> dict[str, Any]:
    """What the script says of one run."""
    report = house.folder / "chaos.json"
    process = subprocess.Popen(
        [sys.executable, str(CHAOS), "--config", str(config), "--json", str(report), *words],
        env=house.env,
        cwd=house.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)  # it ends its runs
            process.communicate()
    assert report.exists(), said
    document = json.loads(report.read_text())
    assert (process.returncode, document["broken"]) == (0, []), said
    assert not tenants(house.folder)
    (run,) = document["runs"]
    found: dict[str, Any] = run
    return found


def tenants(folder: Path) -> list[str]:
    """Living processes that know this folder from their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"={folder}".encode() in (entry / "environ").read_bytes():
                found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
        except OSError:
            continue
    return found


@pytest.mark.full(reason="half a minute of kills; test_death.py kills each once", rotates=True)
def test_a_run_whose_processes_are_killed_and_stopped_at_random_reaches_its_target(house: House) -> None:
    run = chaos(house, house.cartpole(), "--seconds", "30", "--seed", "1")
    assert {strike["role"] for strike in run["strikes"]} == ROLES
    assert {strike["signal"] for strike in run["strikes"]} == {"SIGKILL", "SIGSTOP"}
    assert run["summary"]["env_steps"] >= run["target_steps"]
    for promise in run["promises"]:  # all but growth, for which half a minute may hold too few calm moments
        assert promise["kept"] or "grow" in promise["text"], promise


@pytest.mark.full(reason="ten kills and a run beside; test_death.py kills the learner once", rotates=True)
@pytest.mark.parametrize("sets", [("scheme=a2c",), ("scheme=nstep-q", "carrier=zmq")], ids=" ".join)
def test_a_learner_that_is_killed_again_and_again_loses_no_update_and_changes_no_weight(
    house: House, sets: tuple[str, ...]
) -> None:
    killed = ("--only", "learner", "--kills", "10", "--pause", "0.2", "0.5")
    run = chaos(house, house.cartpole(), *killed, "--beside", *(f"--set=run.{one}" for one in sets))
    assert [strike["role"] for strike in run["strikes"]] == ["learner"] * 10
    assert run["summary"]["restarts"]["learner-0"] == 10
    assert len(run["lost_updates"]) >= 5  # those of which both sides were seen
    assert max(run["lost_updates"]) <= 1
    assert run["summary"]["weights_sha256"] == run["beside"]["weights_sha256"]
