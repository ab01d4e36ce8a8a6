"""One thread, as in every process of a run; and helpers importable, those of the workers' tests too."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent

torch.set_num_threads(1)
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "training")]
