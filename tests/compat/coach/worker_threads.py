"""Calls of several workers at the same time, for tests of networks that share a global one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

PATIENCE_S = 30.0  # limit for a test that would otherwise hang


def in_threads(*calls: Callable[[], Any]) -> list[BaseException | None]:
    """Run every call in a separate thread; return what each raised."""
    raised: list[BaseException | None] = [None] * len(calls)

    def run(place: int) -> None:
        torch.set_num_threads(1)  # OpenMP has this number for each thread by itself, and the bits depend on it
        try:
            calls[place]()
        except BaseException as error:
            raised[place] = error

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    return raised
