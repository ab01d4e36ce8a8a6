"""The picture of a topology: well-formed, all groups and channels in it, nothing beyond its edge, nothing injected."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import hive.schemes
from hive.cli.parts import drawing
from hive.cli.parts.drawing import LOOKS, svg_of
from hive.config import load_config
from hive.runtime import Actor, Inlet, Message, Outlet, Topology
from hive.runtime.carriers.carrier import KINDS
from hive.runtime.topology.plan import Plan

SVG = "{http://www.w3.org/2000/svg}"


class Note(Message):
    text: str


class Writer(Actor):
    notes = Outlet(Note)


class Reader(Actor):
    notes = Inlet(Note)


class Relay(Actor):
    inn = Inlet(Note)
    out = Outlet(Note)


def test_every_carrier_has_a_look_of_its_own() -> None:
    assert set(LOOKS) == set(KINDS), "hive.cli.parts.drawing.LOOKS lacks a carrier, or has an unknown one"


def test_a_carrier_without_a_look_is_drawn_and_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = trainer()
    monkeypatch.setattr(drawing, "LOOKS", {})
    assert "rollouts" in svg_of(plan, "a run")
    assert any("rollouts ──>" in line for line in drawing.lines_of(plan))


def trainer(*sets: str) -> Plan:
    config = load_config("x", sets, text='[env]\nid = "CartPole-v1"\n')
    return hive.schemes.build(config, Path("nowhere")).plan()


def circle() -> Plan:
    t = Topology()
    one, other = t.add(Relay, group="<one>"), t.add(type("Other", (Relay,), {}), group='"other" & more')
    t.connect(one.out, other.inn, name="there")
    t.connect(other.out, one.inn, name="back")
    return t.plan()


def wide() -> Plan:
    t = Topology()
    writers, reader = t.add(Writer, count=64), t.add(Reader)
    t.connect(writers.notes, reader.notes)
    return t.plan()


PLANS = {
    "a2c": trainer(),
    "all in one": trainer("run.scheme=single"),
    "evaluated": trainer("evaluation.every={updates=1}", "collection.workers=3", "gradients.workers=2"),
    "circle": circle(),
    "wide": wide(),
}


@pytest.mark.parametrize("name", PLANS)
def test_everything_is_in_the_picture_and_within_its_edge(name: str) -> None:
    plan = PLANS[name]
    root = ElementTree.fromstring(svg_of(plan, f"<{name}>"))
    width, height = (float(root.attrib[side]) for side in ("width", "height"))
    texts = " | ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    for group in {actor.group for actor in plan.actors}:
        assert group in texts
    for channel in plan.channels:
        assert f"{channel.name}: {channel.carrier}" in texts
    for box in root.iter(f"{SVG}rect"):
        x, y = float(box.attrib.get("x", 0)), float(box.attrib.get("y", 0))
        assert 0 <= x <= x + float(box.attrib["width"]) <= width
        assert 0 <= y <= y + float(box.attrib["height"]) <= height
    for path in root.iter(f"{SVG}path"):
        if "marker-end" in path.attrib:
            assert all(0 <= float(number) <= max(width, height) for number in re.findall(r"-?\d+", path.attrib["d"]))


@pytest.mark.parametrize("name", PLANS)
def test_boxes_do_not_overlap(name: str) -> None:
    root = ElementTree.fromstring(svg_of(PLANS[name], name))
    boxes = [(float(box.attrib["x"]), float(box.attrib["y"])) for box in root.iter(f"{SVG}rect") if "x" in box.attrib]
    assert len(boxes) == len(set(boxes)) == len({actor.group for actor in PLANS[name].actors})


def test_a_group_of_actors_is_one_box_with_their_number() -> None:
    assert "writers × 64" in svg_of(PLANS["wide"], "x")
    assert "64 processes" in svg_of(PLANS["wide"], "x")
    assert "in learner-0" in svg_of(PLANS["all in one"], "x")
