"""The page `messages.md` of the guide lists every channel, message and field of the trainer, as the code has them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin

import pytest

import hive
from hive.config import load_config
from hive.experience.rollouts import HEADER as ROLLOUT_HEADER
from hive.experience.rollouts import rollout_layout
from hive.gradients.blocks import HEADER as GRADIENT_HEADER
from hive.gradients.blocks import NORMALIZED, gradient_layout
from hive.gradients.codecs import COMPRESSIONS, codec_for
from hive.networks.weights.state import StateLayout
from hive.runtime import Layout, Message
from hive.runtime.wire.arrays import array_kind, declared_fields
from hive.schemes.trainer import trainer
from hive.training import messages
from hive.training.update.learner import Count, optimizer_state_layout
from hive.training.update.replay_memory import ReplaySize, ledger_layout, memory_layout, plan_layout

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "examples" / "guide" / "messages.md").read_text()
SECTIONS = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
REPLAY = ReplaySize(sources=2, envs=2, steps=4, kept=16, rounds_ahead=1, stack=3, n_step=1, workers=2, batch=8)
ENV = '[env]\nid = "CartPole-v1"\n'
VARIANTS = (
    ["evaluation.every={updates=5}", 'record.sinks=["jsonl", "episodes"]'],
    ["gradients.decentralized=true", "gradients.workers=2"],
    ["collection.communication=asynchronous", "gradients.communication=asynchronous"],
    ["run.scheme=dqn"],
)


def tables(text: str) -> dict[str, list[list[str]]]:
    """Return the rows of each table, by the first cell of its head."""
    found: dict[str, list[list[str]]] = {}
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        assert all(len(row) == len(head) and all(row) for row in rows), block
        found[head[0]] = rows
    return found


def columns(message: str, table: str) -> dict[str, list[str]]:
    """Return the other cells of each row of a message's table, by the name in its first."""
    return {row[0].strip("`"): row[1:] for row in tables(SECTIONS[message])[table]}


MESSAGES = sorted(name for name, kind in vars(messages).items() if getattr(kind, "__module__", "") == messages.__name__)


def test_each_message_has_a_section() -> None:
    assert set(SECTIONS) == set(MESSAGES) <= set(dir(hive))


@pytest.mark.parametrize("name", MESSAGES)
def test_each_field_of_a_message_is_listed_with_its_type(name: str) -> None:
    message: Any = getattr(hive, name)
    assert issubclass(message, Message)
    if not (hints := declared_fields(message)):  # its layout is declared elsewhere; the tests below compare it
        return
    listed = {field: cells[0] for field, cells in columns(name, "field").items()}
    assert listed == {field: text_of(hint) for field, hint in hints.items()}


def text_of(hint: Any) -> str:
    """Return the text of a type in the guide."""
    if kind := array_kind(hint):
        return f"{kind.dtype} {kind.shape}"
    return str(hint if get_origin(hint) else hint.__name__)


def described(fields: Mapping[str, tuple[Any, tuple[int, ...]]]) -> set[tuple[str, str, int]]:
    """Return (name, dtype, number of dimensions) of each field."""
    return {(name, str(dtype), len(shape)) for name, (dtype, shape) in fields.items()}


@pytest.mark.parametrize(
    ("message", "layouts"),
    [
        (
            "RolloutReady",
            [
                rollout_layout(
                    *(4, 2, ((4,), observation), ((2,), action)),
                    finals=3,
                    discounted=True,
                    infos=2,
                    state=5,
                    stack=3,
                    errors=True,
                )
                for observation, action in (("uint8", "float32"), ("float32", "int64"))
            ],
        ),
        (
            "Gradient",
            [
                gradient_layout(64, 4, 5, 6, codec_for(name), 2, dict.fromkeys(NORMALIZED, 3), errors=8)
                for name in COMPRESSIONS
            ],
        ),
        ("OptimizerState", [optimizer_state_layout(2, 64, 3, infos=2, groups=3)]),
        (
            "ReplayRows",
            [
                memory_layout(REPLAY, ((4,), observation), ((2,), action))
                for observation, action in (("uint8", "float32"), ("float32", "int64"))
            ],
        ),
        ("ReplayLedger", [ledger_layout(2, infos=2, normalized={"observed": 5, "rewarded": 3})]),
        ("ReplayPlan", [plan_layout(REPLAY)]),
    ],
)
def test_each_field_of_a_layout_is_listed_with_dtype_and_dimensions(message: str, layouts: list[Layout]) -> None:
    listed = {
        (name, dtype, shape.count(",") + 1)
        for name, (dtypes, shape, _) in columns(message, "field").items()
        for dtype in dtypes.split(" or ")
    }
    assert listed == set[Any]().union(*(described(layout.fields) for layout in layouts))


@pytest.mark.parametrize(
    ("message", "table", "words"),
    [
        ("RolloutReady", "word of `header`", ROLLOUT_HEADER),
        ("Gradient", "word of `header`", GRADIENT_HEADER),
        ("OptimizerState", "word of `counters`", [count.name for count in Count]),
    ],
)
def test_the_words_of_a_header_are_listed_in_order(message: str, table: str, words: list[str]) -> None:
    assert list(columns(message, table)) == list(words)


def test_the_parts_of_a_block_of_weights_are_listed() -> None:
    functions: Mapping[str, Any] = {name: f for name, f in vars(StateLayout).items() if inspect.isfunction(f)}
    views = [
        name
        for name, function in functions.items()
        if list(inspect.signature(function).parameters) == ["self", "block"]
        and inspect.signature(function).return_annotation != "None"
    ]
    assert sorted(columns("Weights", "part")) == sorted(views)


def test_each_channel_is_listed_with_its_ends(tmp_path: Path) -> None:
    built: dict[str, tuple[str, str, str]] = {}
    targets: dict[str, set[str]] = {}
    for sets in VARIANTS:
        for channel in trainer(load_config("x.toml", sets, text=ENV), tmp_path).channels.values():
            source = channel.source
            built[channel.name] = (channel.carrier.kind, f"`{source}`", f"`{source.port.message.__name__}`")
            targets.setdefault(channel.name, set()).update(map(str, channel.targets))
    rows = {row[0].strip("`"): row[1:] for row in tables(PAGE.partition("\n## ")[0])["channel"]}
    assert {name: (carrier, source, message) for name, (carrier, source, _, message) in rows.items()} == built
    assert {name: set(re.findall(r"`([^`]+)`", row[2])) for name, row in rows.items()} == targets
