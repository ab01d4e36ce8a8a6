"""A folder for commands, with runs made by hand and scripted supervisors."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hive.cli import main
from hive.config import load_config, render
from hive.records import (
    RunDirectory,
    RunFacts,
    Summary,
    process_start_time,
    replace_best,
    write_checkpoint,
    write_run_facts,
)
from hive.runtime.run.control import PROTOCOL

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "monitor")]  # fake_process, canned_status

from fake_supervisor import FakeSupervisor  # noqa: E402

ENV = '[env]\nid = "CartPole-v1"\n'
NAMED = f'run.name = "cart"\n{ENV}'


@dataclass
class Done:
    """The exit code and output of a command."""

    code: int | str | None
    out: str
    err: str


@dataclass
class Place:
    """A folder in which commands are given; `runs` is its $HIVE_HOME."""

    folder: Path
    runs: Path
    capture: pytest.CaptureFixture[str]
    untrained: Callable[[tuple[int, ...], int, tuple[str, ...]], Path]
    supervisors: list[FakeSupervisor] = field(default_factory=list)

    def hive(self, *words: object) -> Done:
        """`hive ...`, in this process."""
        self.capture.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        return Done(ended.value.code, *self.capture.readouterr())

    def config(self, text: str = NAMED, name: str = "cart.toml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def never_begun(self, name: str = "cartpole") -> RunDirectory:
        directory = RunDirectory.create(self.runs, name)
        directory.resolved_file.write_text(render(load_config(f"{name}.toml", text=ENV)))
        return directory

    def lost(self, name: str = "cartpole", *, started: float = 1.7e9) -> RunDirectory:
        """A run whose supervisor is gone."""
        directory = self.never_begun(name)
        self._write_facts(directory, pid=1 << 30, start_time=1, started=started, sockets=self.folder)
        return directory

    def ended(self, name: str = "cartpole", *, started: float = 1.7e9, **changes: Any) -> RunDirectory:
        """A run that ended in order."""
        directory = self.lost(name, started=started)
        self.end(directory, started=started, **changes)
        return directory

    def end(self, directory: RunDirectory, **changes: Any) -> None:
        """Writes the summary."""
        values = {
            "name": directory.name,
            "scheme": "a2c",
            "state": "finished",
            "stop_reason": "500,000 steps",
            "seed": 1,
            "exact": True,
            "env_steps": 500_000,
            "updates": 976,
            "episodes": 2810,
            "mean_return_100": 471.5,
            "started": 1.7e9,
            "wall_s": 61.52,
            "train_s": 50.0,
            "weights_sha256": "ab" * 32,
            "channels": {},
            "restarts": {"collector-0": 1, "learner-0": 0},
        }
        Summary(**(values | changes)).write(directory.summary_file)

    def trained(self, updates: Sequence[int], best: int, sets: Sequence[str] = (), **changes: Any) -> RunDirectory:
        """An ended run with checkpoints of these updates and a best policy, all of which have learned nothing.

        sets: keys of its config.
        """
        run = self.ended(**changes)
        shutil.copytree(self.untrained((*updates,), best, (*sets,)), run.path, dirs_exist_ok=True)
        return run

    def live(self, status: dict[str, Any] | None, name: str = "cartpole", **facts: Any) -> RunDirectory:
        """A run that lives; its supervisor says `status`, or nothing."""
        directory = self.never_begun(name)
        self.serve(directory, status, **facts)
        return directory

    def serve(
        self, directory: RunDirectory, status: dict[str, Any] | None, *, pid: int = 0, started: float = 1.75e9
    ) -> None:
        """Gives the run a supervisor, which lives as long as the process `pid` (this one)."""
        start_time = process_start_time(pid or os.getpid())
        assert start_time is not None
        sockets = Path(tempfile.mkdtemp(dir=self.folder))
        if status is not None:
            self.supervisors.append(FakeSupervisor(sockets, status))
        self._write_facts(directory, pid=pid or os.getpid(), start_time=start_time, started=started, sockets=sockets)

    def _write_facts(
        self, directory: RunDirectory, *, pid: int, start_time: int, started: float, sockets: Path
    ) -> None:
        facts = RunFacts(
            directory.name, pid, start_time, str(sockets), started, ["hive"], "0.1.0", "3.11.7", protocol=PROTOCOL
        )
        write_run_facts(directory, facts)


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[int, ...], int, tuple[str, ...]], Path]:
    """Folders of runs as `Place.trained` makes them, which tests copy."""
    folder = tmp_path_factory.mktemp("untrained")

    @functools.cache
    def made(updates: tuple[int, ...], best: int, sets: tuple[str, ...]) -> Path:
        from hive.networks import aligned_block
        from hive.training import Blueprint

        run = RunDirectory.create(folder, "run")
        config = load_config("cartpole.toml", list(sets), text=ENV)
        run.resolved_file.write_text(render(config))
        blueprint = Blueprint(config)
        block = aligned_block(blueprint.flat.block_bytes)
        blueprint.flat.initialize_into(block)
        tensors = blueprint.flat.arrays(block)
        for update in (*updates, best):
            state = {"policy": blueprint.policy(), "env_steps": 32 * update, "updates": update, "mean_return": 90.0}
            if update == best:
                replace_best(run.best, update, tensors=tensors, state=state)
            else:
                write_checkpoint(run.checkpoints, update, tensors=tensors, parts={}, state=state)
        return run.path

    return made


@pytest.fixture
def place(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    untrained: Callable[[tuple[int, ...], int, tuple[str, ...]], Path],
) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="hv"))  # a short name: a socket's path has 107 bytes
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HIVE_HOME", str(folder / "runs"))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(sys, "path", list(sys.path))  # a command puts its folder there
    made = Place(folder, folder / "runs", capsys, untrained)
    yield made
    for supervisor in made.supervisors:
        supervisor.close()
    shutil.rmtree(folder)
