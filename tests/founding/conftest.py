"""One thread, as in every process of a run; and the small environments of the workers' tests importable."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
sys.path.insert(0, str(Path(__file__).parents[1] / "compat" / "coach"))  # worker_threads
sys.path.insert(0, str(Path(__file__).parent))
