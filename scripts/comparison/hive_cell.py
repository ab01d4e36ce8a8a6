"""One cell of hive: trains a task with one seed, judges the policy, prints one JSON object.

    python hive_cell.py SEED [half] [KEY=VALUE ...] < settings.json

The run is that of `hive up`, in a temporary folder. The other words belong to a variant: `half` makes rollouts of half
the length, so that the two half rounds in flight of a pipelined run are as much data as one round of the task.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.programs import hive_command, hive_environment, set_words

import hive
from comparison.defaults import defaults_of
from comparison.judge import Act, judge

RMSPROP = ("algorithm.optimizer=rmsprop", "algorithm.optimizer_epsilon=1e-5")  # that of Stable-Baselines3's A2C

HALF = "half"  # a word of a variant that is not a config key


def keys_of(settings: dict[str, Any], seed: int) -> list[str]:
    """The settings of a task as keys of hive's config."""
    s = settings
    common = [f"run.seed={seed}", f"run.steps={s['steps']}", f"env.id={s['env']}", "record.every_s=0.5"]
    if "scheme" in s:  # a SchemeTask
        return [f"run.scheme={s['scheme']}", *common]
    if "capacity" in s:  # a ReplayTask
        return [f"run.scheme={s['algorithm']}", *common, *replay_keys(s)]
    linear = set(s["linear"])
    schedule = {name: "linear" if name in linear else "constant" for name in ("learning_rate", "clip_range")}
    keys = [
        *common,
        f"run.scheme={s['algorithm']}",
        f"collection.envs={s['envs']}",
        f"collection.rollout={s['rollout']}",
        f"algorithm.learning_rate={s['learning_rate']}",
        f"algorithm.learning_rate_schedule={schedule['learning_rate']}",
        f"algorithm.discount={s['discount']}",
        f"algorithm.gae_lambda={s['gae_lambda']}",
        f"algorithm.entropy_weight={s['entropy_weight']}",
        f"algorithm.value_loss_weight={s['value_loss_weight']}",
        f"algorithm.clip_gradients={s['clip_gradients']}",
        f"network.normalize_observations={str(s['normalize']).lower()}",
        f"network.normalize_rewards={str(s['normalize']).lower()}",
        *network_keys(s),
    ]
    if s["algorithm"] == "a2c":
        return [*keys, *RMSPROP]
    minibatches = max(s["envs"] * s["rollout"] // s["minibatch"], 1)
    return [
        *keys,
        f"algorithm.epochs={s['epochs']}",
        f"algorithm.minibatches={minibatches}",
        f"algorithm.clip_range={s['clip_range']}",
        f"algorithm.clip_range_schedule={schedule['clip_range']}",
        "algorithm.normalize_over=minibatch",
    ]


def replay_keys(s: dict[str, Any]) -> list[str]:
    """The keys of a task with a replay memory.

    Stable-Baselines3 copies the target network during its steps, so of several copies between two series of updates
    the last one counts: at most one per series.
    """
    keys = [
        "collection.envs=1",
        f"collection.rollout={s['rollout']}",
        f"algorithm.learning_rate={s['learning_rate']}",
        "algorithm.learning_rate_schedule=constant",
        f"algorithm.discount={s['discount']}",
        f"algorithm.batch_size={s['batch']}",
        f"algorithm.replay_capacity={s['capacity']}",
        f"algorithm.learning_starts={s['learning_starts']}",
        f'algorithm.updates_per_step="{Fraction(s["updates"], s["rollout"])}"',
        f"algorithm.target_rate={s['target_rate']}",
        f"algorithm.optimizer_epsilon={s['optimizer_epsilon']}",
        f"algorithm.clip_gradients={s['clip_gradients']}",
        f"network.middleware={list(s['layers'])}",
        "network.activation=relu",
        "network.initialization=uniform",
    ]
    if s["algorithm"] == "sac":
        return keys
    if s["algorithm"] == "td3":
        return [*keys, f"algorithm.exploration_noise={s['action_noise']}"]
    return [
        *keys,
        f"algorithm.target_interval={max(s['target_interval'], s['rollout']) * s['updates'] // s['rollout']}",
        f"algorithm.exploration_end={s['exploration_end']}",
        f"algorithm.exploration_steps={round(s['exploration_share'] * s['steps'])}",
        "algorithm.double=false",
        "algorithm.n_step=1",
        *([f"algorithm.quantiles={s['quantiles']}"] if s["quantiles"] else []),
    ]


def network_keys(s: dict[str, Any]) -> list[str]:
    """The keys of the networks, and of the mask that they apply. The usual middleware is hive's default."""
    return [
        f"network.separate_networks={str(not s['shared']).lower()}",
        *([f"network.middleware={list(s['layers'])}"] if list(s["layers"]) != [64, 64] else []),
        *(["network.memory=lstm", f"network.memory_size={s['memory']}"] if s["memory"] else []),
        *(["env.action_mask=info"] if s["masked"] else []),
    ]


def train(keys: list[str], home: Path, config: Path | None = None) -> tuple[Path, float]:
    """Run `hive up` to its end; return the run's folder and the seconds, start-up included."""
    if config is None:
        config = home / "run.toml"
        config.touch()
    begun = time.perf_counter()
    done = subprocess.run(
        hive_command("up", config, "--name", "cell", *set_words(keys)),
        env=hive_environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"hive up ended with code {done.returncode}\n{done.stderr[-2000:]}")
    return home / "cell-1", time.perf_counter() - begun


def curve_of(run: Path) -> list[tuple[int, float, float]]:
    """(environment steps, seconds, mean return of the last 100 episodes) of every line of metrics."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    points = [(line["steps"], line["seconds"], line.get("return/mean_100")) for line in lines]
    return [(steps, seconds, value) for steps, seconds, value in points if value is not None]  # none before an episode


def episode_of(policy: Any, *, masked: bool) -> Act:
    """A function that plays one episode with the policy."""
    state = policy.initial_state()

    def act(observation: Any, info: dict[str, Any]) -> Any:
        nonlocal state
        given = {"action_mask": info["action_mask"]} if masked else {}
        if state is None:
            return policy(observation, **given)
        action, state = policy(observation, state, **given)
        return action

    return act


def versions() -> dict[str, str]:
    return {"hive": hive.__version__, **{name: version(name) for name in ("torch", "numpy", "gymnasium")}}


def run(settings: dict[str, Any], seed: int, variant: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hive-parity-") as folder:
        work = {**settings, "rollout": settings["rollout"] // 2} if HALF in variant else settings
        keys = [*keys_of(work, seed), *(word for word in variant if word != HALF)]
        directory, seconds = train(keys, Path(folder))
        summary = json.loads((directory / "summary.json").read_text())
        policy = hive.load(str(directory))
        return {
            "steps": summary["results"]["env_steps"] if "results" in summary else summary["env_steps"],
            "seconds": seconds,
            "returns": judge(settings["env"], lambda: episode_of(policy, masked=settings.get("masked", False))),
            "curve": curve_of(directory),
            "versions": versions(),
            "defaults": defaults_of(settings.get("scheme") or settings["algorithm"]),
        }


if __name__ == "__main__":
    print(json.dumps(run(json.load(sys.stdin), int(sys.argv[1]), sys.argv[2:])))
