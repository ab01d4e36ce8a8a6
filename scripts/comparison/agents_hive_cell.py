"""One cell of hive with several agents: trains with `hive up`, judges the policies, prints one JSON object.

python agents_hive_cell.py TASK SEED
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import hive
from comparison.agents_judge import judge, result
from comparison.agents_tasks import TASKS, AgentsTask
from comparison.hive_cell import keys_of, train
from hive.policy.loaded import Policy


def policies_in(directory: Path) -> dict[str, Policy]:
    """Return the policy of each agent of a run."""
    rows = json.loads((directory / "policies.json").read_text())["policies"]
    loaded = {row["name"]: hive.load(str(directory), policy=row["name"]) for row in rows}
    return {agent: loaded[row["name"]] for row in rows for agent in row["agents"]}


def run(task: AgentsTask, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hive-parity-") as folder:
        directory, seconds = train([*keys_of(task.settings, seed), *task.keys], Path(folder))
        summary, policies = json.loads((directory / "summary.json").read_text()), policies_in(directory)
        noise = np.random.default_rng(seed)

        def most_likely(observations: Mapping[str, Any]) -> Mapping[str, Any]:
            return {agent: policies[agent](seen) for agent, seen in observations.items()}

        def sampled(observations: Mapping[str, Any]) -> Mapping[str, Any]:
            return {agent: policies[agent](seen, noise=noise) for agent, seen in observations.items()}

        steps, rate = summary["env_steps"], (summary["env_steps"] - summary["first_steps"]) / summary["train_s"]
        found = result(steps, seconds, rate, judge(task, most_likely), judge(task, sampled))
        return {**found, "versions": {**found["versions"], "hive": hive.__version__}}


if __name__ == "__main__":
    print(json.dumps(run(TASKS[sys.argv[1]], int(sys.argv[2]))))
