"""`hive check` tries what it has drawn, for a moment and without a trace. (What it draws: test_files, test_drawing.)"""

from __future__ import annotations

import json
import os
import re
import time
from typing import TYPE_CHECKING

import pytest

from hive.cli import check

if TYPE_CHECKING:
    from conftest import Place

SMALL = '[env]\nid = "CartPole-v1"\n[collection]\nenvs = 2\nrollout = 16\n'
RAISES = """
import gymnasium, numpy

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return numpy.zeros(2, numpy.float32), {}

    def step(self, action):
        raise RuntimeError("the wheels came off")
"""
FOREVER = """
import asyncio, hive

class Waits(hive.Actor):
    async def run(self):
        await asyncio.Event().wait()

def topology(config):
    t = hive.Topology()
    t.add(Waits)
    return t
"""


@pytest.mark.parametrize("more", ["", "[evaluation]\nevery = { updates = 2 }\n[gradients]\nworkers = 2\n"])
def test_it_runs_two_hundred_steps_of_everything(place: Place, more: str) -> None:
    before = dict(os.environ)
    done = place.hive("check", place.config(SMALL + more))
    assert (done.code, done.err) == (0, "")
    last = done.out.splitlines()[-1]
    assert re.fullmatch(r"tried in this process: 2\d\d steps, [78] updates in \d+\.\d s", last), last
    assert not place.runs.exists()
    assert dict(os.environ) == before


def test_as_json_it_says_what_was_tried(place: Place) -> None:
    done = place.hive("check", place.config(SMALL), "--json")
    tried = json.loads(done.out)["tried"]
    assert (tried["state"], tried["env_steps"] >= 200, tried["updates"] >= 7) == ("finished", True, True)


def test_what_breaks_in_the_first_steps_is_found(place: Place) -> None:
    (place.folder / "breaks_in_check.py").write_text(RAISES)
    done = place.hive("check", place.config('[env]\nid = "breaks_in_check:Env"\n[collection]\nenvs = 2\n'))
    assert done.code == 1
    assert "breaks_in_check:Env raised RuntimeError: the wheels came off in step" in done.err
    assert "Traceback" not in done.err
    assert not place.runs.exists()


def test_a_topology_that_never_ends_is_left_after_a_while(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "LIMIT_S", 0.3)
    (place.folder / "waits_in_check.py").write_text(FOREVER)
    begun = time.monotonic()
    done = place.hive("check", place.config('[run]\ntopology = "waits_in_check.py"\n'), "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["tried"]["state"] == "stopped"
    assert time.monotonic() - begun < 60


def test_a_picture_is_written_where_it_can_be(place: Place) -> None:
    path = place.folder / "cart.svg"
    done = place.hive("check", place.config(SMALL), "--draw", "--svg", path)
    assert (done.code, done.err) == (0, "")
    assert path.read_text().startswith("<svg ")
    refused = place.hive("check", place.config(SMALL), "--draw", "--svg", place.folder / "no" / "cart.svg")
    assert (refused.code, "cannot write" in refused.err) == (2, True)
