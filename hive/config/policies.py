"""The table [policies]: which agents of an environment each policy acts for, and how it learns.

    [policies]
    hunter = "adversary_*"                  # a pattern of agents, or an array of patterns

    [policies.prey]
    agents = "agent_*"
    algorithm = { learning_rate = 1e-4 }    # other values of [algorithm] and [network] for this policy
    network = { middleware = [128, 128] }

    [policies.opponent]
    agents = "player_2"
    scripted = "bots.py:Perfect"            # a program that acts; or weights = "runs/old": a policy that stays as it is

A policy with an algorithm of another name begins with that algorithm's defaults instead of the run's [algorithm].
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hive.config.keys import is_reference
from hive.config.values import closest, shown

POLICIES = "policies"  # the name of the table
OVERRIDDEN = ("algorithm", "network")  # the tables of a run of which a policy may have other values
KEYS = ("agents", "scripted", "weights", *OVERRIDDEN)
NAME_LENGTH = 16  # maximum characters of a policy's name: it is part of names of metrics, channels and folders
NAME = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{NAME_LENGTH - 1}}}")


@dataclass(frozen=True)
class PolicyConfig:
    """A row of [policies]. agents: patterns as of a shell. given: the tables that it overrides, as they were written.

    scripted: "module:name" of a program; weights: a run or checkpoint. At most one of them is not None, and then the
    policy does not learn.
    """

    name: str
    agents: tuple[str, ...]
    scripted: str | None = None
    weights: str | None = None
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)

    @property
    def learns(self) -> bool:
        """Whether the run trains it."""
        return self.scripted is None and self.weights is None

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> PolicyConfig:
        """Make it of a table without faults."""
        given = {section: table[section] for section in OVERRIDDEN if section in table}
        return cls(name, patterns_of(table["agents"]), table.get("scripted"), table.get("weights"), given)

    def values(self) -> dict[str, Any]:
        """Return the keys that are set, in the form of TOML."""
        found: dict[str, Any] = {"agents": list(self.agents), "scripted": self.scripted, "weights": self.weights}
        return {key: value for key, value in {**found, **self.given}.items() if value is not None}


def table_of(value: Any) -> Any:
    """Return a row in its long form: a pattern or an array of patterns stands for a table with `agents`."""
    return {"agents": value} if isinstance(value, str | list) else value


def patterns_of(value: Any) -> tuple[str, ...]:
    """Return the patterns of `agents`."""
    return (value,) if isinstance(value, str) else tuple(value)


def fault_of_policy(name: str, table: Any) -> tuple[tuple[str, ...], str] | None:
    """Return the keys that lead to a fault of a row, and what it is; None for a row without one."""
    if not NAME.fullmatch(name):
        return (), f"expected a name of at most {NAME_LENGTH} lower-case letters, digits, `_` and `-`"
    if not isinstance(table, dict):
        return (), f"expected a pattern of agents, or a table [policies.{name}], got {shown(table)}"
    for key, value in table.items():
        if key not in KEYS:
            close = closest(key, KEYS)
            note = f"did you mean `{close}`?" if close else "its own keys are in the tables algorithm and network"
            return (key,), f"unknown key; {note}"
        if key in OVERRIDDEN and not isinstance(value, dict):
            return (key,), f"expected a table, got {shown(value)}"
    agents = table.get("agents")
    if agents is None:
        return (), 'missing key `agents`: a pattern such as "player_*", or an array of patterns'
    if not (isinstance(agents, str) or (isinstance(agents, list) and all(isinstance(one, str) for one in agents))):
        return ("agents",), f'expected a pattern such as "player_*", or an array of patterns, got {shown(agents)}'
    if not patterns_of(agents) or not all(patterns_of(agents)):
        return ("agents",), "expected at least one pattern"
    return _fault_of_fixed(table)


def _fault_of_fixed(table: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
    """Return a fault of a policy that does not learn."""
    fixed = [key for key in ("scripted", "weights") if key in table]
    for key in fixed:
        if not isinstance(table[key], str) or not table[key].isprintable() or not table[key]:
            return (key,), f"expected a text, got {shown(table[key])}"
    if len(fixed) == 2:
        return ("weights",), "a policy is either scripted or has weights"
    if "scripted" in table and not is_reference(table["scripted"]):
        return ("scripted",), f'expected "package.module:name" or "path/file.py:name", got {shown(table["scripted"])}'
    if fixed and (own := next((key for key in OVERRIDDEN if key in table), None)):
        return (own,), f"a policy with `{fixed[0]}` does not learn: leave {own} out"
    return None
