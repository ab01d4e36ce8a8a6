"""One thread, as in every process of a run."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
