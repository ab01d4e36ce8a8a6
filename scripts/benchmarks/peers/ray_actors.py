"""Ray's side of `bench channel`: `ray_actors.py KIND SECONDS` measures the same rates as hive's ways, without hive.

It calls one actor in portions; the next portion is in flight while the previous one is awaited.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import ray

MB, BATCH, WARM = 1 << 20, 1000, 200


@ray.remote
class Peer:
    def __init__(self) -> None:
        self.mine = np.empty(MB, np.uint8)

    def look(self, picture: Any) -> None:
        np.copyto(self.mine, picture)

    def add(self, value: int, score: float) -> None:
        """Do nothing: only the transport is measured."""

    def echo(self, value: int) -> int:
        return value


def stream(ask: Callable[[], Any], portion: int, seconds: float) -> float:
    """Return the calls per second."""
    ray.get([ask() for _ in range(portion)])
    begun, count, before = time.perf_counter(), 0, [ask() for _ in range(portion)]
    while (took := time.perf_counter() - begun) < seconds:
        following = [ask() for _ in range(portion)]
        ray.get(before)
        count, before = count + portion, following
    return count / took


def round_trips(peer: Any, seconds: float) -> dict[str, float]:
    for value in range(WARM):
        ray.get(peer.echo.remote(value))
    begun, times = time.perf_counter(), list[int]()
    while time.perf_counter() - begun < seconds:
        start = time.perf_counter_ns()
        ray.get(peer.echo.remote(len(times)))
        times.append(time.perf_counter_ns() - start)
    return {"rate": len(times) / seconds, "p50_us": statistics.median(times) / 1e3}


def main(kind: str, seconds: float) -> dict[str, float]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        peer = Peer.remote()  # type: ignore[attr-defined,unused-ignore]  # untyped where it is not installed
        if kind == "call":
            return round_trips(peer, seconds)
        if kind == "small":
            return {"rate": stream(lambda: peer.add.remote(7, 0.5), BATCH, seconds)}
        picture = np.ones(MB, np.uint8)
        return {"rate": stream(lambda: peer.look.remote(picture), 8, seconds) * MB / 1e9}
    finally:
        ray.shutdown()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], float(sys.argv[2]))))
