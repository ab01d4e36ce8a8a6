"""The tests of the guide share `pages` and import modules of scripts/; one thread, as in the processes of a run."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
sys.path.insert(0, str(Path(__file__).parent))

torch.set_num_threads(1)
