"""The defaults that each named scheme sets.

A value in the file or in `--set` overrides the scheme's default, which overrides the default of the key. `hive.schemes`
builds the topologies of the schemes. A custom scheme (`package.module:function`) changes no default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["SCHEMES"]

SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "a2c": {},
    "a3c": {
        "collection.workers": 0,
        "collection.ownership": "gradient_worker",
        "collection.communication": "asynchronous",
        "collection.slots": 2,
        "gradients.workers": 2,
        "gradients.communication": "asynchronous",
    },
    "ppo": {
        "gradients.communication": "synchronous",
        "algorithm.name": "ppo",
    },
    "dd-ppo": {
        "collection.workers": 0,
        "collection.ownership": "gradient_worker",
        "collection.communication": "synchronous",
        "collection.fraction_workers": 0.6,
        "collection.fraction_samples": 0.25,
        "gradients.workers": 3,
        "gradients.communication": "synchronous",
        "gradients.decentralised": True,
        "algorithm.name": "ppo",
    },
    "impala": {
        "collection.communication": "asynchronous",
        "gradients.communication": "asynchronous",
        "algorithm.name": "impala",
    },
    "nstep-q": {
        "collection.envs": 8,
        "collection.rollout": 16,
        "gradients.communication": "synchronous",
        "algorithm.name": "nstep-q",
        "network.activation": "relu",
        "network.layer_norm": True,
    },
    "pqn": {
        "collection.envs": 8,
        "collection.rollout": 32,
        "gradients.communication": "synchronous",
        "algorithm.name": "pqn",
        "network.activation": "relu",
        "network.layer_norm": True,
    },
    "rapid": {
        "collection.workers": 4,
        "collection.ownership": "gradient_worker",
        "collection.communication": "asynchronous",
        "gradients.workers": 2,
        "gradients.communication": "synchronous",
        "algorithm.name": "ppo",
    },
    "single": {
        "collection.workers": 0,
        "collection.communication": "synchronous",
        "gradients.workers": 0,
        "gradients.communication": "synchronous",
    },
}
"""Name of a scheme -> full name of a key -> its default in this scheme."""
