"""The sizes of a run for `hive check`: what it takes of the memory, where, and what an update of the weights costs.

    memory: 4.12 GiB; 21.3 GiB are free, of which a run may take 90 %
      slots     rollouts 1.21 GiB, gradients 64.2 MiB
      boards    weights 128 MiB, behaviour 96.4 MiB, optimizer_state 192 MiB
      private   2.41 GiB: networks and gradients in 34 processes
      at worst  2.10 GiB more, if every step ended an episode by truncation
    network: 8,421,376 parameters in 32.1 MiB; 27.6 KiB an observation
    on disk: 96.3 MiB a checkpoint
    optimizer: adam takes 3.1 ms an update (28 bytes a parameter at 21 GB/s, measured here)

Everything but the last line follows from the layouts. Activations, environments and Python are not counted.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hive.errors import TopologyError
from hive.free_memory import MEMORY_SHARE, free_memory, size_text
from hive.runtime import Topology
from hive.runtime.process.limits import PRIVATE, memory_parts
from hive.runtime.topology.plan import Plan

if TYPE_CHECKING:  # imports torch
    from hive.training import Blueprint

LISTED = {"slots": "slots", "zmq": "slots", "board": "boards"}  # carrier -> its line; another has a line of its own
MEASURED = 1 << 21  # parameters at most that the optimizer is measured with: more than fit a core's caches
REPEATED = 3  # measurements, of which the fastest counts


@dataclass(frozen=True)
class NetworkSizes:
    """What follows from the size of the networks."""

    parameters: int  # number of them
    bytes: int  # of one version of the weights, with buffers
    observation_bytes: int  # of one stored observation
    checkpoint_bytes: int  # of one checkpoint without a replay memory
    replay_bytes: int  # of a full replay memory
    optimizer: str
    optimizer_ms: float  # time of one update
    optimizer_bytes: int  # bytes that an update reads and writes per parameter


@dataclass(frozen=True)
class Sizes:
    """Sizes of a run, in bytes."""

    bytes: int  # memory that the run takes here
    free_bytes: int
    free: str  # `free_bytes` as text, with what limits it
    worst: int  # memory that the run may take beyond `bytes`
    parts: Mapping[str, int]  # name of a channel, or PRIVATE -> its share of `bytes`
    kinds: Mapping[str, str]  # name of a channel -> the line that lists it: slots, boards, shared ...
    processes: int  # number of processes with private memory
    hosts: Mapping[str, int]  # name of another host -> memory that the run takes there
    network: NetworkSizes | None  # None for a topology without the built-in trainer


def sizes_of(topology: Topology, plan: Plan) -> Sizes:
    """Return the sizes of a run. Nothing of them is allocated."""
    from hive.schemes import blueprint_of  # imports torch, without which the command line loads

    network, hosts = None, {}
    with contextlib.suppress(TopologyError):
        blueprint = blueprint_of(topology)
        network, hosts = _network_sizes(blueprint), _hosts(topology, blueprint)
    free = free_memory()
    kinds = {
        channel.name: LISTED.get(channel.carrier, channel.carrier) for channel in plan.channels if channel.segments
    }
    return Sizes(
        bytes=plan.bytes + plan.private_bytes,
        free_bytes=free.bytes,
        free=str(free),
        worst=plan.sparse_bytes,
        parts=memory_parts(plan),
        kinds=kinds,
        processes=plan.private_processes,
        hosts=hosts,
        network=network,
    )


def size_lines(sizes: Sizes) -> list[str]:
    """Return the lines that `hive check` prints."""
    fits = "" if sizes.bytes <= MEMORY_SHARE * sizes.free_bytes else ": too little"
    most = f"of which a run may take {100 * MEMORY_SHARE:.0f} %"
    lines = [f"memory: {size_text(sizes.bytes)}; {sizes.free} are free, {most}{fits}"]
    for kind in dict.fromkeys((*LISTED.values(), *sizes.kinds.values())):
        own = [f"{name} {size_text(size)}" for name, size in sizes.parts.items() if sizes.kinds.get(name) == kind]
        lines += [f"  {kind:<10}{', '.join(own)}"] if own else []
    if PRIVATE in sizes.parts:
        of = f"networks and gradients in {sizes.processes:,} process{'es'[: 2 * (sizes.processes != 1)]}"
        lines.append(f"  {'private':<10}{size_text(sizes.parts[PRIVATE])}: {of}")
    if sizes.worst:
        lines.append(f"  {'at worst':<10}{size_text(sizes.worst)} more, if every step ended an episode by truncation")
    if sizes.hosts:
        each = [f"{name} {size_text(size)}" for name, size in sizes.hosts.items()]
        lines.append(f"  {'on hosts':<10}{', '.join(each)}")
    network = sizes.network
    if network is not None:
        seen = f"{size_text(network.observation_bytes)} an observation"
        lines.append(f"network: {network.parameters:,} parameters in {size_text(network.bytes)}; {seen}")
        full = f", and {size_text(network.replay_bytes)} of a full replay memory" if network.replay_bytes else ""
        lines.append(f"on disk: {size_text(network.checkpoint_bytes)} a checkpoint{full}")
        spent, count = network.optimizer_ms, network.optimizer_bytes
        rate = network.parameters * count / spent / 1e6
        lines.append(
            f"optimizer: {network.optimizer} takes {spent:{',.0f' if spent >= 100 else '.3g'}} ms an update "
            f"({count} bytes a parameter at {rate:.3g} GB/s, measured here)"
        )
    return lines


def _hosts(topology: Topology, blueprint: Blueprint) -> dict[str, int]:
    """Return the bytes of the part of the run on each other host, which is compared with its free memory there."""
    from hive.hosts import HostFacts, part_of

    config, nothing, found = blueprint.config, range(0), {}
    for name in config.hosts.cores:
        collectors = config.placement.get(name, nothing)
        evaluators = config.evaluator_placement.get(name, nothing)
        if collectors or evaluators:
            facts = HostFacts(
                run="",
                host=name,
                incarnation=0,
                address="",
                head="",
                public="",
                secret="",
                silence_s=1.0,
                agent=0,
                agent_start=0,
                collectors=[collectors.start, len(collectors)],
                evaluators=[evaluators.start, len(evaluators)],
                first=[0] * len(collectors),
            )
            plan = part_of(topology, blueprint, facts).plan()
            found[name] = plan.bytes + plan.private_bytes
    return found


def _network_sizes(blueprint: Blueprint) -> NetworkSizes:
    flat, observation = blueprint.flat, blueprint.environment.observation
    milliseconds, each = _optimizer(blueprint)
    return NetworkSizes(
        parameters=flat.count,
        bytes=flat.block_bytes,
        observation_bytes=observation.bytes,
        checkpoint_bytes=blueprint.state.bytes + blueprint.optimizer_state_bytes,
        replay_bytes=blueprint.replay.saved_bytes if blueprint.replays else 0,
        optimizer=blueprint.config.algorithm.optimizer,
        optimizer_ms=milliseconds,
        optimizer_bytes=each,
    )


def _optimizer(blueprint: Blueprint) -> tuple[float, int]:
    """Return the milliseconds of an update, and the bytes that it reads and writes for each parameter.

    It is timed with at most MEASURED parameters, in proportion to which larger networks take longer.
    """
    from hive.networks.weights.flat import aligned_block
    from hive.networks.weights.optimizers import FlatOptimizer
    from hive.training.update.learner import optimizer_settings

    optimizer, count = FlatOptimizer(optimizer_settings(blueprint.config.algorithm)), blueprint.flat.parameter_elements
    size = min(count, MEASURED)
    blocks = [aligned_block(4 * size).view(np.float32) for _ in range(3 + 2 * optimizer.moment_blocks)]
    for block in blocks:
        block[:] = 0.0  # also makes the memory real
    weights, following, gradient, *moments = blocks
    old, new = moments[: optimizer.moment_blocks], moments[optimizer.moment_blocks :]
    fastest = float("inf")
    for _ in range(REPEATED):
        begun = time.perf_counter()
        optimizer.step(weights, following, gradient, old, new, step=1, learning_rate=1e-3, gradient_scale=1.0)
        fastest = min(fastest, time.perf_counter() - begun)
    return 1e3 * fastest * count / size, 4 * (3 + 2 * optimizer.moment_blocks)
