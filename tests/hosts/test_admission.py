"""The head's end of a link whose host was placed by a launcher."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hive.config import load_config
from hive.hosts.head import HostLink
from hive.runtime import Layout
from hive.runtime.wire.links import KeyPair


def link(tmp_path: Path) -> HostLink:
    text = (
        '[env]\nid = "CartPole-v1"\n[collection]\nhosts = ["left"]\n[hosts]\nlauncher = "ray"\ncores = { left = 1 }\n'
    )
    blueprint: Any = SimpleNamespace(
        config=load_config("run.toml", text=text),
        state=SimpleNamespace(bytes=8),
        rollout_layout=Layout({"x": ("float32", (2,))}),
    )
    return HostLink("left", blueprint, range(1), range(0), tmp_path)


async def test_a_host_is_admitted_by_its_key_only(tmp_path: Path) -> None:
    one, first, second = link(tmp_path), KeyPair.new(), KeyPair.new()
    try:
        address, head = one.admit(first.public, "127.0.0.1")
        assert address.startswith("tcp://127.0.0.1:")
        assert one.admit(first.public, "127.0.0.1") == (address, head)
        assert one.server is not None
        assert one.server.callback("", first.public.encode())
        assert not one.server.callback("", second.public.encode())
        assert not list(tmp_path.iterdir()), "no key is written to a file"
    finally:
        await one.close("", rejoin=False)


async def test_another_key_replaces_the_first_and_gives_up_a_host_that_has_joined(tmp_path: Path) -> None:
    one, first, second = link(tmp_path), KeyPair.new(), KeyPair.new()
    try:
        one.admit(first.public, "127.0.0.1")
        one.admit(second.public, "127.0.0.1")
        assert one.server is not None
        assert one.server.accepted == second.public.encode()
        assert not one.lost
        one.agent = b"agent"
        one.admit(first.public, "127.0.0.1")
        assert one.lost
        assert one.server.accepted == second.public.encode()
    finally:
        await one.close("", rejoin=False)
