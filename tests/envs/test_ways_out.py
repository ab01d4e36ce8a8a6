"""Hints for errors of environments that share a process or a machine with others."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket

import pytest

from hive.envs.ways_out import OWN_CONTEXT, OWN_LOOP, OWN_PORT, is_permanent, way_out


async def nothing() -> None:
    """What that loop runs."""


def nested() -> None:
    """What an environment does that runs an event loop of its own."""
    work = nothing()
    try:
        asyncio.run(work)
    finally:
        work.close()


async def hinted() -> tuple[str, bool]:
    """The hint for it where a loop runs, as in a collector, and whether it would come again."""
    with pytest.raises(RuntimeError) as caught:
        nested()
    return way_out(caught.value), is_permanent(caught.value)


def test_a_loop_within_that_of_a_collector_needs_a_process_of_its_own() -> None:
    assert asyncio.run(hinted()) == (OWN_LOOP, True)
    assert way_out(RuntimeError("asyncio.run() cannot be called from a running event loop")) == "", "no loop here"


def test_a_start_method_that_is_set_twice() -> None:
    multiprocessing.get_start_method()  # which sets it
    with pytest.raises(RuntimeError) as caught:
        multiprocessing.set_start_method("spawn")
    assert (way_out(caught.value), is_permanent(caught.value)) == (OWN_CONTEXT, True)


def test_a_port_that_another_environment_has_may_be_free_later() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use") as caught:
        socket.create_server(taken.getsockname())
    assert (way_out(caught.value), is_permanent(caught.value)) == (OWN_PORT, False)


def test_other_errors_have_none() -> None:
    assert way_out(ValueError("no fuel")) == ""
