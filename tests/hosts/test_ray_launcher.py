"""What a run with Ray says before Ray is used. tests/live/test_ray.py has the rest."""

from __future__ import annotations

import importlib.util
import socket

import pytest

from hive.errors import PlatformError, UsageError
from hive.hosts import ray_launcher
from hive.hosts.ray_launcher import RayCluster


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PlatformError, match="needs Ray") as caught:
        RayCluster("r", unprotected=False)
    assert "hive-trainer[ray]" in caught.value.hint


@pytest.mark.parametrize("address", [None, "auto", "10.0.0.1", "nonsense:port"])
def test_a_cluster_that_does_not_run_is_one_clear_error(address: str | None) -> None:
    with pytest.raises(UsageError, match="no Ray cluster runs") as caught:
        ray_launcher._reach(address)
    assert "ray start --head" in caught.value.hint


@pytest.mark.parametrize("variable", [None, "", "auto"])
def test_the_running_cluster_is_used_unless_the_variable_names_another(
    variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    assert ray_launcher._address(lambda: "10.0.0.1:6379") == "10.0.0.1:6379"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    assert ray_launcher._address(lambda: "10.0.0.1:6379") == "10.0.0.2:6379"


def test_an_address_where_nothing_listens_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())
        ray_launcher._reach(address)
    with pytest.raises(UsageError, match=f"no Ray cluster runs at {address}"):
        ray_launcher._reach(address)


async def test_errors_of_threads_arrive() -> None:
    def fail() -> int:
        raise UsageError("no")

    assert await ray_launcher.in_thread(lambda: 3) == 3
    with pytest.raises(UsageError, match="no"):
        await ray_launcher.in_thread(fail)
