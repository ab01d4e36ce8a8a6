"""Selects runs by texts of a user, and forms groups of runs that differ only in their seeds.

    cartpole-ppo-3        one run: a name, a unique prefix of a name, a path or `latest`
    cartpole-ppo          all runs cartpole-ppo-<n>, unless a run has exactly this name
    'cartpole-*'          all runs whose names match a pattern of the shell
    slow='cartpole-[45]'  the same runs as one group with the name `slow`, whatever their configs; several texts are
                          separated by commas

Runs that no text gave a group are grouped by their configs without `run.seed` and by their names without numbers. If
several groups have the same name, each is labeled with the keys that tell them apart; `compare` lists all that differ.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hive.comparison.curves import RunCurves
from hive.config import Config
from hive.config.policies import POLICIES
from hive.config.schema import ConfigEntry
from hive.config.values import toml_text
from hive.errors import UsageError
from hive.records import RunDirectory
from hive.records.documents import DOCUMENT_BYTES
from hive.records.regular import read_regular

PATTERN = re.compile(r"[*?\[]")
LABEL = re.compile(r"([A-Za-z0-9_. -]+)=(.+)", re.DOTALL)  # a path with `=` in it is written as ./path
MOST_RUNS = 1000  # of one comparison: more are a pattern that matched too much, and take minutes to read
SEED = "run.seed"
NAME = "run.name"  # with or without it in a config, the name of the directory counts
LABEL_KEYS = 3  # maximum keys in a label, which must fit in the legend of a picture
LABEL_VALUE = 24  # maximum characters of a value in a label


@dataclass(frozen=True)
class Selected:
    """A run and the label that the user gave its group; "" for none."""

    directory: RunDirectory
    label: str


@dataclass(frozen=True)
class RunGroup:
    """Runs that count as seeds of one configuration, in the order in which they were selected. At least one."""

    label: str
    runs: tuple[RunCurves, ...]

    @property
    def values(self) -> Mapping[str, Any] | None:
        """Key -> value of the first run with a config, without name and seed; None if no run has one."""
        return next((found for run in self.runs if (found := _values(run)) is not None), None)

    def counted(self, metric: str) -> tuple[RunCurves, ...]:
        """Return the runs with values of a metric; of those with the same config and seed, that with the most steps."""
        longest: dict[Any, RunCurves] = {}
        for run in self.runs:
            if metric in run.curves:
                key = (_config_key(run), run.config.run.seed) if run.config else str(run.directory.path)
                known = longest.setdefault(key, run)
                if run.curves[metric].steps[-1] > known.curves[metric].steps[-1]:
                    longest[key] = run
        return tuple(run for run in self.runs if run in longest.values())


def select(texts: Sequence[str], runs: Sequence[RunDirectory], named: Callable[[str], RunDirectory]) -> list[Selected]:
    """Return the runs that texts select, each once, in the order of the texts.

    runs: those that patterns can match, oldest first. named: returns the run of a single name, or raises UsageError.
    Raises UsageError if a text selects no run, or if all texts select more than MOST_RUNS.
    """
    found: dict[tuple[str, str], Selected] = {}
    for text in texts:
        labeled = LABEL.fullmatch(text)
        label, parts = (labeled[1].strip(), labeled[2].split(",")) if labeled else ("", [text])
        for part in parts:
            for directory in _matching(part, runs, named):
                found.setdefault((str(directory.path), label), Selected(directory, label))
    if len(found) > MOST_RUNS:
        raise UsageError(f"{len(found):,} runs are selected, more than {MOST_RUNS:,}", hint="use a narrower pattern")
    return list(found.values())


def _matching(text: str, runs: Sequence[RunDirectory], named: Callable[[str], RunDirectory]) -> Iterable[RunDirectory]:
    if PATTERN.search(text):
        matches = [run for run in runs if fnmatch.fnmatchcase(run.name, text)]
        if not matches:
            raise UsageError(f"no run matches `{text}`", hint="`hive ls` lists the runs")
        return matches
    numbered = [run for run in runs if re.fullmatch(rf"{re.escape(text)}-\d+", run.name)]
    if numbered and not any(run.name == text for run in runs):
        return numbered
    return [named(text)]


def grouped(selected: Iterable[tuple[Selected, RunCurves]]) -> list[RunGroup]:
    """Return the groups of runs, in the order of their first runs; their labels differ."""
    groups: dict[Any, list[RunCurves]] = {}
    for one, run in selected:
        groups.setdefault(one.label or (run.base_name, _config_key(run)), []).append(run)
    made = [RunGroup(key if isinstance(key, str) else key[0], tuple(runs)) for key, runs in groups.items()]
    return _distinct(made)


def _config_key(run: RunCurves) -> tuple[tuple[str, str], ...] | None:
    """Return what runs of one config have in common, whatever their names and seeds; None without a config."""
    values = _values(run)
    return None if values is None else tuple((key, repr(value)) for key, value in values.items())


def _values(run: RunCurves) -> Mapping[str, Any] | None:
    if run.config is None:
        return None
    session = run.directory.session_file
    try:
        whole = hashlib.sha256(read_regular(session, DOCUMENT_BYTES)).hexdigest()[:6]
    except OSError:
        whole = ""  # most runs have none
    return {
        name: _placeless(value, f"{session}:", f"{session.name}({whole}):")
        for entry in run.config.entries()
        if entry.name not in (SEED, NAME)
        for name, value in _parts(run.config, entry)
    }


def _parts(config: Config, entry: ConfigEntry) -> Iterable[tuple[str, Any]]:
    """Yield a key and its value; of a policy's own table, each key that differs from that of the run."""
    table = entry.name.rpartition(".")[2]
    if not (entry.name.startswith(f"{POLICIES}.") and isinstance(entry.value, Mapping)):
        yield entry.name, entry.value
        return
    for name, value in entry.value.items():
        if value != getattr(getattr(config, table), name, None):
            yield f"{entry.name}.{name}", value


