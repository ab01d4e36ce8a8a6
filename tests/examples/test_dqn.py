"""DQN in a plain script: it learns, and the guide shows it as it is."""

from __future__ import annotations

import ast

import dqn
import numpy as np
import pytest
from short_runs import EXAMPLES

LEARNED = 100.0  # four times what chance gives; seeds 0 to 2 reach 157 to 220
LINES_OF_CODE = 45


@pytest.mark.full(reason="the DQN of runs is compared with others number by number", rotates=True)
def test_a_short_form_learns() -> None:
    returns = dqn.train(6_000, seed=0)
    assert np.mean(returns[:20]) < 40.0
    assert np.mean(returns[-10:]) >= LEARNED


def test_the_same_seed_gives_the_same_returns() -> None:
    assert dqn.train(1_200, seed=3) == dqn.train(1_200, seed=3) != dqn.train(1_200, seed=4)


def test_it_has_forty_lines_of_code() -> None:
    lines = {
        node.lineno for node in ast.walk(ast.parse((EXAMPLES / "dqn.py").read_text())) if isinstance(node, ast.stmt)
    }
    assert len(lines) <= LINES_OF_CODE
