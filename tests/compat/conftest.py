"""One thread, as in every process of a run; and the settings of a host that the tests of networks use."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
sys.path.append(str(Path(__file__).parents[1] / "networks"))  # host_settings
sys.path.append(str(Path(__file__).parent / "coach"))  # worker_threads
