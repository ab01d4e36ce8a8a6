"""The config of a run: TOML in, typed values out, and every mistake told at once with its line.

    keys.py       what one key takes            values.py      which values TOML lends us
    schema.py     all keys, table by table      positions.py   where in the file they stand
    algorithms.py those of [algorithm]          problems.py    how mistakes are told
    schemes.py    what a scheme sets            load.py        document + `--set` -> Config
    syntax.py     bytes -> document             render.py      Config -> TOML

Torch-free. It checks form, ranges and what keys demand of each other; whether an environment, a module or a
device exists is for those who open it.
"""

from __future__ import annotations

from hive.config.algorithms import A2CConfig, AlgorithmConfig, IMPALAConfig, PPOConfig
from hive.config.keys import is_reference
from hive.config.load import load_config
from hive.config.render import render, template
from hive.config.schema import (
    CollectionConfig,
    Config,
    Entry,
    EnvConfig,
    GradientsConfig,
    NetworkConfig,
    RecordConfig,
    RunConfig,
    SupervisionConfig,
)
from hive.config.schemes import SCHEMES

__all__ = [
    "SCHEMES",
    "A2CConfig",
    "AlgorithmConfig",
    "CollectionConfig",
    "Config",
    "Entry",
    "EnvConfig",
    "GradientsConfig",
    "IMPALAConfig",
    "NetworkConfig",
    "PPOConfig",
    "RecordConfig",
    "RunConfig",
    "SupervisionConfig",
    "is_reference",
    "load_config",
    "render",
    "template",
]
