"""Runs the probes against a mutant, in a child process that imports the mutant in place of hive.

The parent process imports torch and pytest but never hive, so a child is a fork and needs only the package itself.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gymnasium  # noqa: F401 - imported before the forks
import pytest
import torch

from mutation.mutant import Mutant

__all__ = ["Trial", "trials"]

ROOT = Path(__file__).resolve().parents[2]
PROBES = ROOT / "tests" / "probes"
NATIVE = "_native*.so"
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
        """The algorithms whose probes all passed."""
        return [] if self.mutant is None else [name for name in self.mutant.algorithms if not self.killers_of(name)]


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
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        shutil.copytree(ROOT / "hive", Path(folder) / "hive", ignore=shutil.ignore_patterns("__pycache__", NATIVE))
        shutil.copy(_native_build(), Path(folder) / "hive")
        if mutant is not None:
            mutant.apply(Path(folder) / "hive")
        sys.path.insert(0, folder)
        os.chdir(folder)
        outcomes = Outcomes()
        names = mutant.algorithms if mutant else ()
        chosen = [f"-k{' or '.join(spelt for name in names for spelt in _spelt(name))}"] if names else []
        with contextlib.redirect_stdout(io.StringIO()):
            code = pytest.main([*OPTIONS, *chosen, str(PROBES)], [outcomes])
        import hive

        if not str(hive.__file__).startswith(folder):
            return Trial(mutant, (), 0, f"the probes imported {hive.__file__}")
        error = "" if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) else f"pytest ended with {code}"
        return Trial(mutant, tuple(outcomes.failed), outcomes.passed, error)
