"""The bare loop: hive's collector fills one rollout again and again, in one process without a learner.

    python bare_loop.py KEYS SECONDS

KEYS is a file with a JSON list of hive's keys, "KEY=VALUE". Its rate is the limit that environments and policy set. The
rate of a run is lower by the cost of everything else.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from hive.config import load_config
from hive.networks import aligned_block
from hive.training import Blueprint

WARM_ROLLOUTS = 5  # rollouts not measured: the first calls of torch and of the environments are slower


def run(keys: Path, seconds: float) -> dict[str, float]:
    blueprint = Blueprint(load_config("bare.toml", json.loads(keys.read_text()), text=""))
    collector = blueprint.collector(0)
    rollout = blueprint.rollout_layout.views(aligned_block(blueprint.rollout_layout.bytes))
    collector.reset()
    steps, number, start = 0, 0, time.perf_counter()
    while number <= WARM_ROLLOUTS or time.perf_counter() - start < seconds:
        if number == WARM_ROLLOUTS:
            steps, start = 0, time.perf_counter()
        collector.collect(rollout, sequence=number, version=0)
        steps += int(rollout["valid"].sum())
        number += 1
    spent = time.perf_counter() - start
    collector.close()
    return {"steps_per_s": steps / spent, "rollout_ms": 1e3 * spent / (number - WARM_ROLLOUTS)}


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), float(sys.argv[2]))))
