"""The bytes of a rollout that a host sends: those up to its last final observation, as many as its rows name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hive.config import load_config
from hive.errors import WireError
from hive.experience import FINALS, LENGTH, rollout_layout
from hive.hosts.arriving_rollouts import ArrivingRollouts, Incoming
from hive.hosts.head import HostLink
from hive.hosts.messages import RolloutSent
from hive.runtime.wire.arrays import Frames
from hive.runtime.wire.messages import encode

STEPS, ENVS = 4, 2
LAYOUT = rollout_layout(STEPS, ENVS, ((3,), "float32"), ((), "int64"), 1)
ROW = 12  # bytes of a final observation


def link(tmp_path: Path) -> HostLink:
    text = '[env]\nid = "CartPole-v1"\n[collection]\nhosts = ["left"]\n[hosts]\ncores = { left = 1 }\n'
    config = load_config("run.toml", text=text)
    blueprint: Any = SimpleNamespace(config=config, state=SimpleNamespace(bytes=8), rollout_layout=LAYOUT)
    made = HostLink("left", blueprint, range(1), range(0), tmp_path)
    made.rollouts.incoming[0] = Incoming(0)
    return made


def rollout(finals: int, length: int = STEPS, counted: int | None = None) -> bytes:
    """A rollout whose first `finals` rows are truncated, and whose header counts `counted`."""
    arrays = LAYOUT.views(np.zeros(LAYOUT.bytes, np.uint8))
    arrays["header"][LENGTH], arrays["header"][FINALS] = length, finals if counted is None else counted
    arrays["final_index"].reshape(-1)[:] = [*range(finals), *[-1] * (STEPS * ENVS - finals)]
    whole = np.zeros(LAYOUT.bytes, np.uint8)
    for name, array in LAYOUT.views(whole).items():
        array[...] = arrays[name]
    return whole[: LAYOUT.dense_bytes + finals * ROW].tobytes()


@pytest.mark.parametrize("finals", [0, 1, STEPS * ENVS])
def test_a_rollout_ends_with_its_last_final_observation(tmp_path: Path, finals: int) -> None:
    head = link(tmp_path)
    head.rollouts.arrived(RolloutSent(0, 0, 0), [rollout(finals)])
    assert [len(frame) for frame in head.rollouts.incoming[0].queue] == [LAYOUT.dense_bytes + finals * ROW]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        rollout(0)[:-1],  # not even the dense part
        rollout(2)[:-1],
        rollout(2)[:-ROW],
        rollout(2) + b"\0" * ROW,
        rollout(2) + b"\0",
        rollout(2, counted=3) + b"\0" * ROW,  # as long as the header says, but the rows name two
        rollout(3, counted=2)[:-ROW],
        rollout(3, length=1),  # of the first step's two rows, both are truncated, and a third is beyond its end
        rollout(3, length=STEPS + 1),
        rollout(3, length=-1),
        rollout(0) + b"\0" * (LAYOUT.bytes + 64),
    ],
)
def test_other_bytes_are_refused(tmp_path: Path, frame: bytes) -> None:
    head = link(tmp_path)
    with pytest.raises(WireError, match="rollout 0 does not have the bytes"):
        head.rollouts.arrived(RolloutSent(0, 0, 0), [frame])
    assert not head.rollouts.incoming[0].queue


@pytest.mark.parametrize("error", [IndexError("of hive"), ValueError("of hive"), OSError("of hive")])
def test_a_fault_of_hive_is_no_bad_message_and_is_raised(tmp_path: Path, error: Exception) -> None:
    class Broken(ArrivingRollouts):
        def arrived(self, message: RolloutSent, frames: Frames) -> None:
            raise error

    head = link(tmp_path)
    head.received(b"", [*encode(RolloutSent(0, 0, 5)), b""])  # of collector 5, which is not on this host
    assert (head.bad, head.fault) == (1, None)
    head.rollouts = Broken(LAYOUT, lambda message: True)
    head.received(b"", [*encode(RolloutSent(0, 0, 0)), rollout(0)])
    assert head.bad == 1
    with pytest.raises(type(error), match="of hive"):
        head.check()
