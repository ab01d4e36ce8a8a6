"""What the head and a host must agree on: the config without the hosts, and the bytes of rollouts and policies."""

from __future__ import annotations

import dataclasses
import json

from hive.config import Config
from hive.envs.reading_spaces import to_plain
from hive.workers import Blueprint

__all__ = ["shape_of", "without_hosts"]


def without_hosts(config: Config) -> Config:
    """Return the config of the same run on one machine."""
    collection = dataclasses.replace(config.collection, hosts=())
    evaluation = dataclasses.replace(config.evaluation, hosts=())
    return dataclasses.replace(config, hosts=type(config.hosts)(), collection=collection, evaluation=evaluation)


def shape_of(blueprint: Blueprint) -> str:
    """Return a text that is equal on two machines if their rollouts and policies have the same bytes."""
    fields = [f"{name}: {kind}" for name, kind in blueprint.rollout_layout.as_data()["fields"].items()]
    flat = blueprint.flat
    parameters = [f"{name}: {list(shape)}" for name, shape in zip(flat.names, flat.shapes, strict=True)]
    # The meaning of spaces too: a policy that one end scales otherwise would act otherwise.
    environment = blueprint.environment
    spaces = f"spaces: {json.dumps(to_plain((environment.observation, environment.action)))}"
    return "\n".join([*fields, *parameters, spaces, f"policy: {flat.block_bytes} bytes"])
