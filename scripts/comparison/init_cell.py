"""One cell of `hive init` against no settings: trains an environment with one seed, prints one JSON object.

    python init_cell.py SEED init|bare < settings.json

"init" trains with the config that `hive init` writes, "bare" with scheme, environment and the wrappers without which it
cannot be trained; both with the steps of the task. The return is that of the last 100 training episodes, which each
environment has.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.programs import hive_command, hive_environment

from comparison.defaults import defaults_of
from comparison.hive_cell import curve_of, train, versions


def run(settings: dict[str, Any], seed: int, how: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hive-parity-") as folder:
        home = Path(folder)
        config = written(settings["env"], home)
        chosen = tomllib.loads(config.read_text())
        scheme, wrappers = chosen["run"]["scheme"], chosen["env"].get("wrappers", [])
        if how == "bare":
            given = {"run.scheme": scheme, "env.id": settings["env"], "env.wrappers": wrappers}
            config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items()))
        keys = [f"run.seed={seed}", f"run.steps={settings['steps']}", "record.every_s=5"]
        directory, seconds = train(keys, home, config)
        summary = json.loads((directory / "summary.json").read_text())
        if summary["mean_return_100"] is None:
            sys.exit(f"no episode ended in {summary['env_steps']:,} steps")
        return {
            "steps": summary["env_steps"],
            "seconds": seconds,
            "returns": [summary["mean_return_100"]],
            "curve": curve_of(directory),
            "versions": versions(),
            "defaults": defaults_of(scheme),
        }


def written(env: str, folder: Path) -> Path:
    """Return the config that `hive init` writes for an environment."""
    config = folder / "run.toml"
    done = subprocess.run(
        hive_command("init", env, "-o", config),
        env=hive_environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"hive init ended with code {done.returncode}\n{done.stderr[-2000:]}")
    return config


if __name__ == "__main__":
    print(json.dumps(run(json.load(sys.stdin), int(sys.argv[1]), sys.argv[2])))
