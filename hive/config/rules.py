"""Rules that hold between keys: what some demand of another. To add one, add it to RULES.

A rule is of one key. It is broken only if somebody gave that key or one of the others: defaults, and those of a scheme,
keep all rules. The error shows every key that takes part (hive.config.load).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hive.config.keys import is_reference

__all__ = ["RULES", "Rule"]


@dataclass(frozen=True)
class Rule:
    """What keys demand of the key `name`, which breaks no rule with its default.

    breach: of the values of `name` and of `others`, in this order: "" where they agree, else what is wrong, with
        `{0}`, `{1}` in place of the others: "{0} demands at least 2".
    """

    name: str
    others: tuple[str, ...]
    breach: Callable[..., str]


def _lag_breach(max_lag: int, communication: str) -> str:
    if communication == "synchronous":
        return "{0} demands 0" if max_lag else ""
    return "" if max_lag else "{0} demands at least 1"


def _slots_breach(slots: int, communication: str, max_lag: int) -> str:
    """The consumer holds one slot, and max_lag + 1 rollouts are in flight, asynchronously with the one it holds."""
    least = max_lag + 2
    return "" if communication == "asynchronous" or slots >= least else f"{{0}} with {{1}} demands at least {least}"


def _ownership_breach(ownership: str, collectors: int, gradient_workers: int) -> str:
    """Each gradient worker owns an equal share of the collectors."""
    if ownership == "pool" or gradient_workers == 0 or collectors % gradient_workers == 0:
        return ""
    return "{0} is no multiple of {1}"


def _evaluation_breach(envs: int, episodes: int) -> str:
    return "{0} leaves some without any" if envs > episodes else ""


def _fraction_breach(fraction: float, communication: str) -> str:
    return "{0} has no rounds to cut short" if communication == "asynchronous" and fraction < 1 else ""


def _decentralised_breach(decentralised: bool, communication: str) -> str:
    """Replicas stay equal only if all reduce the same gradients in the same order."""
    return "{0} has no order that all could follow" if communication == "asynchronous" and decentralised else ""


def _top_k_breach(top_k: float, compression: str) -> str:
    return "{0} sends all" if top_k < 1 and compression != "top-k" else ""


def _clock_breach(every: Mapping[str, Any], collection: str, gradients: str) -> str:
    """A checkpoint of a deterministic run is a cut of the pipeline: it must not depend on a clock."""
    if "seconds" not in every or "asynchronous" in (collection, gradients):
        return ""
    return "{0} with {1} demands {{ updates = N }}"


def _options_breach(options: Mapping[str, Any], name: str) -> str:
    return "" if not options or is_reference(name) else "{0} takes none: its keys stand in [algorithm]"


def _head_breach(head: str | None, module: str | None) -> str:
    return "{0} has outputs of its own" if head is not None and module is not None else ""


RULES = (
    Rule("collection.max_lag", ("collection.communication",), _lag_breach),
    Rule("gradients.max_lag", ("gradients.communication",), _lag_breach),
    Rule("collection.slots", ("collection.communication", "collection.max_lag"), _slots_breach),
    Rule("collection.ownership", ("collection.workers", "gradients.workers"), _ownership_breach),
    Rule("collection.fraction_workers", ("collection.communication",), _fraction_breach),
    Rule("gradients.decentralised", ("gradients.communication",), _decentralised_breach),
    Rule("gradients.top_k", ("gradients.compression",), _top_k_breach),
    Rule("checkpoint.every", ("collection.communication", "gradients.communication"), _clock_breach),
    Rule("network.policy_head", ("network.module",), _head_breach),
    Rule("network.value_head", ("network.module",), _head_breach),
    Rule("algorithm.options", ("algorithm.name",), _options_breach),
    Rule("evaluation.envs", ("evaluation.episodes",), _evaluation_breach),
)
"""Rules that hold between keys."""
