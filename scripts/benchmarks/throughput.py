"""`bench throughput`: environment steps per second trained, hive beside a reference and a peer, in one run.

    (a) bare loop       environments + policy in one process, without learning: the limit of a collector
    (b) single          hive, scheme `single`: one training process
    (c) 1 collector     hive: 1 collector, and a learner that makes the gradients, pipelined
        over ZeroMQ     the same with run.carrier = "zmq"
    (d) 2 collectors    hive: 2 collectors, and a learner that makes the gradients, pipelined
    sketch              --sketch FILE: a program of the same shape without supervision, checks, versions and metrics,
                        in the arrangements of (b), (c) and (d); it prints one JSON line with steps_per_s
    sb3 A2C             Stable-Baselines3's A2C, one process, one thread

Each is measured with 16 environments in Python and with 64 of Gymnasium's vectorised CartPole, per collector, on
rollouts of 32 steps; hive also with 1,024 that are compiled into it, on rollouts of 16; hive and SB3 also with 16 games
of Pong together, on rollouts of 5. All train by A2C with the same network, optimizer and losses. They differ in three
ways. In (d) hive makes one update from both collectors' rollouts, the sketch one from each. hive counts valid steps
only; the sketch and the vectorised environment also count resets, one per episode. With CartPole, SB3's policy and
value networks share no layer.

`benchmarks.off_policy` has further settings, which train from a replay memory.

Every repetition measures every contender once, in the same order.
"""

from __future__ import annotations

import fnmatch
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contender import ENDLESS_STEPS, Contender, Measurement, Setting, sb3
from benchmarks.hive_run import measure_run
from benchmarks.machine import CpuMeter
from benchmarks.off_policy import OFF_POLICY, off_policy_contenders
from benchmarks.programs import here, importing, run_program

__all__ = ["ON_POLICY", "SETTINGS", "A2CSetting", "chosen", "config_of", "contenders", "measure"]


@dataclass(frozen=True)
class A2CSetting(Setting):
    """An environment, how many of them are stepped, for how many steps in a rollout, and the network.

    envs: of each collector; of all together if `envs_are_shared`. env, network: further lines of [env] and [network].
    """

    envs: int
    env: str
    rollout: int = 32
    network: str = 'middleware = [64, 64]\nactivation = "tanh"'
    envs_are_shared: bool = False


CARTPOLE = 'id = "CartPole-v1"\nvector = '
NUMPY = 'id = "benchmarks.numpy_cartpole:NumPyCartPole-v1"\nvector = "native"'
ON_POLICY = (
    A2CSetting("python-16", "16 CartPole-v1 environments in Python per collector", 16, f'{CARTPOLE}"python"'),
    A2CSetting("vector-64", "64 CartPole-v1 environments of Gymnasium's NumPy vector class per collector", 64, NUMPY),
    A2CSetting("compiled-1024", "1,024 CartPole-v1 environments compiled into hive", 1024, f'{CARTPOLE}"native"', 16),
    A2CSetting(
        "pong-16",
        "16 games of Pong, 84 x 84 pixels, 4 frames stacked",
        16,
        'id = "ALE/Pong-v5"\npreset = "atari"\nframe_stack = 4',
        rollout=5,
        network='middleware = []\nactivation = "relu"',
        envs_are_shared=True,
    ),
)


SETTINGS: tuple[Setting, ...] = (*ON_POLICY, *OFF_POLICY)

SB3_ENVIRONMENTS = {"python-16": ("CartPole-v1", 1), "pong-16": ("ALE/Pong-v5", 0)}
"""The settings of Stable-Baselines3's A2C -> its environment, and threads of torch (0: torch's default)."""

CONFIG = """\
[run]
scheme = "{scheme}"
seed = 1
carrier = "{carrier}"
steps = {steps}
[env]
{setting.env}
[collection]
envs = {envs}
rollout = {setting.rollout}
{workers}
[algorithm]
name = "a2c"
discount = 0.99
gae_lambda = 1.0
learning_rate = 1e-3
optimizer = "adam"
optimizer_epsilon = 1e-8
value_loss_weight = 0.5
entropy_weight = 0.01
clip_gradients = 0.5
[network]
{setting.network}
separate_networks = false
"""

PIPELINE = """\
workers = {collectors}
communication = "pipelined"
max_lag = 1
slots = 3
[gradients]
communication = "synchronous"
"""


