"""What the head and a host must agree on: the config without the hosts, and the bytes of rollouts and policies."""

from __future__ import annotations

import dataclasses

from hive.config import Config
from hive.training import Blueprint


def without_hosts(config: Config) -> Config:
    """Return the config of the same run on one machine, without files that only this machine has to have."""
    collection = dataclasses.replace(config.collection, hosts=())
    evaluation = dataclasses.replace(config.evaluation, hosts=())
    network = dataclasses.replace(config.network, weights={})  # a host gets the weights of every turn
    return dataclasses.replace(
        config, hosts=type(config.hosts)(), collection=collection, evaluation=evaluation, network=network
    )


def shape_of(blueprint: Blueprint) -> str:
    """Return a text that is equal on two machines if their rollouts and policies have the same bytes and meaning."""
    fields = [f"{name}: {kind}" for name, kind in blueprint.rollout_layout.as_data()["fields"].items()]
    flat, environment = blueprint.flat, blueprint.environment
    parameters = [f"{name}: {list(shape)}" for name, shape in zip(flat.names, flat.shapes, strict=True)]
    # Another version of an environment may declare other bounds, by which its collectors would scale.
    scales = [
        f"input {number}: {one.low} to {one.high}, channels {one.channels}{f', less {one.origin}' * bool(one.origin)}"
        for number, one in enumerate(environment.observation.inputs)
    ]
    return "\n".join(
        [*fields, *parameters, *scales, f"action: {environment.action}", f"policy: {flat.block_bytes} bytes"]
    )
