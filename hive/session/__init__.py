"""Writes objects of a script, a notebook or an interactive session as a module that other processes can import.

module = SessionModule()
module.add(Coin)                 -> "Coin"
module.text()                    -> "import gymnasium as gym\\n\\nLIMIT = 20\\n\\n\\nclass Coin(gym.Env): ..."

module.py    the module: definitions and all that they refer to, in an order in which they can be executed
sources.py   the files and cells of the session, and the source of a class or function in them
names.py     the names that a definition uses, and where the session binds them
changes.py   how a definition differs from its source
values.py    values as expressions: numbers, containers, arrays, spaces
settings.py  the settings of decimal, NumPy and torch
"""

from __future__ import annotations

from hive.session.module import SessionModule

__all__ = ["SessionModule"]
