"""A policy that hive exported plays CartPole in a script without hive."""

from __future__ import annotations

import ast

import pytest
from short_runs import EXAMPLES

import hive

pytest.importorskip("onnx", reason="the extra `export` is not installed")
pytest.importorskip("onnxruntime", reason="the extra `export` is not installed")

import play_onnx

LINES_OF_CODE = 20
SMALL = ["collection.workers=0", "collection.envs=2", "network.middleware=[4]"]


def test_it_plays_with_any_policy() -> None:
    result = hive.train(EXAMPLES / "cartpole.toml", sets=["run.steps=64", *SMALL], inline=True, quiet=True)
    file = result.directory / "policy.onnx"
    assert hive.export(result.directory, file).compared
    returns = play_onnx.play(str(file), episodes=2)
    assert len(returns) == 2
    assert all(5.0 <= value <= 500.0 for value in returns)


@pytest.mark.full(reason="trains for some seconds")
def test_a_trained_policy_reaches_500() -> None:
    result = hive.train(EXAMPLES / "cartpole.toml", sets=["run.seed=1"], inline=True, quiet=True)
    file = result.directory / "policy.onnx"
    assert hive.export(result.directory, file, "best").compared
    assert play_onnx.play(str(file), episodes=10) == [500.0] * 10


def test_it_is_short_and_needs_neither_hive_nor_torch() -> None:
    tree = ast.parse((EXAMPLES / "play_onnx.py").read_text())
    assert len({node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)}) <= LINES_OF_CODE
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert imported == {"sys", "gymnasium", "onnxruntime"}