def config_of(setting: A2CSetting, collectors: int, carrier: str = "slots") -> str:
    """Return the config of a run with this many collectors; 0: scheme `single`. Other keys keep hive's defaults."""
    return CONFIG.format(
        carrier=carrier,
        scheme="a2c" if collectors else "single",
        steps=ENDLESS_STEPS,
        setting=setting,
        envs=setting.envs // max(collectors, 1) if setting.envs_are_shared else setting.envs,
        workers=PIPELINE.format(collectors=collectors) if collectors else "",
    )


def contenders(sketch: Path | None, peers: Sequence[str], cache: Path) -> list[Contender]:
    """Return all contenders in the order of measurement: those that are compared follow each other."""
    found = []
    for setting in ON_POLICY:
        found.append(Contender(setting, "bare", "(a) bare loop", _bare(setting)))
        for letter, collectors, arrangement in (("b", 0, "--fused"), ("c", 1, ""), ("d", 2, "")):
            shape = "single" if not collectors else f"{collectors}-collector{'s' * (collectors > 1)}"
            title = f"({letter}) hive {shape.replace('-', ' ')}"
            found.append(Contender(setting, shape, title, _hive(setting, collectors)))
            if sketch is not None and setting.name in ("python-16", "vector-64"):
                shape = "fused" if arrangement else shape
                measure = _sketch(sketch, setting, collectors)
                found.append(Contender(setting, f"sketch-{shape}", f"    sketch {shape.replace('-', ' ')}", measure))
            if collectors == 1:
                found.append(
                    Contender(setting, "1-collector-zmq", "    over ZeroMQ", _hive(setting, collectors, "zmq"))
                )
        if "sb3" in peers and setting.name in SB3_ENVIRONMENTS:
            environment, threads = SB3_ENVIRONMENTS[setting.name]
            settings = {"env": environment, "envs": setting.envs, "rollout": setting.rollout}
            found.append(Contender(setting, "sb3", "    sb3 A2C", sb3(settings, threads, cache)))
    return [*found, *off_policy_contenders(peers, cache)]


def chosen(all_of_them: Sequence[Contender], patterns: Sequence[str]) -> list[Contender]:
    """Return the contenders whose name matches one of the shell patterns; all if there is no pattern."""
    return [c for c in all_of_them if not patterns or any(fnmatch.fnmatchcase(c.name, p) for p in patterns)]


def _bare(setting: A2CSetting) -> Callable[[float], Measurement]:
    def measure(seconds: float) -> Measurement:
        with tempfile.NamedTemporaryFile("w", suffix=".toml", prefix="hive-bench-") as config:
            config.write(config_of(setting, 1))
            config.flush()
            command = [sys.executable, "-P", here("bare_loop.py"), config.name, seconds]
            return run_program(command, seconds, importing())

    return measure


def _hive(setting: A2CSetting, collectors: int, carrier: str = "slots") -> Callable[[float], Measurement]:
    return lambda seconds: measure_run(config_of(setting, collectors, carrier), seconds)


def _sketch(sketch: Path, setting: A2CSetting, collectors: int) -> Callable[[float], Measurement]:
    command = [sys.executable, "-P", sketch.resolve(), "--envs", setting.envs, "--rollout", setting.rollout]
    command += ["--vector"] if setting.name == "vector-64" else []
    command += ["--collectors", collectors] if collectors else ["--fused"]
    return lambda seconds: run_program([*command, "--seconds", seconds], seconds)


def measure(
    selected: Sequence[Contender], repetitions: int, seconds: float, say: Callable[[str], None]
) -> dict[str, list[Measurement]]:
    """Return the measurements of each contender by name, one for each repetition. Raises BenchError.

    `others_cores` of a measurement is how many cores other programs used meanwhile, start and end included.
    """
    found: dict[str, list[Measurement]] = {contender.name: [] for contender in selected}
    for repetition in range(repetitions):
        for contender in selected:
            meter = CpuMeter()
            measurement = contender.measure(seconds)
            others = meter.others_cores()
            rate = f"{measurement['steps_per_s']:>9,.0f} steps/s"
            say(f"{repetition + 1}/{repetitions}  {contender.name:<28} {rate}  (others used {others:.2f} cores)")
            found[contender.name].append({**measurement, "others_cores": others})
    return found
