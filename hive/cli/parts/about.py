"""What `hive check` says of a config: weights, memory, what networks see, and whether runs are exact."""

from __future__ import annotations

from hive.config import Config
from hive.runtime import Topology
from hive.runtime.topology.plan import Plan


def meaning_lines(topology: Topology) -> list[str]:
    """Return lines about what the environment's spaces mean to the networks; none for other topologies."""
    from hive.envs.spaces.meaning import space_meanings
    from hive.schemes import blueprint_of

    return [f"{name}: {text}" for name, text in space_meanings(blueprint_of(topology).environment)]


def network_lines(topology: Topology) -> list[str]:
    """Return lines about weights of files, frozen parameters, and what only the critic sees."""
    from hive.networks.build.naming import frozen_text
    from hive.schemes import blueprint_of

    blueprint = blueprint_of(topology)
    network = blueprint.config.network
    lines = [
        f"weights of {module or 'the network'}: sha256 {sha256}" for module, sha256 in blueprint.weight_files.items()
    ]
    if network.frozen:
        lines.append(f"frozen: {frozen_text(blueprint.sketch)}")
    if network.critic_parts:
        observation = blueprint.environment.observation.without(network.critic_parts)
        seen, hidden = (", ".join(part.name for part in parts) for parts in (observation.parts, observation.hidden))
        lines.append(f"the policy sees {seen}; only the critic also sees {hidden}")
    return lines


def memory_lines(config: Config) -> list[str]:
    """Return the line about the policy's memory; none for a policy without one."""
    network = config.network
    if network.memory == "none":
        return []
    cells = f"{network.memory} of {network.memory_size:,} cells"
    which = f"one {cells} for the policy and one for the value" if network.separate_networks else f"one {cells}"
    return [f"memory: {which}; gradients flow back through a rollout of {config.collection.rollout} steps"]


def exact_lines(config: Config, plan: Plan) -> list[str]:
    """Return whether two runs with the same seed are bit-identical, and why not, one line for each cause."""
    causes = [*config.inexact, *plan.inexact]
    if not causes:
        return ["exact: the same seed gives bit-identical weights, also after a pause or `hive resume --exact`"]
    return [f"not exact: {cause}" for cause in causes]
