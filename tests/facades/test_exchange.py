"""Gradients of everybody, in one order, or an error for all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from hive.workers.exchange import GradientExchange

ROUNDS = 200


def test_everybody_gets_everything_in_order() -> None:
    exchange = GradientExchange([7, 3, 5])

    def peer(index: int) -> list[list[int]]:
        return [exchange.share(index, 1000 * index + number) for number in range(ROUNDS)]

    with ThreadPoolExecutor(3) as pool:
        one, two, three = pool.map(peer, (7, 3, 5))
    assert one == two == three == [[7000 + n, 3000 + n, 5000 + n] for n in range(ROUNDS)]


def test_a_peer_that_is_gone_is_told_to_all() -> None:
    exchange = GradientExchange([0, 1])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(exchange.share, 0, "mine")
        exchange.abort()
        with pytest.raises(RuntimeError, match="a peer of gradient worker 0 has stopped"):
            waiting.result()
