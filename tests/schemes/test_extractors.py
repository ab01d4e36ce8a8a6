"""Runs with a user's extractor, and with a value of other widths: the same seed gives the same bytes, also resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import STEPS, modes, train
from small_trainer import LIMIT_S

import hive
from hive.errors import RecordError
from hive.records import list_checkpoints, remove_folder, write_json
from hive.schemes import build
from hive.testing import run_inline

ONE, TWO = modes("synchronous", "synchronous", 1, 0), modes("pipelined", "pipelined", 2, 2)
REPLAY = {
    "algorithm__learning_starts": 32,
    "algorithm__replay_capacity": 200,
    "algorithm__batch_size": 8,
    "algorithm__updates_per_step": '"1/8"',
}
FEW = {"algorithm__epochs": 2, "algorithm__minibatches": 2}
BOX = {"env__options": "{actions='box'}"}
SEPARATE = {"network__separate_networks": "true", "network__value_middleware": "[20, 5]"}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("ppo", {**ONE, **FEW, **SEPARATE}),
    "dqn": ("dqn", {**ONE, **REPLAY}),
    "sac": ("sac", {**ONE, **REPLAY, **BOX, "network__value_middleware": "[20, 5]"}),
    "impala": ("impala", {**TWO, **SEPARATE}),
    "ppo, two of each, a gru": ("ppo", {**TWO, **FEW, **SEPARATE, "network__memory": '"gru"'}),
    "dqn, noise and frames": ("dqn", {**TWO, **REPLAY, "network__noisy_deviation": 0.5, "env__frame_stack": 2}),
    "td3": ("td3", {**TWO, **REPLAY, **BOX}),
    "a2c, normalised": ("a2c", {**TWO, "network__normalize_observations": "true"}),
}


@pytest.mark.full(
    reason="whole runs of 8 kinds: 20 s; test_every_policy has runs with extractors every day", rotates=True
)
@pytest.mark.parametrize("name", RUNS)
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, name: str) -> None:
    scheme, values = RUNS[name]
    values = {
        "run__steps": 4 * STEPS,
        "network__extractor": '"any_environment:First"',
        "network__extractor_options": "{width = 5}",
        "checkpoint__every": "{updates = 4}",
        "checkpoint__keep": 1000,
        **values,
    }
    whole = train(tmp_path, scheme, **values)
    digest = whole.outcome.digest
    assert digest != ""
    assert digest == train(tmp_path, scheme, **values).outcome.digest
    assert digest != train(tmp_path, scheme, run__seed=2, **values).outcome.digest
    first, *later = [found for found in list_checkpoints(whole.directory.checkpoints) if found.scheduled]
    assert later
    for checkpoint in list_checkpoints(whole.directory.checkpoints):
        if checkpoint.update > first.update:
            remove_folder(checkpoint.path)
    write_json(whole.directory.resume_file, {"update": first.update, "exact": True})
    resumed = run_inline(build(whole.config, whole.directory.path), seconds=LIMIT_S)
    assert resumed.digest == digest
    acts(str(whole.directory.path), tmp_path / "policy.onnx")


def acts(directory: str, file: Path) -> None:
    with pytest.raises(RecordError, match="uses `any_environment:First`, which would be imported and called"):
        hive.load(directory)
    policy = hive.load(directory, own_code=True)
    outputs, _ = policy.outputs(np.zeros((2, *policy.observation.shape), np.float32), policy.initial_state(2))
    assert np.isfinite(outputs).all()
    if pytest.importorskip("onnx"):
        assert hive.export(directory, str(file), own_code=True).compared
