"""Names runs and configs after environment and algorithm: `cartpole-ppo`.

    ALE/Pong-v5, ppo           pong-ppo       without namespace and version, in lower case
    module:Coin, sac           coin-sac       the class; its algorithm, or the scheme that sets it ("dd-ppo")
    CartPole-v1, curious.py    cartpole-curious   a custom topology decides what is trained
    no environment, tap.py     tap

The name of the config's file has no part in it: two files `config.toml` in two folders train different things.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

NAME_LENGTH = 64  # maximum characters of a run's name: fits a table column, and a file name (255 bytes) with its number

VERSION = re.compile(r"[-_]v\d+$")  # CartPole-v1 of Gymnasium, simple_spread_v3 of PettingZoo
INTERPRETER = re.compile(r"python[\d.]*|(ba)?sh|node|java|mono|dotnet|ruby|julia|Rscript|wine\d*")
PROGRAM = "program"
FOREIGN = re.compile(r"[^A-Za-z0-9._]+")


def trained_name(environment: str, learner: str, topology: str = "") -> str:
    """Return the default name of a run; "" if no part has a character that a name may have.

    environment: an id, `module:Class`, `file.py:Class` or `library.so:Name`; "" for none. learner: an algorithm or
    scheme, by its name or as `module:name`. topology: `file.py` or `package.module`, either with `:function`; "" for
    none.
    """
    place, _, name = environment.rpartition(":")
    place = VERSION.sub("", (name or place).rpartition("/")[2]).lower()
    what = _stem(topology.partition(":")[0]) if topology else learner.rpartition(":")[2].lower()
    what = _plain(what)[:NAME_LENGTH]
    if not environment:
        return what
    first = _plain(place)[: NAME_LENGTH - len(what) - 1].rstrip("-")
    return "-".join(filter(None, (first, what)))


def program_name(command: Sequence[str]) -> str:
    """Return the default label of a program: that of its file; PROGRAM if it is only connected to.

    An interpreter's first argument that is no option names the program: `python -u world.py` is `world`.
    """
    if not command:
        return PROGRAM
    first = PurePath(command[0]).stem
    if INTERPRETER.fullmatch(first):
        first = next((PurePath(part).stem for part in command[1:] if not part.startswith("-")), first)
    return "".join(filter(str.isprintable, first)) or PROGRAM


def _stem(place: str) -> str:
    return PurePath(place).stem if place.endswith(".py") else place.rpartition(".")[2]


def _plain(text: str) -> str:
    """Return the text with `-` for what names, shells and URLs do not take, and without one at its ends."""
    return FOREIGN.sub("-", text).strip("-.")
