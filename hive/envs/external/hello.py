"""Reads the answer to `hello`, in which a program describes its spaces and abilities."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hive.envs.external.described import is_name, space_of
from hive.envs.external.frames import Misbehaved
from hive.printable import printable

if TYPE_CHECKING:
    from gymnasium.spaces import Space

VERSION = 1  # version of the protocol
MOST_STEPS = (1 << 31) - 1  # maximum of max_episode_steps: lengths are int32
MOST_INFO = 256  # values of `info`
FIELDS = frozenset(
    (
        *("version", "number", "secret", "name", "observation", "action", "count", "deterministic"),
        *("max_episode_steps", "info", "renders"),
    )
)


@dataclass(frozen=True)
class Hello:
    """The answer to `hello`.

    observation, action: Gymnasium spaces. count: the environments that it steps. deterministic: whether equal seeds and
    actions give equal bytes. max_episode_steps: steps after which hive truncates an episode; None: never. info: the
    names of the values that it may give at the ends of episodes. renders: whether it answers `render`.
    """

    observation: Space[Any]
    action: Space[Any]
    count: int
    name: str = ""
    deterministic: bool = False
    max_episode_steps: int | None = None
    info: tuple[str, ...] = ()
    renders: bool = False


def check_version(answer: Mapping[str, Any]) -> None:
    """Raise Misbehaved unless the answer to `hello` begins with the version that hive speaks."""
    first = next(iter(answer), None)
    if first != "version":
        raise Misbehaved(f"sent an answer to hello that begins with `{printable(str(first), 60)}`, not with `version`")
    version = answer["version"]
    if type(version) is not int or version != VERSION:
        raise Misbehaved(f"speaks version {printable(repr(version), 20)} of the protocol, hive speaks {VERSION}")


def read_hello(answer: Mapping[str, Any], count: int, secret: str) -> Hello:
    """Return the checked answer to `hello` for `count` environments. secret: "" if none is expected.

    Raises Misbehaved.
    """
    given = answer.get("secret")
    if secret and not (isinstance(given, str) and hmac.compare_digest(given.encode(), secret.encode())):
        raise Misbehaved("sent another secret than HIVE_ENV_SECRET: it is not the program that hive started")
    if unknown := answer.keys() - FIELDS:
        raise Misbehaved(f"sent an answer to hello with the unknown field `{printable(min(unknown), 60)}`")
    if type(answer.get("count")) is not int or answer["count"] != count:
        raise Misbehaved(
            f"steps {printable(repr(answer.get('count')), 20)} environments, hive asked it for {count} (env.processes)"
        )
    name, info, most = answer.get("name", ""), answer.get("info", []), answer.get("max_episode_steps")
    if name != "" and not is_name(name):
        raise _fault("name", name, "at most 64 printable characters")
    if most is not None and not (type(most) is int and 0 < most <= MOST_STEPS):
        raise _fault("max_episode_steps", most, f"nil or an integer from 1 to {MOST_STEPS:,}")
    if not (
        isinstance(info, list) and len(info) <= MOST_INFO and all(map(is_name, info)) and len({*info}) == len(info)
    ):
        raise _fault("info", info, f"an array of at most {MOST_INFO} different names")
    return Hello(
        observation=space_of(answer.get("observation"), "observation"),
        action=space_of(answer.get("action"), "action"),
        count=count,
        name=name,
        deterministic=_flag(answer, "deterministic"),
        max_episode_steps=most,
        info=tuple(info),
        renders=_flag(answer, "renders"),
    )


def _flag(answer: Mapping[str, Any], name: str) -> bool:
    value = answer.get(name, False)
    if not isinstance(value, bool):
        raise _fault(name, value, "true or false")
    return value


def _fault(field: str, value: Any, expected: str) -> Misbehaved:
    return Misbehaved(f"sent an answer to hello with `{field}` = {printable(repr(value), 60)}, expected {expected}")
