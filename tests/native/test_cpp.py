"""The C++ tests of native/tests, built and run; four of them under TSan too.

The everyday tier has those of lock-free code, because tests in Python check the results of the other sources.

A program is test_<unit>.cpp with src/<unit>.cpp and the sources that it needs. HIVE_SANITIZE=<n>, which scripts/
sanitize sets, runs each plain and under both sanitizers, and the hammers n times as long.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NATIVE = Path(__file__).parents[2] / "native"
UNITS = sorted(path.stem.removeprefix("test_") for path in (NATIVE / "tests").glob("test_*.cpp"))
COMPILER = os.environ.get("CXX", "c++")
# Those of CMakeLists.txt that results depend on, and all warnings.
FLAGS = ["-std=c++20", "-pthread", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = {
    "plain": ["-O2"],
    # -Wtsan warns of fences, which TSan makes and does not judge.
    "thread": ["-O1", "-g", "-fsanitize=thread", "-Wno-tsan"],
    "address": ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
}
LENGTH = os.environ.get("HIVE_SANITIZE", "")
SANITIZED = ("boards", "slots", "status", "team")  # lock-free code, which only ThreadSanitizer judges
BUILT = pytest.mark.full(reason="slow to build")
SHORT = {"plain": "1", "thread": "0.2"}  # how long the hammers are if HIVE_SANITIZE is not set
CASES: list[Any] = (
    [(unit, sanitizer) for sanitizer in SANITIZERS for unit in UNITS]
    if LENGTH
    else [
        *((unit, "plain") for unit in SANITIZED),
        *(pytest.param(unit, "plain", marks=BUILT) for unit in UNITS if unit not in SANITIZED),
        *(pytest.param(unit, "thread", marks=BUILT) for unit in SANITIZED),
    ]
)
PROGRAM = (  # sources of the steps of programs
    *("program_agents", "program_values", "agent_losses", "dense", "dense/choice", "dense/plain", "losses"),
    *("derived_weights", "philox", "priorities", "replay", "return_distributions", "status", "team"),
    "unpacking",
)
NEEDS = {  # sources that a unit calls besides its own
    "acting": ("agent_losses", "dense", "dense/choice", "dense/plain", "sampling", "status", "team", "unpacking"),
    "compiled": ("classic_control", "rows", "sines"),
    "dense": ("dense/choice", "dense/plain", "status", "team"),
    "exchange": ("boards", "priorities", "priority_tree", "replay_writer", "slots", "status"),
    "gather": ("accumulator",),
    "optimizers": ("status", "team"),
    "priority_tree": ("priorities",),
    "program": PROGRAM,
    "round": (
        *PROGRAM,
        "accumulator",
        "boards",
        "codec",
        "optimizers",
        "exchange",
        "priority_tree",
        "program",
        "replay_writer",
        "slots",
    ),
    "team": ("status",),
}
LIMIT_S = 240 * int(LENGTH or 1)  # for one program; a few seconds are normal, ten times that on a busy machine
# TSan cannot live with addresses that are randomised by more than 28 bits (vm.mmap_rnd_bits), so its programs
# get fixed ones (ADDR_NO_RANDOMIZE). Where a container forbids that, they run all the same: 28 is common.
FIXED_ADDRESSES = """
import ctypes, os, sys
ctypes.CDLL(None).personality(0x0040000)
os.execv(sys.argv[1], sys.argv[1:])
"""
HINTS = {
    "unexpected memory mapping": "too random for TSan: set vm.mmap_rnd_bits=28 or allow personality(2)",
    "cannot find": "the sanitizer's library is missing: install libtsan, libasan, libubsan (parts of gcc)",
}


def run(command: list[str | Path]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    except FileNotFoundError:
        pytest.fail(f"no C++ compiler called `{command[0]}`: install one or set CXX")
    if done.returncode:
        text = done.stdout + done.stderr
        hints = [hint for sign, hint in HINTS.items() if sign in text]
        how = f"exit code {done.returncode}: {' '.join(map(str, command))}"
        pytest.fail("\n".join([how, text[-8000:], *hints]))


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], Path]:
    """Compiles a source once for all programs that need it."""
    folder = tmp_path_factory.mktemp("objects")
    include = [f"-I{path}" for path in (NATIVE / "include", NATIVE.parent)]  # the last: for hive/env.h

    @functools.cache
    def compiled(source: Path, sanitizer: str) -> Path:
        made = folder / f"{sanitizer}-{'-'.join(source.relative_to(NATIVE).with_suffix('.o').parts)}"
        run([COMPILER, *FLAGS, *SANITIZERS[sanitizer], *include, "-c", source, "-o", made])
        return made

    return compiled


@pytest.mark.parametrize(("unit", "sanitizer"), CASES)
def test_unit(tmp_path: Path, objects: Callable[[Path, str], Path], unit: str, sanitizer: str) -> None:
    sources = [NATIVE / "src" / f"{needed}.cpp" for needed in (unit, *NEEDS.get(unit, ()))]
    parts = [objects(source, sanitizer) for source in (*sources, NATIVE / "tests" / f"test_{unit}.cpp")]
    program = tmp_path / unit
    run([COMPILER, "-pthread", *SANITIZERS[sanitizer], *parts, "-o", program])
    launcher = [sys.executable, "-P", "-c", FIXED_ADDRESSES] if sanitizer == "thread" else []
    run([*launcher, program, LENGTH or SHORT[sanitizer]])
