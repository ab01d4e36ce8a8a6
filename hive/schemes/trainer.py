"""The built-in trainer as a topology: collectors, gradient workers, a learner and a recorder.

Placement is all that the worker counts change. `collection.workers = 0` puts the collector into the gradient worker's
process, `gradients.workers = 0` the gradient worker into the learner's; both together are one training process.
"""

from __future__ import annotations

from pathlib import Path

from hive.config import Config
from hive.runtime import Topology
from hive.workers import RESULTS, Blueprint, CollectorActor, GradientWorkerActor, LearnerActor, Recorder

__all__ = ["trainer"]


def trainer(config: Config, directory: Path) -> Topology:
    """The topology of one on-policy trainer; `directory` is the run's."""
    blueprint = Blueprint(config)
    collection, gradients = config.collection, config.gradients
    home = None if gradients.workers else "learner-0"  # where gradients are computed
    nest = home or "gradient-worker-0"  # where a collector without a process of its own lives
    collectors = max(collection.workers, 1)

    t = Topology()
    collector = t.add(
        CollectorActor, count=collectors, process=None if collection.workers else nest, blueprint=blueprint
    )
    worker = t.add(GradientWorkerActor, count=max(gradients.workers, 1), process=home, blueprint=blueprint)
    learner = t.add(LearnerActor, blueprint=blueprint)
    recorder = t.add(Recorder, last=True, blueprint=blueprint, directory=directory)

    share = -(-collectors // len(worker.names))
    t.connect(
        collector.rollouts, worker.rollouts, layout=blueprint.rollout_layout, slots=collection.slots, by_share=True
    )
    t.connect(
        worker.gradients,
        learner.gradients,
        layout=blueprint.gradient_layout(share),
        slots=gradients.bootstrap_rounds + gradients.max_lag + 1,
        on_death="reoffer",
    )
    # The ledger's version is the commit word of the learner's state: weights and moments change together or not at all.
    t.publish(learner.ledger, block_bytes=blueprint.ledger_bytes)
    t.connect(
        learner.weights,
        worker.state,
        block_bytes=blueprint.flat.block_bytes,
        keep=gradients.max_lag + 1,
        commit_with="ledger",
    )
    t.connect(learner.weights, recorder.weights)
    t.connect(
        learner.behaviour, collector.behaviour, block_bytes=blueprint.flat.block_bytes, keep=collection.max_lag + 1
    )
    t.connect(learner.metrics, recorder.metrics)

    t.results(learner, *RESULTS)
    t.digest(learner.weights, blueprint.flat.parameter_bytes)
    return t