def _placeless(value: Any, mine: str, name: str) -> Any:
    """Return a value whose references to the run's own code name its content, which runs in other folders share."""
    if isinstance(value, str):
        return value.replace(mine, name)
    if isinstance(value, tuple | list):
        return type(value)(_placeless(one, mine, name) for one in value)
    if isinstance(value, Mapping):
        return {key: _placeless(one, mine, name) for key, one in value.items()}
    return value


def _distinct(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Give groups of the same name labels that differ: the keys that differ, or numbers where that is not enough."""
    result: list[RunGroup] = []
    labels: set[str] = set()
    for group in groups:
        same = [other for other in groups if other.label == group.label]
        label = group.label
        if len(same) > 1:
            label = f"{label} {_keys_text(config_differences(same), same.index(group))}".strip()
        number, first = 2, label
        while label in labels:
            label, number = f"{first} ({number})", number + 1
        labels.add(label)
        result.append(replace(group, label=label))
    return result


def _keys_text(differences: Mapping[str, Sequence[Any]], index: int) -> str:
    """Return `scheme=ppo` of the group at `index`: each key that tells it apart, without its table, and its value."""
    parts = []
    for key in _telling(differences):
        value = differences[key][index]
        text = value if isinstance(value, str) else value_text(value)
        parts.append(f"{key.rpartition('.')[2]}={text[:LABEL_VALUE]}")
    return ", ".join(parts)


def _telling(differences: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the first key that tells all groups apart; else keys that together tell most of them apart."""
    texts = {key: list(map(repr, values)) for key, values in differences.items()}
    alone = [key for key, values in texts.items() if len({*values}) == len(values)]
    if alone:
        return alone[:1]
    keys: list[str] = []
    told = 1
    for key in texts:
        count = len({*zip(*(texts[one] for one in (*keys, key)), strict=True)})
        if count > told and len(keys) < LABEL_KEYS:
            keys, told = [*keys, key], count
    return keys


def config_differences(groups: Sequence[RunGroup]) -> dict[str, list[Any]]:
    """Return key -> its value in each group, for keys whose values differ; None for a key that a group does not have.

    Groups without a readable config take no part: their values are None too.
    """
    configs = [group.values for group in groups]
    known = [values for values in configs if values is not None]
    keys = dict.fromkeys(key for values in known for key in values)
    return {
        key: [None if values is None else values.get(key) for values in configs]
        for key in keys
        if any(values.get(key) != known[0].get(key) for values in known)
    }


def value_text(value: Any) -> str:
    """Return a value of a config as TOML; "–" for a key that is not set."""
    return "–" if value is None else toml_text(value)
