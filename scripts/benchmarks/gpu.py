"""Parts of a measurement on a machine with a GPU, in order of their value. Each prints one JSON object when it ends.

    frames     PPO with a Nature CNN on synthetic frames from many collectors: steps/s, and where the time goes
    profile    the same round in one process, taken apart: copies, passes, loss, optimizer
    curves     CartPole on the CPU and twice on the GPU: returns, and whether both runs on the GPU have equal bytes
    resume     a checkpoint of the GPU continues on the CPU, and the other way
    kill       kill -9 of the process that uses the GPU, and the views of the run
    memory     a GPU without free memory
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.hive_run import measure_run
from benchmarks.programs import importing

SCALING_S = 4.0  # seconds of each measurement of `scaling`
RESULTS = ("state", "updates", "env_steps", "mean_return_100")
SHOWN = ("steps_per_s", "updates_per_s", "collector_share", "collector_wait_share", "learner_share")

FRAMES = """
[run]
scheme = "ppo"
steps = 1_000_000_000
seed = 1
[env]
id = "benchmarks.frames:Frames"
[collection]
workers = {workers}
envs = 8
rollout = 128
communication = "{communication}"
[gradients]
device = "{device}"
[algorithm]
epochs = 4
minibatches = 4
learning_rate = 2.5e-4
[network]
separate_networks = false
normalize_observations = false
precision = "{precision}"
"""
CARTPOLES = """
[run]
scheme = "ppo"
steps = 1_000_000_000
seed = 1
[env]
id = "benchmarks.numpy_cartpole:Vector-v0"
[collection]
workers = 1
envs = 1024
rollout = 32
communication = "synchronous"
[gradients]
device = "{device}"
[algorithm]
epochs = 4
minibatches = 4
"""
CARTPOLE = """
[run]
scheme = "ppo"
name = "{name}"
steps = {steps}
seed = 1
[env]
id = "CartPole-v1"
[collection]
workers = 1
envs = 8
rollout = 32
[gradients]
device = "{device}"
[algorithm]
epochs = 10
minibatches = 4
"""
BUSY = """
[run]
scheme = "ppo"
steps = 1_000_000_000
seed = 1
[env]
id = "benchmarks.busy:Busy"
[collection]
workers = {workers}
helpers = {helpers}
envs = {envs}
rollout = 128
communication = "{communication}"
[algorithm]
epochs = 4
minibatches = 4
"""


def said(part: str, values: Mapping[str, Any], out: Path) -> None:
    """Print a result, and add it to the file `out`."""
    text = json.dumps({"part": part, **values}, default=str)
    print(text, flush=True)
    with out.open("a") as file:
        file.write(text + "\n")


def shown(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the main figures of a run, and the phases of its learner's process in ms per update."""
    found: dict[str, Any] = {name: figures.get(name) for name in SHOWN}
    phases = {name: phases for name, phases in figures["phases_ms"].items() if not name.startswith("recorder")}
    names = [*[n for n in phases if not n.startswith("collector")], *[n for n in phases if n == "collector-0"]]
    found["phases_ms"] = {n: {p: round(ms, 3) for p, ms in phases[n].items() if ms > 0.005} for n in names}
    return found


# --- parts


