"""One cell of the random policy: plays the judged episodes with uniformly random actions, prints one JSON object.

python random_cell.py SEED < settings.json
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from typing import Any

import gymnasium

from comparison.judge import judge


def run(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    space = gymnasium.make(settings["env"]).action_space
    space.seed(seed)
    begun = time.perf_counter()
    returns = judge(settings["env"], lambda observation: space.sample())
    return {
        "steps": 0,
        "seconds": time.perf_counter() - begun,
        "returns": returns,
        "curve": [],
        "versions": {name: version(name) for name in ("numpy", "gymnasium")},
    }


if __name__ == "__main__":
    print(json.dumps(run(json.load(sys.stdin), int(sys.argv[1]))))
