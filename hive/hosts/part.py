"""The part of a run that runs on another host, as a topology of its own.

`part_of` takes the topology of the run without hosts, as the head builds it, so that the collectors here have the class
and the parameters that a custom topology gives them. Of it, the part has the actors of this host. The two actors of
the link process take the places of the rest (hive.hosts.host).
"""

from __future__ import annotations

from hive.hosts.files import HostFacts
from hive.hosts.host import PolicyImporter, RolloutExporter, RunLink
from hive.runtime import Board, Slots, Topology
from hive.training import Blueprint

LINK = "link"  # the process that talks to the head


def part_of(whole: Topology, blueprint: Blueprint, facts: HostFacts) -> Topology:
    """Return the topology of the collectors and evaluators of a host. Raises TopologyError."""
    config, link = blueprint.config, RunLink(facts, blueprint)
    t = Topology()
    exporter = t.add(RolloutExporter, process=LINK, link=link)
    importer = t.add(PolicyImporter, process=LINK, link=link)
    first, count = facts.collectors
    if count:
        collectors = whole["collectors"]
        collector = t.add(collectors.cls, group="collectors", count=count, **collectors.parameters)
        t.renumber(collector, first)
        # A killed exporter may have claimed rollouts that the head lacks: its successor sends them.
        layout, slots = blueprint.rollout_layout, config.collection.slots
        t.connect(
            collector.rollouts,
            exporter.rollouts,
            Slots(layout, slots=slots, first=tuple(facts.first), on_death="reoffer"),
        )
        board = Board(blueprint.flat.block_bytes, keep=config.collection.max_lag + 1)
        t.connect(importer.behaviour, collector.behaviour, board)
    first, count = facts.evaluators
    if count:
        evaluators = whole["evaluator"]
        evaluator = t.add(evaluators.cls, group="evaluator", count=count, **evaluators.parameters)
        t.renumber(evaluator, first)
        t.connect(importer.weights, evaluator.weights, Board(blueprint.state.bytes, keep=count))
        t.connect(importer.due, evaluator.due)
        t.connect(evaluator.evaluations, exporter.evaluations)
    return t
