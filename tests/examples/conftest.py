"""Examples can be imported by name, as `hive up --topology` imports them; one thread, as in the processes of a run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
sys.path.insert(0, str(Path(__file__).parent))

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a test's runs."""
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    return tmp_path
