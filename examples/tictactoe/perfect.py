"""Programs that play tic-tac-toe (pettingzoo.classic:tictactoe_v3), as policies that do not learn:

    [policies.opponent]
    agents = "player_2"
    scripted = "examples/tictactoe/perfect.py:Perfect"

A perfect player makes any of the best moves, so that games differ; a careless one sometimes makes any move at all.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from typing import Any

from numpy.typing import NDArray

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
THREE = tuple(sum(1 << cell for cell in line) for line in LINES)


def free_cells(own: int, other: int) -> list[int]:
    """Return the cells that are free. own, other: bits of the cells of the player to move, and of the other one."""
    return [cell for cell in range(9) if not (own | other) >> cell & 1]


@cache
def value(own: int, other: int) -> int:
    """Return what the player to move gets if both play perfectly: 0 for a draw, more for a win that comes earlier."""
    free = free_cells(own, other)
    if any(other & line == line for line in THREE):
        return -1 - len(free)
    return max((-value(other, own | 1 << cell) for cell in free), default=0)


def best_moves(own: int, other: int) -> list[int]:
    """Return all moves that keep the value of a position."""
    kept = value(own, other)
    return [cell for cell in free_cells(own, other) if -value(other, own | 1 << cell) == kept]


def bits(cells: NDArray[Any]) -> int:
    """Return the bits of the cells [3, 3] that are not 0."""
    return sum(1 << number for number, taken in enumerate(cells.flat) if taken)


class Perfect:
    """Draws one of the best moves. mistakes: probability that it draws one of all moves."""

    mistakes = 0.0

    def __init__(self) -> None:
        self._random = random.Random(0)

    def begin(self, seed: int | None) -> None:
        """Begin a game. seed: of the moves; None: go on drawing."""
        if seed is not None:
            self._random.seed(seed)

    def __call__(self, observation: Mapping[str, NDArray[Any]]) -> int:
        """Return a cell. observation: in its part `observation` [3, 3, 2], the own cells and those of the other one."""
        board = observation["observation"]
        own, other = bits(board[..., 0]), bits(board[..., 1])
        careless = self._random.random() < self.mistakes
        return self._random.choice(free_cells(own, other) if careless else best_moves(own, other))


class Careless(Perfect):
    """Makes a third of its moves without looking: who learns against it meets every position."""

    mistakes = 1 / 3


class Chance(Perfect):
    """Makes all moves without looking."""

    mistakes = 1.0
