"""`scripts/mutants`: every mutant still fits the sources, and the probes notice one of every kind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from mutation import command
from mutation.mutant import MUTANTS, Mutant, MutantError
from mutation.trials import Trial

ROOT = Path(__file__).parents[2]
ALL = ("a2c", "ppo", "impala", "nstep-q", "pqn")


def smallest() -> list[str]:
    """The name of one mutant of each kind, that of the fewest algorithms, if it is of one or of a file of tests."""
    found: dict[str, Mutant] = {}
    for mutant in sorted(MUTANTS, key=lambda mutant: (len(mutant.algorithms), "ppo" in mutant.algorithms)):
        found.setdefault(mutant.kind, mutant)
    return [mutant.name for mutant in found.values() if len(mutant.algorithms) <= 1]


SMALL = smallest()
PARTS = 4
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
    common |= {"shifted row", "swapped axes"}
    detached = [mutant for mutant in MUTANTS if mutant.kind == "missing detach"]
    assert "losses/test_native.py" in {mutant.tests for mutant in detached}
    for algorithm in ALL:
        kinds = {mutant.kind for mutant in MUTANTS if algorithm in mutant.algorithms}
        assert kinds >= common, algorithm
        assert ("stale log-probability" in kinds) == (algorithm in ("ppo", "impala")), algorithm


def test_the_guide_has_their_number() -> None:
    promises = (ROOT / "examples" / "guide" / "promises.md").read_text()
    assert f"{len(MUTANTS)} faults (" in promises


def test_a_mutant_changes_one_place() -> None:
    source = "class First:\n    x + y\n\nclass Second:\n    x + y\n\nclass Third:\n    x + y\n"
    assert ONE.applied(source) == source.replace("Second:\n    x + y", "Second:\n    x - y")


@pytest.mark.parametrize("source", ["", "class Second:\n    pass", "class Second:\n    x + y\n    x + y"])
def test_a_mutant_that_fits_nowhere_or_twice_is_an_error(source: str) -> None:
    with pytest.raises(MutantError, match=r"x \+ y|class Second"):
        ONE.applied(source)


def tried(killers: tuple[str, ...], unchanged: tuple[str, ...] = ()) -> Callable[..., Iterator[Trial]]:
    """Stands for `trials`, in which these probes fail for each mutant, and `unchanged` without a fault."""

    def of(mutants: Sequence[Mutant | None], processes: int) -> Iterator[Trial]:
        return (Trial(mutant, killers if mutant else unchanged, 5) for mutant in mutants)

    return of


@pytest.mark.parametrize(
    ("found", "code", "text"),
    [
        (tried(("test_choice[a2c]",)), 0, "a2c  choice\n\n1 mutants in 0 s, 0 not detected"),
        (tried(("test_choice[ppo]",)), 1, "a2c  SURVIVED\n\n1 mutants in 0 s, 1 not detected"),
        (tried((), ("test_choice[a2c]",)), 1, "probes fail without any fault: test_choice[a2c]"),
    ],
)
def test_the_command_fails_if_a_mutant_survives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: Any, code: int, text: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["mutants"])
    monkeypatch.setattr(command, "MUTANTS", (ONE,))
    monkeypatch.setattr(command, "trials", found)
    assert command.main() == code
    assert text in capsys.readouterr().out


@pytest.mark.full(reason="runs the probes once for each mutant", rotates=True)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_probes_notice_mutants_and_nothing_else(part: int) -> None:
    """A mutant of every kind that changes one algorithm; `scripts/mutants` tries all. Comments have no influence."""
    code = f"""
import sys
sys.path.insert(0, {str(ROOT / "scripts")!r})
from mutation.mutant import MUTANTS, Mutant
from mutation.trials import trials
name = "algorithms/losses/q_learning.py"
harmless = Mutant("no fault", "text", ("nstep-q",), name, "Losses of algorithms that", "Losses that")
python = Mutant("no fault", "", (), "experience/replay.py", "A replay memory:", "", tests="experience/test_replay.py")
native = Mutant("no fault", "", (), "src/replay.cpp", "while the episode lasts", "", tests="tests/test_replay.cpp")
faults = [mutant for mutant in MUTANTS if mutant.name in {SMALL[part::PARTS]!r}]
found = list(trials([harmless, python, native, *faults], 2))
for trial in found[:3]:
    print(trial.survivors, trial.error, trial.passed > 0)
print(len(found) - 3, [(trial.mutant.name, trial.error) for trial in found[3:] if trial.survivors or trial.error])
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=900)
    assert done.stdout.splitlines() == [
        "['nstep-q']  True",
        "['experience/test_replay.py']  True",
        "['tests/test_replay.cpp']  True",
        f"{len(SMALL[part::PARTS])} []",
    ], done.stdout + done.stderr
