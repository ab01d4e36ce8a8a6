"""The command `web`: its runs, and the error without the extra."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Place


def test_without_the_extra_it_says_how_to_install_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("starlette", "uvicorn")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("hive.web.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = place.hive("web")
    assert done.code == 2
    assert done.err == "error: `hive web` needs Starlette and uvicorn\n\nhint: pip install 'hive-trainer[web]'\n"


def test_named_runs_and_all_runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    server = pytest.importorskip("hive.web.server", reason="the extra `web` is not installed")
    served: list[list[str]] = []

    def serve(listener: Any, host: str, find: Any, ready: Any) -> None:
        served.append([run.name for run in find()])
        ready(f"http://{host}:{listener.getsockname()[1]}/?token=x")
        listener.close()

    monkeypatch.setattr(server, "serve", serve)
    monkeypatch.setattr(os, "nice", lambda by: 0)
    place.ended("cartpole", started=1.7e9)
    place.ended("acrobot", started=1.8e9)
    assert place.hive("web", "cartpole", "--port", "0").out.startswith("http://127.0.0.1:")
    assert place.hive("web", "--port", "0").code == 0
    assert served == [["cartpole-1"], ["cartpole-1", "acrobot-1"]]
    assert place.hive("web", "nothing").code == 2
