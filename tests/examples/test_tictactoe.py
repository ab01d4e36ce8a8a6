"""The perfect player of tic-tac-toe draws against itself, in different games, and does not lose against chance."""

from __future__ import annotations

import numpy as np
from tictactoe.perfect import THREE, Chance, Perfect, free_cells

GAMES = 200


def _played(first: Perfect, second: Perfect) -> tuple[int, tuple[int, ...]]:
    """Return who won, 1, -1 or 0 for neither, and the moves."""
    own, other, moves = 0, 0, []
    for turn in range(9):
        cells = np.array([[own >> cell & 1, other >> cell & 1] for cell in range(9)], np.int8).reshape(3, 3, 2)
        move = (first, second)[turn % 2]({"observation": cells})
        assert move in free_cells(own, other)
        moves.append(move)
        own, other = other, own | 1 << move
        if any(other & line == line for line in THREE):
            return 1 - 2 * (turn % 2), tuple(moves)
    return 0, tuple(moves)


def test_perfect_players_draw_in_different_games() -> None:
    first, second = Perfect(), Perfect()
    first.begin(1)
    second.begin(2)
    played = [_played(first, second) for _ in range(GAMES)]
    assert {winner for winner, _ in played} == {0}
    assert len({moves for _, moves in played}) > GAMES / 2
    first.begin(1)
    second.begin(2)
    assert [_played(first, second) for _ in range(GAMES)] == played


def test_chance_never_beats_it_and_mostly_loses() -> None:
    perfect, chance = Perfect(), Chance()
    as_first = [_played(perfect, chance)[0] for _ in range(GAMES)]
    as_second = [_played(chance, perfect)[0] for _ in range(GAMES)]
    assert min(as_first) >= 0
    assert max(as_second) <= 0
    assert np.mean(as_first) > 0.8
    assert np.mean(as_second) < -0.6
