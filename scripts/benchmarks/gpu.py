"""Parts of a measurement on a machine with a GPU, in order of their value. Each prints one JSON object when it ends.

    frames     PPO with a Nature CNN on synthetic frames from many collectors: steps/s, and where the time goes
    profile    the same round in one process, taken apart: copies, passes, loss, optimizer
    curves     CartPole on the CPU and twice on the GPU: returns, and whether both runs on the GPU have equal bytes
    resume     a checkpoint of the GPU continues on the CPU, and the other way
    kill       kill -9 of the process that uses the GPU: the events of the next seconds
    cartpoles  PPO of 1,024 CartPoles in one NumPy class, on the CPU and on the GPU
    scaling    PPO on an environment that needs 0.1 ms of a core: collectors, helpers, SubprocVecEnv. Without the GPU

A part that fails prints its error and does not stop those after it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.hive_run import measure_run
from benchmarks.programs import hive_command, hive_environment, set_words

SCALING_S = 4.0  # seconds of each measurement of `scaling`
END_S = 120.0  # seconds for a short run to end on a busy machine
WARM_UPDATES = 16  # one round of frames
RESULTS = ("state", "updates", "env_steps", "mean_return_100")
SHOWN = ("steps_per_s", "updates_per_s", "collector_share", "collector_wait_share", "learner_share")

PPO = ("run.scheme=ppo", "run.steps=1_000_000_000", "run.seed=1", "algorithm.epochs=4", "algorithm.minibatches=4")
FRAMES = (
    *(*PPO, "env.id=benchmarks.environments:Frames", "collection.envs=8", "collection.rollout=128"),
    *("algorithm.learning_rate=2.5e-4", "network.separate_networks=false", "network.normalize_observations=false"),
)
CARTPOLES = (
    *(*PPO, "env.id=benchmarks.environments:Vector-v0", "collection.workers=1", "collection.envs=1024"),
    *("collection.rollout=32", "collection.communication=synchronous"),
)
CARTPOLE = (
    *(*PPO, "env.id=CartPole-v1", "collection.workers=1", "collection.envs=8", "collection.rollout=32"),
    "algorithm.epochs=10",
)
BUSY = (*PPO, "env.id=benchmarks.environments:Busy", "collection.rollout=128")


def report(part: str, values: Mapping[str, Any], out: Path) -> None:
    """Print a result, and add it to the file `out`."""
    text = json.dumps({"part": part, **values}, default=str)
    print(text, flush=True)
    with out.open("a") as file:
        file.write(text + "\n")


def shown(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the main figures of a run, and the phases of its learner's process in ms per update."""
    values: dict[str, Any] = {name: figures.get(name) for name in SHOWN}
    values["phases_ms"] = {
        name: {phase: round(ms, 3) for phase, ms in phases.items() if ms > 0.005}
        for name, phases in figures["phases_ms"].items()
        if name == "collector-0" or not name.startswith(("recorder", "collector"))
    }
    return values


# --- parts


def frame_keys(options: argparse.Namespace, precision: str, communication: str = "synchronous") -> list[str]:
    return [
        *(*FRAMES, f"collection.workers={options.collectors}", f"collection.communication={communication}"),
        *(f"gradients.device={options.device}", f"network.precision={precision}"),
    ]


