"""Schemes as a user writes them, good and bad."""

from __future__ import annotations

from pathlib import Path

from hive.config import Config
from hive.runtime import Actor, Topology
from hive.schemes import trainer


class Greeter(Actor):
    """Ends the run at once."""

    def __init__(self, word: str, directory: Path) -> None:
        self.word = word
        self.directory = directory

    async def run(self) -> None:
        (self.directory / "word").write_text(self.word)
        self.end_run(self.word)


def greeting(config: Config, directory: Path) -> Topology:
    """Nothing of the trainer in it."""
    t = Topology()
    t.add(Greeter, word=config.run.name, directory=directory)
    return t


class Counter(Actor):
    """Beside the trainer: counts nothing, ends with it."""

    async def run(self) -> None:
        self.status.count("lives")


def accompanied(config: Config, directory: Path) -> Topology:
    """The trainer and another actor."""
    t = trainer.trainer(config, directory)
    t.add(Counter)
    return t


def raises(config: Config, directory: Path) -> Topology:
    raise ValueError("the scheme itself is wrong")


NUMBER = 7


def nothing(config: Config, directory: Path) -> None:
    """Forgets to return its topology."""
