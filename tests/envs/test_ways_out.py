"""Hints for errors of environments that share a process or a machine with others."""

from __future__ import annotations

import asyncio
import bdb
import multiprocessing
import socket
import sys

import gymnasium
import pytest
import torch  # noqa: F401  # as in the processes of a run

from hive.envs.ways_out import BEFORE, OTHER_VERSION, OWN_CONTEXT, OWN_LOOP, OWN_PORT, PLAIN_INT, is_permanent, way_out


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


@pytest.mark.parametrize("kind", [AssertionError, TypeError, ValueError])
def test_an_environment_that_wants_an_int_of_python_gets_a_wrapper(kind: type[Exception]) -> None:
    error = kind("When using flat action space, action must be an integer or an Action object: 15 is invalid")
    assert (way_out(error), is_permanent(error)) == (PLAIN_INT, True)
    assert way_out(kind("the action is invalid: no integer is left")) == ""


def test_what_must_be_imported_before_torch_gets_a_process_without_it() -> None:
    assert "torch" in sys.modules, "as in the processes of a run"
    for text in ("Please import torch after isaacgym modules.", "libgomp: cannot allocate memory in static TLS block"):
        assert way_out(ImportError(text)) == BEFORE
    assert way_out(ValueError("the first torch layer")) == ""


def test_a_name_that_an_installed_package_lacks_is_a_matter_of_versions() -> None:
    with pytest.raises(ImportError) as caught:
        exec("from gymnasium.wrappers import Monitor")
    assert way_out(caught.value) == OTHER_VERSION
    assert way_out(ImportError("cannot import name `x`", name="own_module")) == ""


def test_code_that_wants_a_terminal_is_told_how_to_debug() -> None:
    error = EOFError("EOF when reading a line")
    assert "inline=True" in way_out(error)
    assert "inline=True" in way_out(bdb.BdbQuit())
    assert is_permanent(error), "a restart has no terminal either"
    assert way_out(EOFError("Ran out of input")) == "", "a file that ends early"


def test_the_method_seed_of_the_old_package() -> None:
    with pytest.raises(AttributeError) as caught:
        gymnasium.Env().seed(1)  # type: ignore[attr-defined]
    assert "reset(seed=seed)" in way_out(caught.value)


def test_other_errors_have_none() -> None:
    assert way_out(ValueError("no fuel")) == ""
