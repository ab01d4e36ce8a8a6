"""Plain scripts use the classes of the four documents: some steps of each script must execute these."""

from __future__ import annotations

import functools
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import actor_critic
import c51
import ddpg
import dqn
import pytest
import workers
from test_ddpg import batch

PACKAGES = ("hive/compat/", "hive/learning/", "hive/networks/", "hive/gradients/", "hive/algorithms/losses/")
STEPS = dqn.WARM_UP + 101  # includes one target update, which is every 100 updates

EXECUTED: dict[str, tuple[str, ...]] = {
    "all.approximation": (
        *(f"Approximation.{name}" for name in ("__call__", "no_grad", "target", "reinforce", "step", "zero_grad")),
        *("QNetwork.__init__", "QModule.forward", "QDist.project", "QDistModule.forward", "VModule.forward"),
        *("QContinuousModule.forward", "FeatureNetwork.__call__", "FeatureNetwork.reinforce", "Identity.reinforce"),
        *("FixedTarget._count", "PolyakTarget._count", "CopiedTarget.__call__", "TrivialTarget.update"),
        *("PeriodicCheckpointer.save", "PeriodicCheckpointer.restore", "DummyCheckpointer.__call__"),
        *("jointly", "SinkWriter.add_loss", "DummyWriter.add_loss", "QLoss.__call__"),
    ),
    "Coach": (
        *("TorchArchitecture.accumulate_gradients", "TorchArchitecture.apply_gradients", "TorchArchitecture.predict"),
        *("NetworkWrapper.train_and_sync_networks", "NetworkWrapper.apply_gradients_to_global_network"),
        *("NetworkWrapper.update_online_network", "NetworkWrapper.update_target_network", "WorkerGroup.together"),
    ),
    "RLPack": ("GradAccumulator.accumulate", "GradAccumulator.mean_reduce", "GradAccumulator.clear"),
}


@functools.cache
def executed(folder: Path) -> frozenset[str]:
    """Return the qualified names of hive's functions that some steps of every plain script call."""
    names: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and any(package in frame.f_code.co_filename for package in PACKAGES):
            names.add(frame.f_code.co_qualname)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        dqn.train(STEPS, seed=0)
        c51.train(STEPS, seed=0)
        ddpg.learn(*ddpg.agent(0), batch(0))
        for shared in (True, False):
            actor_critic.train(actor_critic.Agent(folder / str(shared), 0, shared, saved_every=2), 2, seed=0)
        workers.error(workers.by_threads(1))
        workers.by_a_loop(1)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return frozenset(names)


@pytest.mark.rotates
@pytest.mark.parametrize("document", EXECUTED)
def test_plain_scripts_execute_its_classes(document: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    missing = set(EXECUTED[document]) - executed(tmp_path_factory.getbasetemp() / "documents")
    assert not missing
