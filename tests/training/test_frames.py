"""Frames of the game beside environment steps, where the environment declares how many a step has."""

from __future__ import annotations

from pathlib import Path

import pytest

import hive
from hive.launch.run_report import ending_text
from hive.records import Summary

IN_ONE_PROCESS = "[collection]\nworkers = 0\nenvs = 2\nrollout = 32\n[gradients]\nworkers = 0\n"
REPEATED = '[{ name = "RepeatAction", num_repeats = 3 }]'


@pytest.mark.parametrize(("wrappers", "frames"), [(REPEATED, 384), ("[]", None)])
def test_the_summary_has_the_frames_of_its_steps(
    wrappers: str, frames: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    path = tmp_path / "frames.toml"
    path.write_text(f'[run]\nsteps = 128\n[env]\nid = "CartPole-v1"\nwrappers = {wrappers}\n{IN_ONE_PROCESS}')
    result = hive.train(path, inline=True, quiet=True)
    summary = Summary.read(Path(result.directory) / "summary.json")
    assert (summary.frames, summary.env_steps) == (frames, 128)
    assert ending_text(summary, []) == "finished: 128 steps" + (", 384 frames" if frames else "")
