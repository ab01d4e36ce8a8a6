"""Translates `policy_kwargs`: the layers of the networks, their first weights and the optimizer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from hive.config.algorithms import ALGORITHMS, ActorCriticConfig
from hive.config.zoo.draft import Draft
from hive.config.zoo.entries import names

DIGITS = 4  # significant digits of a deviation that is computed from its logarithm


def translate_layers(draft: Draft) -> None:
    """Translate `policy_kwargs` and the kind of `policy`. Raises ConfigError for invalid values."""
    _by_policy(draft)
    given = (draft.python("policy_kwargs") if draft.is_given("policy_kwargs") else None) or {}
    if not isinstance(given, dict):
        raise draft.refused("policy_kwargs", "expected dict(...)")
    draft.options = {f"policy_kwargs.{name}" for name in given}
    usual = {} if draft.images else names()["defaults"][draft.entry.kind].get("policy_kwargs", {})
    draft.values["policy_kwargs"] = {**usual, **given}
    for name, value in draft.values["policy_kwargs"].items():
        key = f"policy_kwargs.{name}"
        if name in HANDLERS:
            HANDLERS[name](draft, key, value)
        elif name in names()["same"]:
            draft.put(key, names()["same"][name], value)
        else:
            draft.leave(key, names()["instead"].get(name, "hive's networks have no such option"))


def is_actor_critic(draft: Draft) -> bool:
    """Whether the algorithm is one with a policy and a value function, as ppo and a2c."""
    return issubclass(ALGORITHMS[draft.algorithm], ActorCriticConfig)


def _by_policy(draft: Draft) -> None:
    """Set the layers of policies for images, which share convolutions and have no others, and of recurrent ones."""
    policy = draft.values.get("policy", "MlpPolicy")
    if not isinstance(policy, str) or "." in policy:
        draft.leave("policy", "hive has network.module, a network of your own")
    if draft.images and (is_actor_critic(draft) or draft.algorithm in ("dqn", "qr-dqn")):
        draft.put("policy", "network.middleware", [])
        draft.put("policy", "network.activation", "relu")
        if is_actor_critic(draft):
            draft.put("policy", "network.separate_networks", False)
    if draft.recurrent:
        draft.put("policy", "network.memory", "lstm")


def _net_arch(draft: Draft, key: str, value: Any) -> None:
    shared: list[Any] = []
    if isinstance(value, list):
        shared = [one for one in value if not isinstance(one, dict)]
        value = next((one for one in value if isinstance(one, dict)), {})
        if value and shared:
            draft.differs(key, "hive repeats the shared layers in both networks")
    if not isinstance(value, dict):
        raise draft.refused(key, "expected widths, or dict(pi=[...], vf=[...])")
    policy, critic = (
        [*shared, *_widths(draft, key, value, *sides)] for sides in (("pi", "policy"), ("vf", "qf", "value"))
    )
    draft.put(key, "network.middleware", policy)
    if draft.images and is_actor_critic(draft) and policy:
        draft.put(key, "network.separate_networks", True)
        draft.differs(key, "policy and value have convolutions of their own, where the Zoo's share them")
    if value and critic != policy:
        draft.put(key, "network.value_middleware", critic)


def _widths(draft: Draft, key: str, value: Mapping[str, Any], *sides: str) -> list[Any]:
    """Return the widths of one network in a dictionary of two."""
    found: Any = next((value[side] for side in sides if side in value), [])
    if not isinstance(found, list):
        raise draft.refused(key, f"expected an array for {sides[0]}")
    return found


def _activation(draft: Draft, key: str, value: Any) -> None:
    known = names()["activations"]
    name = str(value).rpartition(".")[2]
    if name in known:
        draft.put(key, "network.activation", known[name])
    else:
        draft.leave(key, f"hive has {', '.join(known.values())}")


def _ortho_init(draft: Draft, key: str, value: Any) -> None:
    draft.put(key, "network.initialization", "orthogonal" if value else "uniform")


def _log_std_init(draft: Draft, key: str, value: Any) -> None:
    if not is_actor_critic(draft):
        draft.leave(key, f"{draft.algorithm} of hive has no gSDE, whose deviation this is")
    elif not draft.box:
        draft.leave(key, "this environment has no box actions")
    else:
        deviation = float(f"{math.exp(min(draft.plain_number(key, value), 700.0)):.{DIGITS}g}")
        draft.put(key, "network.initial_deviation", deviation)


def _critic_lstm(draft: Draft, key: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise draft.refused(key, "expected True or False")
    if not value:
        draft.differs(key, "hive's value network has an LSTM of its own, as with True")
    elif "network.separate_networks" not in draft.settings:
        draft.put(key, "network.separate_networks", True)


def _critics(draft: Draft, key: str, value: Any) -> None:
    mine = 1 if draft.algorithm == "ddpg" else 2
    if value != mine:
        draft.leave(key, f"{draft.algorithm} of hive has {mine}")


def _optimizer(draft: Draft, key: str, value: Any) -> None:
    known = names()["optimizers"]
    name = str(value).rpartition(".")[2]
    if name in known:
        draft.put(key, "algorithm.optimizer", known[name])
    else:
        draft.leave(key, f"hive has {', '.join(dict.fromkeys(known.values()))}")


def _optimizer_options(draft: Draft, key: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise draft.refused(key, "expected dict(...)")
    for name, one in value.items():
        if name in names()["optimizer_options"]:
            draft.put(key, names()["optimizer_options"][name], one)
        elif name == "betas" and isinstance(one, list) and len(one) == 2:
            draft.put(key, "algorithm.adam_beta1", one[0])
            draft.put(key, "algorithm.adam_beta2", one[1])
        else:
            draft.leave(key, f"hive's optimizers have no option like `{name}`")


HANDLERS: Mapping[str, Callable[[Draft, str, Any], None]] = {
    "activation_fn": _activation,
    "enable_critic_lstm": _critic_lstm,
    "log_std_init": _log_std_init,
    "n_critics": _critics,
    "net_arch": _net_arch,
    "optimizer_class": _optimizer,
    "optimizer_kwargs": _optimizer_options,
    "ortho_init": _ortho_init,
}
"""Name in policy_kwargs -> its translation."""
