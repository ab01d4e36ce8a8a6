"""C51 in a plain script."""

from __future__ import annotations

import c51
import numpy as np
import pytest

LEARNED = 100.0  # four times what chance gives; seeds 0 to 2 reach 190 to 197


def test_some_updates_are_made() -> None:
    assert c51.train(1_100, seed=0) == c51.train(1_100, seed=0)


@pytest.mark.full("six seconds for what the tests of QDist show on tables")
def test_a_short_form_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c51, "EXPLORATION", 2_000)
    monkeypatch.setattr(c51, "WARM_UP", 500)
    returns = c51.train(3_500, seed=0)
    assert np.mean(returns[:20]) < 40.0
    assert np.mean(returns[-10:]) >= LEARNED
