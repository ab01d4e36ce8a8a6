"""One cell of the random policy: plays the judged episodes with random allowed actions, prints one JSON object.

python random_cell.py SEED < settings.json
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from typing import Any

from comparison.environments import made
from comparison.judge import judge


def run(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    space = made(settings["env"]).action_space
    space.seed(seed)
    begun = time.perf_counter()

    def act(observation: Any, info: dict[str, Any]) -> Any:
        return space.sample(info["action_mask"].astype("int8")) if settings.get("masked") else space.sample()

    returns = judge(settings["env"], lambda: act)
    return {
        "steps": 0,
        "seconds": time.perf_counter() - begun,
        "returns": returns,
        "curve": [],
        "versions": {name: version(name) for name in ("numpy", "gymnasium")},
    }


if __name__ == "__main__":
    print(json.dumps(run(json.load(sys.stdin), int(sys.argv[1]))))
