"""Hyper-parameters of rl-baselines3-zoo as keys of hive: `hive init ENV --from ppo.yml`.

    entries.py        file -> the entry of an environment       names.toml   names and defaults of the Zoo, as data
    environment.py    wrappers, options -> [env]                yaml_text.py, python_values.py   safe readers
    learning.py, layers.py    all other keys
    draft.py          settings, and notes on what has no translation

Each key of an entry becomes a key of the config or a note, none is left out in silence.
"""
