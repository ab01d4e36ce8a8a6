"""Which topologies are exact: those where no message of a user-defined port reaches the training at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hive.config import Config, load_config
from hive.runtime import (
    Actor,
    Board,
    Handle,
    Inlet,
    Message,
    Outlet,
    Publication,
    Subscription,
    Topology,
    endpoint,
)
from hive.schemes import build
from hive.training import CollectorActor, Evaluation, EvaluatorActor, LearnerActor, Metrics, Weights

TEXT = """
run.scheme = "SCHEME"
env.id = "CartPole-v1"
evaluation.every = { updates = 2 }
"""


def config(scheme: str = "a2c") -> Config:
    return load_config("x.toml", text=TEXT.replace("SCHEME", scheme))


class Level(Message):
    n: int


class Curriculum(Actor):
    evaluations = Inlet(Evaluation)
    levels = Outlet(Level, pattern="broadcast")
    kept = Publication(Level)

    def __init__(self, learner: Handle | None = None, several: list[Handle] | None = None) -> None:
        self.learner = learner


class Reader(Actor):
    evaluations = Inlet(Evaluation)
    metrics = Inlet(Metrics, optional=True)
    behaviour = Subscription(Weights, optional=True)


class Pupil(CollectorActor):
    levels = Inlet(Level, optional=True)
    kept = Subscription(Level, optional=True)


class Quiet(CollectorActor):
    """Another class without another input, as an environment has."""


class Judge(EvaluatorActor):
    pass


class Steered(LearnerActor):
    @endpoint
    async def steer(self) -> None:
        pass


def plain(t: Topology) -> None:
    pass


def listened_to(t: Topology) -> None:
    reader = t.add(Reader)
    t.connect(t["evaluator"].evaluations, reader.evaluations)
    t.connect(t["learner"].metrics, reader.metrics)
    t.connect(t["learner"].behaviour, reader.behaviour)
    t.replace("collectors", Quiet)
    t.replace("evaluator", Judge)


def taught(t: Topology) -> None:
    curriculum = t.add(Curriculum)
    t.replace("collectors", Pupil)
    t.connect(t["evaluator"].evaluations, curriculum.evaluations)
    t.connect(curriculum.levels, t["collectors"].levels)
    t.publish(curriculum.kept, Board(8))


def published(t: Topology) -> None:
    curriculum = t.add(Curriculum)
    t.replace("collectors", Pupil)
    t.connect(t["evaluator"].evaluations, curriculum.evaluations)
    t.connect(curriculum.kept, t["collectors"].kept, Board(8))
    t.connect(curriculum.levels, t.add(Sink).levels)


class Sink(Actor):
    levels = Inlet(Level)


def called(t: Topology) -> None:
    curriculum = t.add(Curriculum, learner=t["learner"].handle())
    t.connect(t["evaluator"].evaluations, curriculum.evaluations)
    t.connect(curriculum.levels, t.add(Sink).levels)
    t.publish(curriculum.kept, Board(8))


def called_in_a_list(t: Topology) -> None:
    curriculum = t.add(Curriculum, several=[t["learner"].handle()])
    t.connect(t["evaluator"].evaluations, curriculum.evaluations)
    t.connect(curriculum.levels, t.add(Sink).levels)
    t.publish(curriculum.kept, Board(8))


@pytest.mark.parametrize("scheme", ["a2c", "dqn", "ppo"])
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (plain, ""),
        (listened_to, ""),
        (taught, "`curriculum.levels` reaches `collectors` at a time, not at an update"),
        (published, "`curriculum.kept` reaches `collectors` at a time, not at an update"),
        (called, "`curriculum` can call `learner` at any time"),
        (called_in_a_list, "`curriculum` can call `learner` at any time"),
    ],
)
def test_what_reaches_the_training(scheme: str, change: Callable[[Topology], None], cause: str) -> None:
    topology = build(config(scheme))
    change(topology)
    assert topology.plan().inexact == ((cause,) if cause else ())


def test_a_topology_without_a_learner_of_hive_is_not_exact() -> None:
    t = Topology()
    t.connect(t.add(Source).levels, t.add(Sink).levels)
    assert t.plan().inexact == ("its topology has no learner of hive",)


class Source(Actor):
    levels = Outlet(Level)


@pytest.mark.parametrize(
    ("sets", "causes"),
    [
        ([], []),
        (["collection.communication=asynchronous"], ['collection.communication = "asynchronous"']),
        (
            ["collection.communication=asynchronous", "gradients.communication=asynchronous"],
            ['collection.communication = "asynchronous"', 'gradients.communication = "asynchronous"'],
        ),
        (["collection.workers=2", "collection.fraction_workers=0.5"], ["collection.fraction_workers = 0.5"]),
    ],
)
def test_what_of_a_config_depends_on_time(sets: list[str], causes: list[str]) -> None:
    found = load_config("x.toml", sets, text=TEXT.replace("SCHEME", "a2c"))
    assert (found.inexact, found.exact) == (causes, not causes)
