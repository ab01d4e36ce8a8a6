"""One thread, as in every process of a run; and the modules beside this file importable, as a user's are."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))
