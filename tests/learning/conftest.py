"""One thread, as in every process of a run: threads that wait for each other on busy cores are slow."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
