"""One thread, as in every process of a run: threads that wait for each other on busy cores are slow."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
sys.path.append(str(Path(__file__).parent))  # host_settings
