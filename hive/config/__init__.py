"""The config of a run: TOML in, typed values out, and every mistake told at once with its line.

    keys.py       what one key takes            values.py      which values TOML lends us
    schema.py     all keys, table by table      positions.py   where in the file they stand
    algorithms.py those of [algorithm]          problems.py    how mistakes are told
    schemes.py    what a scheme sets            load.py        document + `--set` -> Config
    rules.py      what keys demand of others    render.py      Config -> TOML
    syntax.py     bytes -> document             custom.py      problems that a user's code finds
    references.py "package.module:name"           live.py        what may change while a run goes on

Torch-free. It checks form, ranges and what keys demand of each other; whether an environment, a module or a
device exists is for those who open it.
"""

from __future__ import annotations

from hive.config.algorithms import (
    SCHEDULES,
    A2CConfig,
    ActorCriticConfig,
    AlgorithmConfig,
    IMPALAConfig,
    NStepQConfig,
    PPOConfig,
    TargetConfig,
)
from hive.config.custom import ConfigProblems
from hive.config.keys import is_reference
from hive.config.live import with_parameter
from hive.config.load import load_config
from hive.config.references import absolute, load_reference
from hive.config.render import render, template
from hive.config.schema import (
    CUSTOM,
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
from hive.config.values import shown

__all__ = [
    "CUSTOM",
    "SCHEDULES",
    "SCHEMES",
    "A2CConfig",
    "ActorCriticConfig",
    "AlgorithmConfig",
    "CollectionConfig",
    "Config",
    "ConfigProblems",
    "Entry",
    "EnvConfig",
    "GradientsConfig",
    "IMPALAConfig",
    "NStepQConfig",
    "NetworkConfig",
    "PPOConfig",
    "RecordConfig",
    "RunConfig",
    "SupervisionConfig",
    "TargetConfig",
    "absolute",
    "is_reference",
    "load_config",
    "load_reference",
    "render",
    "shown",
    "template",
    "with_parameter",
]
