"""The config of a run: reads TOML, returns typed values, and reports all mistakes at once with their lines.

    keys.py       declaration of one key        values.py      TOML values that a config may hold
    schema.py     all keys, table by table      positions.py   places of keys and values in the file
    algorithms.py keys of [algorithm]           problems.py    texts of errors
    schemes.py    defaults of the schemes       load.py        document + `--set` -> Config
    rules.py      rules between keys            render.py      Config -> TOML
    syntax.py     bytes -> document             custom.py      problems found by user code
    references.py "package.module:name"         live.py        changes to a running run
    tuned.py      tuned.toml: known tasks       template.py    the config that `hive init` writes
    other_names.py  other_names.toml: what other trainers call a key

The package does not import torch. It checks form, ranges and rules between keys. Whether an environment, a module or a
device exists is checked by the code that opens it.
"""

from __future__ import annotations

from hive.config.algorithms import (
    ALGORITHMS,
    SCHEDULES,
    A2CConfig,
    ActorCriticConfig,
    AgentConfig,
    AlgorithmConfig,
    BCConfig,
    C51Config,
    DDPGConfig,
    DQNConfig,
    EpsilonGreedyConfig,
    IMPALAConfig,
    NStepQConfig,
    PPOConfig,
    PQNConfig,
    QRDQNConfig,
    ReplayConfig,
    ReplayedValuesConfig,
    SACConfig,
    TargetConfig,
    TD3Config,
)
from hive.config.custom import ConfigProblems
from hive.config.keys import AUTO, is_reference
from hive.config.live import with_parameter
from hive.config.load import load_config
from hive.config.references import absolute, beside, calls_user_code, load_reference, module_of, why_not_found
from hive.config.render import render, resolved
from hive.config.schema import (
    BARRIER_STEPS,
    CUSTOM,
    START_LIMIT_S,
    CollectionConfig,
    Config,
    ConfigEntry,
    EnvConfig,
    NetworkConfig,
)
from hive.config.schemes import ALGORITHM_DEFAULTS, DEFAULT_SCHEME, SCHEMES
from hive.config.template import PolicyRow, Setting, reasoned, template
from hive.config.tuned import tuned, tuned_tasks
from hive.config.values import shown

__all__ = [
    "ALGORITHMS",
    "ALGORITHM_DEFAULTS",
    "AUTO",
    "BARRIER_STEPS",
    "CUSTOM",
    "DEFAULT_SCHEME",
    "SCHEDULES",
    "SCHEMES",
    "START_LIMIT_S",
    "A2CConfig",
    "ActorCriticConfig",
    "AgentConfig",
    "AlgorithmConfig",
    "BCConfig",
    "C51Config",
    "CollectionConfig",
    "Config",
    "ConfigEntry",
    "ConfigProblems",
    "DDPGConfig",
    "DQNConfig",
    "EnvConfig",
    "EpsilonGreedyConfig",
    "IMPALAConfig",
    "NStepQConfig",
    "NetworkConfig",
    "PPOConfig",
    "PQNConfig",
    "PolicyRow",
    "QRDQNConfig",
    "ReplayConfig",
    "ReplayedValuesConfig",
    "SACConfig",
    "Setting",
    "TD3Config",
    "TargetConfig",
    "absolute",
    "beside",
    "calls_user_code",
    "is_reference",
    "load_config",
    "load_reference",
    "module_of",
    "reasoned",
    "render",
    "resolved",
    "shown",
    "template",
    "tuned",
    "tuned_tasks",
    "why_not_found",
    "with_parameter",
]