def frames(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    ways = [("float32", "synchronous"), ("bfloat16", "synchronous"), ("bfloat16", "pipelined")]
    for precision, communication in ways:
        figures = measure_run(options.seconds, frame_keys(options, precision, communication), WARM_UPDATES)
        yield {"precision": precision, "communication": communication, **shown(figures)}


def profile(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Take a round apart in this process: rollouts of the size of `frames`, filled with random numbers."""
    from benchmarks.gpu_round import profiled

    for precision in ("float32", "bfloat16"):
        yield {"precision": precision, **profiled(frame_keys(options, precision), options.collectors)}


class Runs:
    """CartPole runs in a temporary folder."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        (self.folder / "empty.toml").touch()

    def hive(self, *words: str) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        environment = hive_environment(self.folder / "runs")
        return subprocess.Popen(hive_command(*words), env=environment, cwd=self.folder, text=True, **pipes)

    def cartpole(self, name: str, device: str, steps: int) -> subprocess.Popen[str]:
        keys = (*CARTPOLE, f"gradients.device={device}", f"run.steps={steps}")
        return self.hive("up", "empty.toml", "--name", name, *set_words(keys))

    def summary(self, name: str, keys: Sequence[str] = RESULTS) -> dict[str, Any]:
        values = json.loads((self.folder / "runs" / f"{name}-1" / "summary.json").read_text())
        return {key: values.get(key) for key in keys}

    def lines(self, name: str, file: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "runs" / f"{name}-1" / file).read_text().splitlines()]


def ended(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=END_S)[0][-300:]


def curves(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="hive-gpu-") as folder:
        runs, devices = Runs(folder), {"cpu": "cpu", "one": options.device, "two": options.device}
        processes = {name: runs.cartpole(name, device, options.steps) for name, device in devices.items()}
        outputs = {name: ended(process) for name, process in processes.items()}
        for name, device in devices.items():
            lines = [line for line in runs.lines(name, "metrics.jsonl") if "return/mean_100" in line]
            curve = [(line.get("steps"), round(line["return/mean_100"], 1)) for line in lines]
            results = runs.summary(name, (*RESULTS, "train_s", "weights_sha256"))
            curve = curve[:: max(1, len(curve) // 12)]
            yield {"run": name, "device": device, **results, "curve": curve, "end": outputs[name]}


def resume(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="hive-gpu-") as folder:
        runs = Runs(folder)
        for first, then in ((options.device, "cpu"), ("cpu", options.device)):
            name = f"from-{first.partition(':')[0]}"
            ended(runs.cartpole(name, first, 20_000))
            before, keys = runs.summary(name), (f"gradients.device={then}", "run.steps=40000")
            end = ended(runs.hive("resume", f"{name}-1", *set_words(keys)))
            yield {"from": first, "to": then, "before": before, "after": runs.summary(name), "end": end}


def kill(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="hive-gpu-") as folder:
        runs = Runs(folder)
        run = runs.cartpole("killed", options.device, 100_000_000)
        try:
            time.sleep(END_S / 6)  # it has long used the device then
            listed = runs.hive("ps", "killed-1", "--json").communicate(timeout=END_S)[0]
            pid = next(row["pid"] for row in json.loads(listed) if row["name"] == "learner-0")
            os.kill(pid, signal.SIGKILL)
            at = time.time()
            time.sleep(END_S / 10)
            events = [event for event in runs.lines("killed", "events.jsonl") if event["kind"] != "saved"]
            yield {"events": [(round(e["t"] - at, 2), e["kind"], e.get("text")) for e in events[-12:]]}
        finally:
            run.send_signal(signal.SIGTERM)
            ended(run)


def cartpoles(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for device in ("cpu", options.device):
        figures = measure_run(options.seconds, (*CARTPOLES, f"gradients.device={device}"), WARM_UPDATES)
        yield {"device": device, **shown(figures)}


def scaling(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    def measured(workers: int, helpers: int, envs: int, communication: str = "synchronous") -> dict[str, Any]:
        keys = (f"collection.workers={workers}", f"collection.helpers={helpers}", f"collection.envs={envs}")
        return shown(measure_run(SCALING_S, (*BUSY, *keys, f"collection.communication={communication}")))

    counts = [n for n in (1, 2, 4, 8, 15) if n <= options.collectors]
    for communication in ("synchronous", "pipelined"):
        for count in counts:
            figures = measured(count, 0, 8, communication)
            yield {"way": "collectors", "count": count, "communication": communication, **figures}
    for count in counts[1:]:
        yield {"way": "helpers", "count": count - 1, **measured(1, count - 1, 8 * count)}
    for count in counts:
        yield {"way": "SubprocVecEnv", "count": count, "steps_per_s": subprocess_rate(count)}


def subprocess_rate(count: int, seconds: float = 2.0) -> float:
    """Return the steps/s of Stable-Baselines3's SubprocVecEnv alone, without a policy or learning."""
    import numpy as np
    from stable_baselines3.common.vec_env import SubprocVecEnv

    from benchmarks.environments import Busy

    vector = SubprocVecEnv([Busy] * count, start_method="fork")
    vector.reset()
    actions, rates = np.zeros(count, np.int64), []
    for _ in range(3):
        begun, steps = time.perf_counter(), 0
        while time.perf_counter() < begun + seconds / 3:
            vector.step(actions)
            steps += count
        rates.append(steps / (time.perf_counter() - begun))
    vector.close()
    return statistics.median(rates)


PARTS: Mapping[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "frames": frames,
    "profile": profile,
    "curves": curves,
    "resume": resume,
    "kill": kill,
    "cartpoles": cartpoles,
    "scaling": scaling,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all, in this order")
    parser.add_argument("--device", default="cuda", help='value of gradients.device (default: "cuda")')
    parser.add_argument("--collectors", type=int, default=15, help="most collectors (default: 15)")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of each measurement (default: 8)")
    parser.add_argument("--steps", type=int, default=80_000, help="steps of each run of `curves` (default: 80000)")
    parser.add_argument("--out", type=Path, default=Path("gpu.jsonl"), help="file for the results (default: gpu.jsonl)")
    options = parser.parse_args()
    for name in options.parts or PARTS:
        begun = time.monotonic()
        try:
            for values in PARTS[name](options):
                report(name, values, options.out)
        except Exception:
            report(name, {"error": traceback.format_exc()[-3000:]}, options.out)
        print(f"{name} took {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)
