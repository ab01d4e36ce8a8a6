"""`scripts/mutants`: every mutant still fits the sources, and the probes notice one of every kind."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from mutation.faults import ALL, MUTANTS
from mutation.mutant import Mutant, MutantError

ROOT = Path(__file__).parents[2]

FIRST = {mutant.kind: mutant.name for mutant in reversed(MUTANTS)}  # of each kind
ONE = Mutant("wrong sign", "sum", ("a2c",), "losses/sums.py", "x + y", "x - y", within="class Second")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_fits_the_sources(mutant: Mutant) -> None:
    """A change of a line that a mutant replaces requires a change of the mutant, or else nothing tries this fault."""
    source = (ROOT / ("native" if mutant.native else "hive") / mutant.file).read_text()
    changed = mutant.applied(source)
    assert changed != source
    if not mutant.native:
        compile(changed, mutant.file, "exec")
    if mutant.tests:
        assert (ROOT / ("native" if mutant.native else "tests") / mutant.tests).exists()
    assert bool(mutant.tests) != bool(mutant.algorithms)


def test_every_algorithm_has_every_kind_of_fault() -> None:
    common = {"wrong sign", "missing bootstrap", "wrong bootstrap", "bootstrap at termination", "missing discount"}
    common |= {"missing detach", "shifted row", "swapped axes"}
    for algorithm in ALL:
        kinds = {mutant.kind for mutant in MUTANTS if algorithm in mutant.algorithms}
        assert kinds >= common, algorithm
        assert ("stale log-probability" in kinds) == (algorithm in ("ppo", "impala")), algorithm


def test_a_mutant_changes_one_place() -> None:
    source = "class First:\n    x + y\n\nclass Second:\n    x + y\n\nclass Third:\n    x + y\n"
    assert ONE.applied(source) == source.replace("Second:\n    x + y", "Second:\n    x - y")


@pytest.mark.parametrize("source", ["", "class Second:\n    pass", "class Second:\n    x + y\n    x + y"])
def test_a_mutant_that_fits_nowhere_or_twice_is_an_error(source: str) -> None:
    with pytest.raises(MutantError, match=r"x \+ y|class Second"):
        ONE.applied(source)


@pytest.mark.full(reason="runs the probes once for each mutant")
def test_the_probes_notice_a_mutant_of_every_kind() -> None:
    """`scripts/mutants` tries all of them."""
    pattern = "|".join(f"^{re.escape(name)}$" for name in FIRST.values())
    command = [sys.executable, str(ROOT / "scripts" / "mutants"), "--only", pattern, "--processes", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full(reason="runs the probes once")
def test_a_mutant_that_no_probe_notices_is_reported(tmp_path: Path) -> None:
    """The comments that these change have no influence."""
    code = f"""
import sys
sys.path.insert(0, {str(ROOT / "scripts")!r})
from mutation.mutant import Mutant
from mutation.trials import trials
name = "losses/q_learning.py"
harmless = Mutant("no fault", "text", ("nstep-q",), name, "The loss of action values against", "Loss of")
python = Mutant("no fault", "", (), "storage/replay.py", "A replay memory:", "", tests="storage/test_replay.py")
native = Mutant("no fault", "", (), "src/replay.cpp", "while the episode lasts", "", tests="tests/test_replay.cpp")
trial, *others = trials([harmless, python, native], 1)
print(trial.survivors, trial.error, trial.passed > 5)
print(*(other.survivors + [other.error, other.passed > 0] for other in others))
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == (
        "['nstep-q']  True\n['storage/test_replay.py', '', True] ['tests/test_replay.cpp', '', True]\n"
    ), done.stdout + done.stderr
