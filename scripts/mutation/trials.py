"""Runs the probes against a mutant, in a child process that imports the mutant in place of hive.

The parent process imports torch and pytest but never hive, so a child is a fork and needs only the package itself. A
mutant that names tests gets these instead of the probes. One of the C++ part is compiled into their program.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gymnasium  # noqa: F401 - imported before the forks
import pytest
import torch

from mutation.mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
PROBES = ROOT / "tests" / "probes"
NATIVE = "_native*.so"
NATIVE_FLAGS = ("-std=c++20", "-O1", "-ffp-contract=off", "-fno-math-errno", f"-I{ROOT / 'native' / 'include'}")
NATIVE_NEEDS = {"priority_tree": ("priorities",)}  # sources that a unit calls besides its own
PROGRAM_S = 60.0  # time limit of a C++ program, which takes a second: a fault may make it endless
OPTIONS = ("-n0", "--tb=no", "-pno:cacheprovider", f"--rootdir={ROOT}", f"-c{ROOT / 'pyproject.toml'}")


@dataclass(frozen=True)
class Trial:
    """The probes that failed for a mutant. `error`: why none could run, or ""."""

    mutant: Mutant | None
    killers: tuple[str, ...]
    passed: int
    error: str = ""

    def killers_of(self, algorithm: str) -> list[str]:
        """Return the names of the failed probes of one algorithm."""
        found = (name.partition("[")[0] for name in self.killers if any(spelt in name for spelt in _spelt(algorithm)))
        return list(dict.fromkeys(found))

    @property
    def survivors(self) -> list[str]:
        """The algorithms whose probes all passed, or the file of tests that all passed."""
        if self.mutant is None:
            return []
        if self.mutant.tests:
            return [] if self.killers else [self.mutant.tests]
        return [name for name in self.mutant.algorithms if not self.killers_of(name)]


def _native_build() -> Path:
    """Return the native part that these sources use: that beside them, otherwise that of the installed package."""
    installed = importlib.util.find_spec("hive")  # does not import it
    places = [ROOT / "hive", *map(Path, (installed and installed.submodule_search_locations) or ())]
    for place in places:
        for build in place.glob(NATIVE):
            return build
    raise FileNotFoundError(f"no {NATIVE} in {', '.join(map(str, places))}: run scripts/build")


def _spelt(algorithm: str) -> tuple[str, str]:
    """Return an algorithm as the parameter of a test, and as a part of a test's name."""
    return algorithm, algorithm.replace("-", "_")


@dataclass
class Outcomes:
    """A pytest plugin that notes what failed."""

    failed: list[str] = field(default_factory=list)
    passed: int = 0

    def pytest_configure(self, config: pytest.Config) -> None:
        """Let hypothesis try the same examples each time, and not look for smaller ones that fail too."""
        import hypothesis  # after pytest, which checks the order

        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutants", database=None, derandomize=True, phases=phases, deadline=None)
        hypothesis.settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid.rpartition("::")[2])
        elif report.when == "call":
            self.passed += 1


def trials(mutants: Sequence[Mutant | None], processes: int) -> Iterator[Trial]:
    """Yield the trial of each mutant as it ends; None stands for the unchanged sources."""
    torch.set_num_threads(1)
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        yield from pool.imap(_trial, mutants)


def _trial(mutant: Mutant | None) -> Trial:
    if mutant is not None and mutant.native:
        return _native_trial(mutant)
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        shutil.copytree(ROOT / "hive", Path(folder) / "hive", ignore=shutil.ignore_patterns("__pycache__", NATIVE))
        shutil.copy(_native_build(), Path(folder) / "hive")
        if mutant is not None:
            mutant.apply(Path(folder) / "hive")
        sys.path.insert(0, folder)
        os.chdir(folder)
        outcomes = Outcomes()
        with contextlib.redirect_stdout(io.StringIO()):
            code = pytest.main([*OPTIONS, *_chosen(mutant)], [outcomes])
        import hive

        if not str(hive.__file__).startswith(folder):
            return Trial(mutant, (), 0, f"the probes imported {hive.__file__}")
        error = "" if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) else f"pytest ended with {code}"
        return Trial(mutant, tuple(outcomes.failed), outcomes.passed, error)


def _chosen(mutant: Mutant | None) -> list[str]:
    """Return the tests that pytest runs, with its options."""
    if mutant is None:
        return [str(PROBES)]
    if mutant.tests:
        return ["-x", str(ROOT / "tests" / mutant.tests)]
    return [f"-k{' or '.join(spelt for name in mutant.algorithms for spelt in _spelt(name))}", str(PROBES)]


def _native_trial(mutant: Mutant) -> Trial:
    """Build and run the program of the mutant's tests."""
    native, unit = ROOT / "native", Path(mutant.file).stem
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        program, changed = Path(folder) / unit, Path(folder) / f"{unit}.cpp"
        changed.write_text(mutant.applied((native / mutant.file).read_text()))
        needs = [native / "src" / f"{needed}.cpp" for needed in NATIVE_NEEDS.get(unit, ())]
        compiler = os.environ.get("CXX", "c++")
        build: list[str | Path] = [compiler, *NATIVE_FLAGS, changed, *needs, native / mutant.tests, "-o", program]
        built = subprocess.run(build, capture_output=True, text=True)
        if built.returncode:
            return Trial(mutant, (), 0, f"it does not compile: {built.stderr[-2000:]}")
        try:
            failed = subprocess.run([program, "1"], capture_output=True, timeout=PROGRAM_S).returncode != 0
        except subprocess.TimeoutExpired:
            failed = True
    return Trial(mutant, (Path(mutant.tests).stem,) if failed else (), 0 if failed else 1)
