"""A discount that is changed while a run trains reaches the collectors, which sum rewards by it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from small_trainer import LIMIT_S, config_of

from hive.config import load_config
from hive.records import RunDirectory
from hive.runtime.supervise.supervisor import Supervisor
from hive.schemes import build
from hive.testing import run_inline
from hive.training import Collector, Trainer

TWO = {"policies__one": '"same"', "policies__two": '"other"', "env__id": "small_agents:Together"}
RUNS: dict[str, dict[str, Any]] = {
    "one policy": {},
    "two policies": TWO,
    "changed by a callback": {"run__callbacks": '["own_callbacks:Discounts"]'},
}


@pytest.mark.rotates
@pytest.mark.parametrize("kind", RUNS)
def test_collectors_use_the_changed_discount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    used: dict[int, list[float]] = {}
    discount = Collector._discount

    def recorded(self: Collector, *given: Any, **options: Any) -> None:
        used.setdefault(id(self), []).append(self.discount)
        discount(self, *given, **options)

    def watch(supervisor: Supervisor) -> None:
        def change() -> None:
            if not used or not supervisor.change_key("algorithm.discount", 0.5):
                asyncio.get_running_loop().call_later(0.001, change)

        if kind != "changed by a callback":
            asyncio.get_running_loop().call_soon(change)

    monkeypatch.setattr(Collector, "_discount", recorded)
    values = {"network__normalize_rewards": "true", "run__steps": 4_000, "checkpoint__every": "{}", **RUNS[kind]}
    config = config_of(values.pop("env__id", "small_environments:Drift"), **values)
    outcome = run_inline(build(config, RunDirectory.create(tmp_path, "run").path), seconds=LIMIT_S, watch=watch)
    assert outcome.state == "finished", outcome.error
    assert len(used) == (2 if kind == "two policies" else 1)
    for found in used.values():
        assert (found[0], found[-1]) == (0.99, 0.5)
        assert sorted(found, reverse=True) == found


def test_a_trainer_collects_with_the_changed_discount() -> None:
    trainer = Trainer(load_config("x.toml", ["network.normalize_rewards=true"], text='[env]\nid = "CartPole-v1"\n'))
    trainer.set("discount", 0.5)
    assert trainer.collector.discount == 0.5
    trainer.close()
