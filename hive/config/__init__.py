"""The config of a run: reads TOML, returns typed values, and reports all mistakes at once with their lines.

    keys.py       declaration of one key        values.py      TOML values that a config may hold
    schema.py     all keys, table by table      positions.py   places of keys and values in the file
    algorithms.py keys of [algorithm]           problems.py    texts of errors
    schemes.py    defaults of the schemes       load.py        document + `--set` -> Config
    rules.py      rules between keys            render.py      Config -> TOML
    syntax.py     bytes -> document             custom.py      problems found by user code
    references.py "package.module:name"         live.py        changes to a running run
    known_tasks.py  tuned.toml: known tasks       template.py    the config that `hive init` writes
    points.py     points of a schedule             zoo/       files of rl-baselines3-zoo
    other_names.py  other_names.toml: what other trainers call a key

The package does not import torch. It checks form, ranges and rules between keys. Whether an environment, a module or a
device exists is checked by the code that opens it.

A module is imported when one of its names is first used.
"""

from hive.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
