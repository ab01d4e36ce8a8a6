"""In a run of several processes the documents' classes are what each of them executes."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import House

LEARNER = {
    "GradAccumulator.adopt",
    "GradAccumulator.mean_reduce",
    "NetworkWrapper.apply_gradients_to_global_network",
    "NetworkWrapper.update_target_network",
}
GRADIENT_WORKER = {"NetworkWrapper.update_online_network", "Approximation.reinforce", "Approximation.target"}
COLLECTOR = {"NetworkWrapper.update_online_network"}


@pytest.mark.full(reason="a run of its own; what each class does is tested every day", rotates=True)
def test_every_process_executes_its_part(house: House, tmp_path: Path) -> None:
    written = tmp_path / "executed.txt"
    house.env["RECORDED_DOCUMENTS"] = str(written)
    sets = ["run.scheme=nstep-q", "collection.workers=2", "gradients.workers=2", "algorithm.target_interval=5"]
    topology = f"run.topology={Path(__file__).with_name('recorded_documents.py')}:topology"
    done = house.hive("up", house.cartpole(6_400), *[f"--set={one}" for one in (*sets, topology)])
    assert done.returncode == 0, done.stderr
    executed: defaultdict[str, set[str]] = defaultdict(set)
    for line in written.read_text().splitlines():
        actor, name = line.split()
        executed[actor].add(name)
    assert executed == {
        "learner-0": LEARNER,
        **{f"gradient-worker-{index}": GRADIENT_WORKER for index in range(2)},
        **{f"collector-{index}": COLLECTOR for index in range(2)},
    }
