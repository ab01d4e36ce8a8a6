"""The built-in trainer as a topology: collectors, gradient workers, a learner and a recorder.

Placement is all that worker counts of 0 change. `collection.workers = 0` puts a collector into each gradient worker's
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
    homes = ["learner-0"] if not gradients.workers else [f"gradient-worker-{w}" for w in range(gradients.workers)]
    nests = None if collection.workers else homes  # where collectors without a process of their own live
    free = collection.communication == "asynchronous"

    t = Topology()
    collector = t.add(CollectorActor, count=blueprint.collectors, process=nests, blueprint=blueprint)
    worker = t.add(GradientWorkerActor, count=blueprint.gradient_workers, process=homes, blueprint=blueprint)
    learner = t.add(LearnerActor, blueprint=blueprint)
    recorder = t.add(Recorder, last=True, blueprint=blueprint, directory=directory)

    # In the deterministic modes worker w takes the collectors c with c mod W = w; otherwise whoever is ready, unless
    # each worker owns its share.
    by_share = not free or collection.ownership == "gradient_worker"
    share = 1 if free else -(-blueprint.collectors // blueprint.gradient_workers)
    rollouts, gradient = blueprint.rollout_layout, blueprint.gradient_layout(share)
    slots = gradients.bootstrap_rounds + gradients.max_lag + 1
    t.connect(collector.rollouts, worker.rollouts, layout=rollouts, slots=collection.slots, by_share=by_share)
    t.connect(worker.gradients, learner.gradients, layout=gradient, slots=slots, on_death="reoffer")
    # The ledger's version is the commit word of the learner's state: weights and moments change together or not at all.
    t.publish(learner.ledger, block_bytes=blueprint.ledger_bytes)
    t.connect(
        learner.weights,
        worker.state,
        block_bytes=blueprint.state_bytes,
        keep=gradients.max_lag + 1,
        commit_with="ledger",
    )
    t.connect(learner.weights, recorder.weights)
    t.connect(
        learner.behaviour, collector.behaviour, block_bytes=blueprint.flat.block_bytes, keep=collection.max_lag + 1
    )
    if free:
        t.connect(learner.behaviour, worker.behaviour)
    t.connect(learner.metrics, recorder.metrics)

    t.results(learner, *RESULTS)
    t.digest(learner.weights, blueprint.flat.parameter_bytes)
    return t
