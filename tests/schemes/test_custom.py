"""[custom.<group>] sets constructor parameters, checked against their annotations, with "did you mean" hints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from hive.config import load_config
from hive.errors import ConfigError
from hive.runtime import Actor, Topology
from hive.schemes.custom import apply_custom


class Curriculum(Actor):
    def __init__(
        self,
        given: object,
        level: int = 1,
        rate: float = 0.5,
        title: str = "",
        on: bool = False,
        names: list[str] | None = None,
        widths: tuple[int, ...] = (),
        table: Mapping[str, float] = {},
        folder: Path | None = None,
        mode: Literal["up", "down"] = "up",
        limit: int | str = 0,
        weights: Sequence[float] = (),
        anything: Any = None,
        untyped=None,  # noqa: ANN001
    ) -> None: ...


def built(*sets: str) -> dict[str, Any]:
    topology = Topology()
    topology.add(Curriculum, given=object())
    config = load_config("x", [f"custom.curriculum.{text}" for text in sets], text='[env]\nid = "none"')
    apply_custom(topology, config)
    return {key: value for key, value in topology["curriculum"].parameters.items() if key != "given"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("level=3", 3),
        ("rate=3", 3.0),
        ("rate=0.25", 0.25),
        ("title=x", "x"),
        ("on=true", True),
        ("names=['a', 'b']", ["a", "b"]),
        ("widths=[8, 8]", (8, 8)),
        ("table={a=1, b=0.5}", {"a": 1, "b": 0.5}),
        ("folder=/tmp", Path("/tmp")),
        ("mode=down", "down"),
        ("limit=3", 3),
        ("limit=none", "none"),
        ("weights=[1, 0.5]", [1, 0.5]),
        ("anything=[1, 'a']", [1, "a"]),
        ("untyped=7", 7),
    ],
)
def test_values_arrive_as_declared(text: str, value: Any) -> None:
    name = text.partition("=")[0]
    arrived = built(text)
    assert arrived == {name: value}
    assert type(arrived[name]) is type(value)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("level=3.5", "expected an integer, got 3.5"),
        ("level=true", "expected an integer, got true"),
        ("rate=fast", 'expected a number, got "fast"'),
        ("on=1", "expected true or false, got 1"),
        ("names=[1]", "expected list[str], got an array"),
        ("widths=['a']", "expected tuple[int, ...], got an array"),
        ("table={a='x'}", "expected Mapping[str, float], got"),
        ("mode=sideways", 'expected "up" or "down", got "sideways"'),
        ("limit=true", "expected an integer or a string, got true"),
        ("given=1", "expected object, got 1"),
        ("levl=3", "`Curriculum` takes no `levl`; did you mean `level`?"),
        ("xyz=3", "`Curriculum` takes no `xyz`; there are: given, level"),
    ],
)
def test_what_does_not_fit(text: str, wrong: str) -> None:
    with pytest.raises(ConfigError) as caught:
        built(text)
    assert wrong in str(caught.value).replace("collections.abc.", "")


def test_a_group_that_is_not_there_and_all_problems_at_once(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[env]\nid = "none"\n[custom.curiculum]\nlevel = 1\n[custom.curriculum]\nlevel = "x"\n')
    topology = Topology()
    topology.add(Curriculum, given=None)
    with pytest.raises(ConfigError) as caught:
        apply_custom(topology, load_config(file), file)
    text = str(caught.value)
    assert text.startswith("2 problems in `run.toml`")
    assert "run.toml:3: custom.curiculum: no group `curiculum` in this topology" in text
    assert "did you mean `curriculum`?" in text
    assert 'run.toml:6: custom.curriculum.level: expected an integer, got "x"' in text
    assert topology["curriculum"].parameters == {"given": None}


def test_it_wins_over_what_the_topology_function_gave() -> None:
    topology = Topology()
    topology.add(Curriculum, given=None, level=2)
    apply_custom(topology, load_config("x", ["custom.curriculum.level=5"], text='[env]\nid = "none"'))
    assert topology["curriculum"].parameters["level"] == 5


class Curiosity(Actor):
    def __init__(self, beta: float = 0.1) -> None: ...


def table_of(*sets: str, groups: Sequence[str | None] = (None,)) -> list[dict[str, Any]]:
    topology = Topology()
    made = [topology.add(Curiosity, count=1, group=group) for group in groups]
    apply_custom(topology, load_config("x", sets, text='[env]\nid = "none"'))
    return [group.parameters for group in made]


@pytest.mark.parametrize("name", ["curiosity", "curiositys"])
def test_a_group_has_the_name_of_its_key_and_of_its_actors(name: str) -> None:
    assert table_of(f"custom.{name}.beta=0.5") == [{"beta": 0.5}]


def test_a_group_has_one_table() -> None:
    with pytest.raises(ConfigError, match=r"the group `curiositys` already has the table \[custom.curiosity\]"):
        table_of("custom.curiosity.beta=0.5", "custom.curiositys.beta=0.6")


def test_a_role_of_two_groups_names_neither() -> None:
    with pytest.raises(ConfigError, match="no group `curiosity` in this topology; there are: a, b"):
        table_of("custom.curiosity.beta=0.5", groups=("a", "b"))
    assert table_of("custom.b.beta=0.5", groups=("a", "b")) == [{}, {"beta": 0.5}]