def frames(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    ways = [("float32", "synchronous"), ("bfloat16", "synchronous"), ("bfloat16", "pipelined")]
    for precision, communication in ways:
        keys = {"workers": options.collectors, "precision": precision, "communication": communication}
        figures = measure_run(FRAMES.format(device=options.device, **keys), options.seconds, warm_updates=16)
        yield {"precision": precision, "communication": communication, **shown(figures)}


def profile(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Take a round apart in this process: rollouts of the size of `frames`, filled with random numbers."""
    from benchmarks.gpu_round import profiled

    for precision in ("float32", "bfloat16"):
        config = FRAMES.format(
            workers=options.collectors, device=options.device, precision=precision, communication="synchronous"
        )
        yield {"precision": precision, **profiled(config, options.collectors)}


@contextmanager
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hive-gpu-") as name:
        yield Path(name)


def hive(folder: Path, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, **importing(), "HIVE_HOME": str(folder / "runs")}
    command = [sys.executable, "-P", "-m", "hive", *words]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, env=env, cwd=folder, text=True, **pipes)


def cartpole(folder: Path, name: str, device: str, steps: int, *more: str) -> subprocess.Popen[str]:
    (folder / f"{name}.toml").write_text(CARTPOLE.format(name=name, device=device, steps=steps))
    return hive(folder, "up", f"{name}.toml", *more)


def ended(process: subprocess.Popen[str], limit_s: float = 120.0) -> str:
    out, _ = process.communicate(timeout=limit_s)
    return out[-3000:]


def summary_of(folder: Path, run: str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "runs" / run / "summary.json").read_text())
    return summary


def events_of(folder: Path, run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "runs" / run / "events.jsonl").read_text().splitlines()]


def curves(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with home() as folder:
        runs = {"cpu": "cpu", "one": options.device, "two": options.device}
        started = {name: cartpole(folder, name, device, options.steps) for name, device in runs.items()}
        outputs = {name: ended(process) for name, process in started.items()}
        for name, device in runs.items():
            summary = summary_of(folder, f"{name}-1")
            lines = [json.loads(x) for x in (folder / "runs" / f"{name}-1" / "metrics.jsonl").read_text().splitlines()]
            curve = [(x.get("steps"), round(x["return/mean_100"], 1)) for x in lines if "return/mean_100" in x]
            yield {
                "run": name,
                "device": device,
                **{key: summary.get(key) for key in (*RESULTS, "train_s", "weights_sha256")},
                "curve": curve[:: max(1, len(curve) // 12)],
                "end": outputs[name][-300:],
            }


def resume(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with home() as folder:
        for first, then in ((options.device, "cpu"), ("cpu", options.device)):
            name = f"from-{first.partition(':')[0]}"
            ended(cartpole(folder, name, first, 20_000))
            before = summary_of(folder, f"{name}-1")
            again = hive(folder, "resume", f"{name}-1", "--set", f"gradients.device={then}", "--set", "run.steps=40000")
            text = ended(again)
            after = summary_of(folder, f"{name}-1")
            yield {
                "from": first,
                "to": then,
                "before": {key: before.get(key) for key in RESULTS},
                "after": {key: after.get(key) for key in RESULTS},
                "end": text[-300:],
            }


def kill(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with home() as folder:
        run = cartpole(folder, "killed", options.device, 100_000_000)
        try:
            wait_for(lambda: "device" in [event["kind"] for event in events_of(folder, "killed-1")], folder, "killed-1")
            time.sleep(4)
            listed = subprocess.run(
                [sys.executable, "-P", "-m", "hive", "ps", "killed-1", "--json"],
                env={**os.environ, **importing(), "HIVE_HOME": str(folder / "runs")},
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
            )
            rows = json.loads(listed.stdout)
            pid = next(row["pid"] for row in rows if row["name"] == "learner-0")
            os.kill(pid, signal.SIGKILL)
            at = time.time()
            time.sleep(12)
            yield {
                "gpus": rows[0]["gpus"],
                "killed": pid,
                "ps": ended(hive(folder, "ps", "killed-1")),
                "doctor": ended(hive(folder, "doctor", "killed-1")),
                "monitor": ended(hive(folder, "monitor", "killed-1", "--once"))[-600:],
                "events": [
                    (round(event["t"] - at, 2), event["kind"], event.get("text"))
                    for event in events_of(folder, "killed-1")
                    if event["kind"] != "saved"
                ][-12:],
            }
        finally:
            run.send_signal(signal.SIGTERM)
            ended(run)


def wait_for(condition: Callable[[], bool], folder: Path, run: str, limit_s: float = 60.0) -> None:
    limit = time.monotonic() + limit_s
    while time.monotonic() < limit:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"{run} did not get so far")


def memory(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Let another process take the GPU's memory but 1.5 GiB, and start a run that needs more."""
    taker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import torch, time\nfree, _ = torch.cuda.mem_get_info()\n"
            "held = torch.empty(free - (3 << 29), dtype=torch.uint8, device='cuda')\nprint('held', flush=True)\n"
            "time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert taker.stdout is not None
        taker.stdout.readline()
        with home() as folder:
            config = FRAMES.format(
                workers=options.collectors, device=options.device, precision="float32", communication="synchronous"
            )
            (folder / "short.toml").write_text(config)
            begun = time.monotonic()
            process = hive(folder, "up", "short.toml")
            text = ended(process)
            yield {"code": process.returncode, "seconds": round(time.monotonic() - begun, 1), "end": text[-900:]}
    finally:
        taker.kill()
        taker.wait()


def cartpoles(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for device in ("cpu", options.device):
        figures = measure_run(CARTPOLES.format(device=device), options.seconds, warm_updates=16)
        yield {"device": device, **shown(figures)}


def scaling(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    counts = [n for n in (1, 2, 4, 8, 15) if n <= options.collectors]
    for communication in ("synchronous", "pipelined"):
        for count in counts:
            config = BUSY.format(workers=count, helpers=0, envs=8, communication=communication)
            figures = shown(measure_run(config, SCALING_S))
            yield {"way": "collectors", "count": count, "communication": communication, **figures}
    for count in counts[1:]:
        config = BUSY.format(workers=1, helpers=count - 1, envs=8 * count, communication="synchronous")
        yield {"way": "helpers", "count": count - 1, **shown(measure_run(config, SCALING_S))}
    for count in counts:
        yield {"way": "SubprocVecEnv", "count": count, "steps_per_s": subprocess_rate(count)}


def subprocess_rate(count: int, seconds: float = 2.0) -> float:
    """Return the steps/s of Stable-Baselines3's SubprocVecEnv alone, without a policy or learning."""
    import numpy as np
    from stable_baselines3.common.vec_env import SubprocVecEnv

    from benchmarks.busy import Busy

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
    "memory": memory,
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
                said(name, values, options.out)
        except Exception:
            said(name, {"error": traceback.format_exc()[-3000:]}, options.out)
        print(f"{name} took {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)
