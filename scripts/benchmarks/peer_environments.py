"""Create a virtual environment for each peer once, and keep it.

    $XDG_CACHE_HOME/hive-bench/sb3-<digest>/       ~/.cache/hive-bench where that is not set
        bin/python ...
        ready.json                                 the requirements; written last

The digest covers the requirements and the version of Python, so other requirements get another environment. One whose
creation was interrupted has no ready.json and is created again. Nothing is shared with hive's own environment.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.programs import BenchError, tail

TORCH = importlib.metadata.version("torch").partition("+")[0]  # that of hive, without its build
GYMNASIUM = importlib.metadata.version("gymnasium")  # that of hive: both sides step the same classes
ROOT = Path(__file__).resolve().parents[2]
EARLIER = "587aee2"  # the commit whose pipelined default `bench league` measures beside this one

JAX = ("jax==0.10.2", "jaxlib==0.10.2", "flax==0.12.8", "optax==0.2.8")
MKL = ("mkl==2026.2.0", "mkl-include==2026.2.0") if platform.machine() == "x86_64" else ()  # built for x86-64 alone

REQUIREMENTS = {
    "sb3": (
        *("stable-baselines3==2.9.2", "sb3-contrib==2.9.2", f"torch=={TORCH}"),
        *(f"gymnasium[box2d,mujoco]=={GYMNASIUM}", "minigrid>=3", "MinAtar>=1.0.15"),
        *("ale-py>=0.12", "opencv-python-headless>=4.8"),
    ),
    "agents": (
        *("stable-baselines3==2.9.2", f"torch=={TORCH}", f"gymnasium=={GYMNASIUM}"),
        *("pettingzoo[butterfly]==1.27.0", "supersuit==3.11.0", "mpe2==1.1.1"),
    ),
    "sbx": (
        *("sbx-rl==0.28.0", "stable-baselines3==2.9.2", f"torch=={TORCH}", *JAX),
        f"gymnasium[classic-control,mujoco]=={GYMNASIUM}",
    ),
    "rltools": ("rltools==2.2.1", "pybind11==3.1.0", *MKL, f"gymnasium=={GYMNASIUM}", "numpy"),
    f"hive-{EARLIER}": (
        *(f"git+{ROOT.as_uri()}@{EARLIER}", f"torch=={TORCH}"),
        f"gymnasium[mujoco]=={GYMNASIUM}",
    ),
    "torchrl": ("torchrl>=0.13,<0.14", "torch>=2.12,<2.13", "numpy"),  # its C++ part needs that torch
    "ray": ("ray>=2.40,<3", "numpy"),
}
"""The packages that pip installs for each peer. Stable-Baselines3 and SBX get the torch that hive has.

`scripts/parity` has tasks of Box2D, MuJoCo, MiniGrid and MinAtar, `scripts/bench throughput` one of Atari. RLtools
compiles its training loop when it is called, with the C++ compiler of this machine. Without MKL it uses OpenBLAS where
the compiler finds it. hive at an earlier commit is built from this repository.
"""

INSTALL_S = 1800.0  # time limit of an installation in seconds: torch is large


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hive-bench"


def add_peer_options(parser: argparse.ArgumentParser, peer: str) -> None:
    """Add the options of a bench with one peer that is installed when it is first measured."""
    parser.add_argument("--no-peers", dest="peers", action="store_false", help=f"neither install nor measure {peer}")
    add_cache_option(parser)


def add_cache_option(parser: argparse.ArgumentParser) -> None:
    text = "where peers are installed (default %(default)s)"
    parser.add_argument("--cache", type=Path, default=cache_folder(), help=text)


def environment_folder(cache: Path, peer: str, requirements: Sequence[str]) -> Path:
    """Return the folder of the environment with these requirements."""
    asked = "\n".join([sys.version, *requirements])
    return cache / f"{peer}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"


def peer_python(peer: str, cache: Path) -> Path:
    """Return the Python of a peer's environment, which is created at first use. Raises BenchError."""
    requirements = REQUIREMENTS[peer]
    folder = environment_folder(cache.absolute(), peer, requirements)
    python, ready = folder / "bin" / "python", folder / "ready.json"
    if ready.exists():
        return python
    print(f"creating {folder} with {', '.join(requirements)}; this takes a while, but only once", file=sys.stderr)
    venv.create(folder, clear=True, with_pip=True)
    command = [str(python), "-m", "pip", "install", "--quiet", *requirements]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise BenchError(f"installing {peer} took more than {INSTALL_S:.0f} s") from None
    if done.returncode != 0:
        raise BenchError(f"{peer} cannot be installed (--no-peers leaves it out)\n{tail(done.stderr)}")
    ready.write_text(json.dumps({"requirements": requirements}))
    return python
