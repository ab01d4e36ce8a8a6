"""The life of an environment: constructed once, reset at resume barriers, and made again only where it must be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from living import Counts, Refuses
from trained_runs import Run, train

from hive.config import load_config
from hive.errors import ConfigError, EnvironmentFailed
from hive.records import write_resume_point
from hive.records.run_warnings import EPISODES_CUT, FACT, NOT_REPEATED, RESET_REFUSED, WARNING
from hive.schemes import build
from hive.testing import run_inline
from hive.training import Blueprint

EVERY = {"checkpoint__every": "{ updates = 4 }", "collection__communication": '"synchronous"'}
TWICE = 1 + 2  # constructions: one to read the spaces, and the environments of the collector


def named(run: Run, kind: str) -> dict[str, str]:
    """The texts of the facts or warnings of a run, by name."""
    return {fields[kind]: text for what, text, fields in run.events if what == kind}


@pytest.mark.parametrize(("rebuild", "barriers"), [("false", {0}), ("true", {3, 4})])
def test_a_barrier_constructs_nothing_unless_the_config_says_so(
    tmp_path: Path, rebuild: str, barriers: set[int]
) -> None:
    """The last barrier ends the run, and the collector may have passed it."""
    Counts.made.clear()
    train(tmp_path, "living:Counts", env__rebuild=rebuild, **EVERY)
    assert len(Counts.made) in {TWICE + 2 * number for number in barriers}


def test_an_environment_that_refuses_a_reset_within_its_episode_is_constructed_again(tmp_path: Path) -> None:
    """With the same weights as one that can be reset at any time."""
    patient, refusing = (
        train(tmp_path, "living:Refuses", env__options=f"{{ refuses = {value} }}", **EVERY)
        for value in ("false", "true")
    )
    assert patient.outcome.digest == refusing.outcome.digest
    assert RESET_REFUSED not in named(patient, FACT)
    assert "RuntimeError: the contest is not over" in named(refusing, FACT)[RESET_REFUSED]


def test_or_the_error_says_what_it_refused(tmp_path: Path) -> None:
    Refuses.made.clear()
    with pytest.raises(EnvironmentFailed, match="refused a reset within its episode, RuntimeError: the contest"):
        train(tmp_path, "living:Refuses", env__options=f"{{ most = {TWICE} }}", **EVERY)


def test_a_constructor_that_fails_for_the_second_names_processes_of_their_own() -> None:
    Refuses.made.clear()
    blueprint = Blueprint(load_config("a.toml", ["env.id=living:Refuses", "env.options={ most = 2 }"], text=""))
    with pytest.raises(EnvironmentFailed, match="cannot be started again") as caught:
        blueprint.vector(2)
    assert 'env.processes = "each"' in caught.value.hint


@pytest.mark.parametrize(
    ("options", "rebuild", "same"), [("{}", "false", False), ("{}", "true", True), ("{ shows = false }", "false", True)]
)
def test_a_resume_compares_the_rounds_that_it_makes_again(
    tmp_path: Path, options: str, rebuild: str, same: bool
) -> None:
    """What an environment keeps over its reset is found by its effect; new ones at each barrier mend it."""
    run = train(tmp_path, "living:Counts", env__options=options, env__rebuild=rebuild, checkpoint__keep=9, **EVERY)
    write_resume_point(run.directory, 8)
    events: list[tuple[str, str, dict[str, Any]]] = []
    again = resume(run, events)
    assert (again.outcome.digest == run.outcome.digest) == same
    assert (NOT_REPEATED in named(again, WARNING)) != same
    repeated = re.search(r"rounds 8 to 1[56] of collector-0 were made again", str(named(again, FACT)))
    assert (repeated is not None) == same
    if not same:
        text = named(again, WARNING)[NOT_REPEATED]
        assert "round 8 of collector-0" in text
        assert "env.rebuild = true" in text


def resume(run: Run, events: list[tuple[str, str, dict[str, Any]]]) -> Run:
    """Run on from the checkpoint that resume.json names."""
    from hive.runtime.supervise.supervisor import Journal, Supervisor

    seen: list[Supervisor] = []

    def look(supervisor: Supervisor) -> None:
        supervisor.effects.journal = Journal(lambda *event: events.append(event), lambda *report: "")
        seen.append(supervisor)

    outcome = run_inline(build(run.config, run.directory.path), watch=look, seconds=60)
    return Run(run.config, run.directory, outcome, seen[0], events)


def test_episodes_that_barriers_always_cut_are_told_although_short_ones_end_beside_them(tmp_path: Path) -> None:
    """Barriers lie 32 steps of each environment apart."""
    cut, ended = (
        train(tmp_path, "living:Patience", run__steps=4096, **{**EVERY, "checkpoint__every": every})
        for every in ("{ updates = 4 }", "{}")
    )
    text = named(cut, WARNING)[EPISODES_CUT]
    assert "after 32 steps of each environment; the longest that has ended has 2" in text
    assert "scheduled checkpoints cut" in named(cut, FACT)[EPISODES_CUT]
    assert EPISODES_CUT not in {**named(ended, WARNING), **named(ended, FACT)}


def test_a_program_is_not_constructed_again() -> None:
    with pytest.raises(ConfigError, match="a program is started once"):
        load_config("a.toml", ['env.command=["./a"]', "env.rebuild=true", "run.scheme=a2c"], text="")
