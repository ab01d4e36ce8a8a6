"""A full disk: training goes on, the last good checkpoint stays, and the run can still say how it ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hive.records import RunDirectory, read_run_facts
from hive.records.run_warnings import RECOVERED

if TYPE_CHECKING:
    from conftest import House

SIZE = "4m"
PAGE = 4096
CHECKPOINTS = "[checkpoint]\nevery = { updates = 20 }\n[supervision]\nrestarts = 50\n"


@pytest.fixture
def small_disk(house: House) -> Iterator[House]:
    """The house keeps its runs on a disk of 4 MiB."""
    house.home.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", house.home], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield house
    subprocess.run(["umount", house.home], check=True)


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
        try:
            while True:
                file.write(b"x")
        except OSError:
            return ballast


@pytest.mark.full(reason="the next test fills a disk, too", rotates=True)
def test_training_outlives_a_full_disk(small_disk: House) -> None:
    house, run = small_disk, small_disk.home / "cart-1"
    assert house.hive("up", house.cartpole(more=CHECKPOINTS), "-d").returncode == 0
    house.until(lambda: len(list((run / "checkpoints").glob("*/DONE"))) >= 2)
    ballast = fill(house.home)
    saved = sorted(path.name for path in (run / "checkpoints").iterdir() if not path.name.startswith("."))
    steps = int(house.ps("cart-1")["learner-0"]["counters"]["env_steps"])
    for name in ("collector-0", "recorder", "learner-0"):  # nor does a full disk keep anybody from coming back
        os.kill(house.ps("cart-1")[name]["pid"], signal.SIGKILL)
        house.until(lambda name=name: house.ps("cart-1")[name]["restarts"] == 1)  # type: ignore[misc]
    house.until_steps("cart-1", steps + 20_000)
    there = sorted(path.name for path in (run / "checkpoints").iterdir() if not path.name.startswith("."))
    assert set(there) <= set(saved)
    assert there
    ballast.unlink()
    house.until(lambda: any(path.parent.name > saved[-1] for path in (run / "checkpoints").glob("*/DONE")))
    assert house.hive("down", "cart-1").returncode == 0
    assert house.ended("cart-1")["state"] == "stopped"


def test_a_run_whose_disk_is_full_to_the_end_says_so_at_once_and_how_it_ended(small_disk: House) -> None:
    house, run = small_disk, small_disk.home / "cart-1"
    up = house.start("up", house.cartpole(more=CHECKPOINTS))
    assert up.stderr is not None
    house.until(lambda: any((run / "checkpoints").glob("*/DONE")))
    fill(house.home)
    events = run / "events.jsonl"
    with events.open("ab") as file:
        file.write(b"\n" * (-events.stat().st_size % PAGE))  # the page that the file already has
    assert any("checkpoints not written: cannot write" in line for line in up.stderr)
    assert up.poll() is None
    assert house.hive("down", "cart-1").returncode == 1
    up.communicate()
    summary = house.ended("cart-1")
    assert (summary["state"], summary["stop_reason"]) == ("failed", "recorder failed at the end (hive down)")
    assert "was not saved: cannot write" in summary["error"]
    assert not (run / ".reserve").exists()


@pytest.mark.full(reason="a folder is removed rarely", rotates=True)
def test_a_run_whose_directory_is_removed_ends(house: House) -> None:
    assert house.hive("up", house.cartpole(more=CHECKPOINTS), "-d").returncode == 0
    house.until_steps("cart-1", 1)
    shutil.rmtree(house.home / "cart-1", ignore_errors=True)
    house.until(lambda: not house.processes())


@contextmanager
def stopped_supervisor(house: House) -> Iterator[None]:
    """Stop the supervisor, so that it does not make its socket folder again while the folder is being removed."""
    pid = house.ps("cart-1")["supervisor"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    house.until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T"))
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.full(reason="a folder is removed rarely", rotates=True)
def test_a_run_whose_socket_folder_is_removed_is_seen_and_restarts_actors(house: House) -> None:
    run = house.home / "cart-1"
    assert house.hive("up", house.cartpole(), "-d").returncode == 0
    house.until_steps("cart-1", 1)
    pids = [house.ps("cart-1")[name]["pid"] for name in ("collector-0", "learner-0")]
    with stopped_supervisor(house):
        shutil.rmtree(read_run_facts(RunDirectory.open(run)).socket_folder)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    house.until(lambda: house.hive("ps", "cart-1").returncode == 0)
    house.until(lambda: [house.ps("cart-1")[name]["restarts"] for name in ("collector-0", "learner-0")] == [1, 1])
    assert house.hive("set", "cart-1", "algorithm.learning_rate=0.0005").returncode == 0
    house.until(lambda: any(event["kind"] == RECOVERED for event in house.events("cart-1")))
    assert house.hive("down", "cart-1").returncode == 0
    summary = house.ended("cart-1")
    assert summary["state"] == "stopped"
    ended = {warning["kind"]: warning["last_steps"] for warning in summary["warnings"]}
    assert ended["socket folder removed"] is not None


@pytest.mark.full(reason="a folder is removed rarely", rotates=True)
def test_a_run_whose_socket_folder_cannot_be_made_again_is_ended_and_saved(house: House) -> None:
    run = house.home / "cart-1"
    assert house.hive("up", house.cartpole(more=CHECKPOINTS), "-d").returncode == 0
    house.until(lambda: any((run / "checkpoints").glob("*/DONE")))
    folder = Path(read_run_facts(RunDirectory.open(run)).socket_folder)
    with stopped_supervisor(house):
        shutil.rmtree(folder)
        folder.write_text("a file in its place")
    done = house.hive("down", "cart-1")
    assert (done.returncode, done.stdout) == (0, "cart-1 stopped\n")
    folder.unlink()
    assert "the socket folder of cart-1 is gone" in done.stderr
    assert house.ended("cart-1")["state"] == "stopped"
