"""One run of `scripts/search`: trains an example with other settings, prints one JSON object.

python search_cell.py CONFIG STEPS SEED [KEY=VALUE ...]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from comparison.hive_cell import train

GOAL = "mean return"  # the stop reason of a run that has reached its goal begins so


def run(config: Path, steps: str, seed: str, keys: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hive-search-") as folder:
        words = [f"run.steps={steps}", f"run.seed={seed}", "checkpoint.every={}", *keys]
        directory, seconds = train(words, Path(folder), config)
        summary = json.loads((directory / "summary.json").read_text())
        return {"reached": summary["stop_reason"].startswith(GOAL), "steps": summary["env_steps"], "seconds": seconds}


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])))
