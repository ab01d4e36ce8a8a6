"""What goes wrong on the user's side: one clear error that names it, the right exit code, no traceback."""

from __future__ import annotations

import json
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import House


# Another text for the same path from the process to the terminal; tests/envs and tests/cli have the texts themselves.
AGAIN = pytest.mark.full(reason="another text on the same path", rotates=True)


def environment(house: House, id: str, more: str = "", steps: int = 100_000) -> object:
    return house.config(
        f'[run]\nname = "bad"\nsteps = {steps}\n[env]\nid = "{id}"\n[collection]\nenvs = 2\nrollout = 16\n{more}'
    )


def test_all_config_errors_at_once_and_no_run(house: House) -> None:
    config = house.config('[run]\nsteps = "many"\n[env]\n[collection]\nevns = 3\nenvs = 0\n')
    done = house.hive("up", config)
    assert done.returncode == 2
    for line in (
        "2: run.steps: expected",
        "3: env.id: missing",
        "5: collection.evns: unknown",
        "6: collection.envs: expected",
    ):
        assert f"run.toml:{line}" in done.stderr
    assert "did you mean `envs`?" in done.stderr
    assert not house.home.exists()


def test_a_missing_file(house: House) -> None:
    done = house.hive("up", "nowhere.toml")
    assert done.returncode == 2
    assert "error: no such file: `nowhere.toml`" in done.stderr


@pytest.mark.parametrize(
    ("id", "text"),
    [
        ("CartPol-v1", "error: no environment `CartPol-v1`\n\nhint: did you mean `CartPole-v1`?"),
        pytest.param("no_such_package:Env", "no_such_package", marks=AGAIN),
        pytest.param(
            "breaking_environments:Nothing", "error: no environment `breaking_environments:Nothing`", marks=AGAIN
        ),
    ],
)
def test_an_environment_that_is_not_there(house: House, id: str, text: str) -> None:
    done = house.hive("up", environment(house, id))
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(house.home.glob("bad-*"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "WrongShape",
            "breaking_environments:WrongShape returned an observation of shape (4,), expected (3,) (env 0, step 51",
        ),
        pytest.param(
            "NotANumber",
            "breaking_environments:NotANumber returned an observation with nan in it (env 0, step 51",
            marks=AGAIN,
        ),
        pytest.param("NoReset", "breaking_environments:NoReset raised RuntimeError: no simulator (", marks=AGAIN),
        pytest.param(
            "NoConstructor",
            "`breaking_environments:NoConstructor` cannot be built: its constructor raised OSError: no licence",
            marks=AGAIN,
        ),
    ],
)
def test_an_environment_that_breaks_its_contract_ends_the_run_at_once(house: House, name: str, text: str) -> None:
    config = environment(house, f"breaking_environments:{name}", '[supervision]\nnon_finite = "stop"\n')
    done = house.hive("up", config)
    assert done.returncode == 1
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    if name != "NoConstructor":
        kept = ".failed/bad-1" if name == "NoReset" else "bad-1"  # which has collected nothing
        summary = house.summary(kept)
        assert summary["state"] == "failed"
        assert text in summary["error"]
        assert summary["restarts"]["collector-0"] == 0
        crash = next((house.home / kept / "crash").iterdir()).read_text()
        assert text in crash.splitlines()[0]
        assert "Traceback" in crash


OWN = """
from torch import nn

def scheme(config, directory):
    return config.no_such_section

class Network(nn.Module):
    def __init__(self, spaces):
        super().__init__()
        self.body = nn.Linear(-4, 2)
"""
NO_TOPOLOGY = "the topology cannot be built: own.py:5 raised AttributeError: 'Config' object has"
NO_NETWORK = "the network cannot be built: own.py:10 raised RuntimeError: "


@pytest.mark.parametrize(
    ("key", "name", "code", "text", "inline"),
    [
        pytest.param("run.scheme", "scheme", 2, NO_TOPOLOGY, (), marks=AGAIN),
        ("network.module", "Network", 1, NO_NETWORK, ()),
        pytest.param("network.module", "Network", 1, NO_NETWORK, ("--inline",), marks=AGAIN),
    ],
)
def test_code_of_ones_own_that_raises_is_told_with_its_line(
    house: House, key: str, name: str, code: int, text: str, inline: tuple[str, ...]
) -> None:
    (house.folder / "own.py").write_text(OWN)
    words = (house.cartpole(), "--set", f"{key}=own:{name}")
    done = house.hive("up", *words, *inline)
    kept = house.home / ".failed" / "cart-1"
    report = kept / "crash" / "topology-1.txt"
    assert (done.returncode, done.stdout) == (code, "")
    assert f"error: {text}" in done.stderr
    assert done.stderr.endswith(f"\n\nhint: the traceback is in {report}\n")
    assert "Traceback" not in done.stderr
    assert "Traceback" in report.read_text()
    assert not (house.home / "cart-1").exists()  # there is nothing to resume
    summary = house.summary(".failed/cart-1")
    assert (summary["state"], summary["stop_reason"]) == ("failed", "it could not start")
    if not inline:
        assert "Traceback" in json.loads((kept / "failure.json").read_text())["traceback"]
    checked = house.hive("check", *words)
    assert (checked.returncode, checked.stdout) == (code, "")
    assert checked.stderr.startswith(f"error: {text}")
    assert "Traceback" not in checked.stderr


def test_an_environment_that_raises_is_tried_again_and_then_named(house: House) -> None:
    done = house.hive("up", environment(house, "breaking_environments:Raises", "[supervision]\nrestarts = 2\n"))
    assert done.returncode == 1
    assert (
        "error: collector-0 failed in `env`: breaking_environments:Raises raised ValueError: the robot fell over ("
        in done.stderr
    )
    assert "Traceback" not in done.stderr
    assert house.summary("bad-1")["restarts"]["collector-0"] == 2


@pytest.mark.full(reason="the same decisions without processes: runtime/supervise/test_exit_decisions.py", rotates=True)
def test_an_environment_that_raises_without_progress_is_tried_once_more(house: House) -> None:
    done = house.hive("up", environment(house, "breaking_environments:RaisesAtOnce"))
    assert done.returncode == 1
    assert "(the same error twice in a row, with no progress between" in done.stderr
    assert 'breaking_environments.py", line ' in done.stderr
    assert '    raise ValueError("the robot fell over")' in done.stderr
    assert house.ended(".failed/bad-1")["restarts"]["collector-0"] == 1


@pytest.mark.full(reason="another exception on the same path", rotates=True)
def test_an_environment_that_cancels_is_named_with_its_line(house: House) -> None:
    done = house.hive("up", environment(house, "breaking_environments:Cancels", "[supervision]\nrestarts = 1\n"))
    assert done.returncode == 1
    assert "breaking_environments:Cancels raised CancelledError (" in done.stderr
    assert "    raise asyncio.CancelledError" in done.stderr
    assert house.ended("bad-1")["state"] == "failed"


@pytest.mark.full(reason="envs/test_reading_spaces.py constructs the same in a child", rotates=True)
def test_an_environment_whose_constructor_starts_threads_trains(house: House) -> None:
    """In the fork server, its threads, processes and port were lost to every process of the run, and it stood still."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = environment(
        house, "breaking_environments:StartsThreads", f"workers = 1\n[env.options]\nport = {port}\n", steps=100
    )
    done = house.hive("up", config, "-s", "collection.envs=1")
    assert done.returncode == 0, done.stderr
    assert not house.processes()


@pytest.mark.full(reason="runtime/process/test_thread_watch.py without a run", rotates=True)
def test_a_network_that_leaves_a_thread_is_named(house: House) -> None:
    (house.folder / "with_thread.py").write_text(
        "import threading, time\nfrom torch import nn\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "def topology(config):\n    import hive\n    return hive.schemes.build(config)\n"
    )
    done = house.hive("up", house.cartpole(), "-s", "run.topology=with_thread.py:topology")
    assert done.returncode == 2
    assert "error: importing `with_thread` left 1 thread in the fork server (with_thread.py:3)" in done.stderr
    assert not house.processes()


@pytest.mark.full(reason="the same stack without processes: cli/test_scripting.py", rotates=True)
def test_a_script_that_trains_while_it_is_imported_is_named(house: House) -> None:
    """Each run imported the script, and so started another run."""
    script = house.folder / "unguarded.py"
    script.write_text(
        "import hive\nfrom breaking_environments import KeepsSession as Mine\n"
        'hive.train({"env": {"id": "unguarded:Mine"}, "run": {"scheme": "ppo", "steps": 100}})\n'
    )
    done = house.hive("up", environment(house, "unguarded:Mine"))
    assert done.returncode == 2
    assert "error: `unguarded` starts a run while a process of a run imports it" in done.stderr


@pytest.mark.full(reason="runtime/process/test_forked.py without a run", rotates=True)
def test_what_an_environment_starts_in_a_session_of_its_own_ends_with_the_run(house: House) -> None:
    done = house.hive("up", environment(house, "breaking_environments:KeepsSession", steps=100))
    assert done.returncode == 0, done.stderr
    assert not house.processes()


@pytest.mark.full(reason="a killed supervisor takes the sweep of live/test_death.py", rotates=True)
def test_what_an_environment_starts_ends_with_a_killed_supervisor(house: House) -> None:
    config = environment(house, "breaking_environments:KeepsSession", steps=100_000_000)
    assert house.hive("up", "-d", config).returncode == 0
    os.kill(house.ps("bad-1")["supervisor"]["pid"], signal.SIGKILL)
    house.until(lambda: not house.processes())


@pytest.mark.full(reason="runtime/process/test_user_exits.py without a run", rotates=True)
def test_a_constructor_that_exits_ends_the_run_with_its_line(house: House) -> None:
    done = house.hive("up", environment(house, "breaking_environments:ExitsInConstructor"))
    assert done.returncode == 1
    assert "cannot be built: its constructor raised SystemExit: os._exit(5) (" in done.stderr
    assert "    os._exit(5)" in done.stderr
    assert not any("fork-server died" in event["text"] for event in house.events(".failed/bad-1"))
    assert house.ended(".failed/bad-1")["state"] == "failed"
    assert house.hive("ls").stdout.startswith("no run in ")


def test_an_environment_that_returns_nan_once_costs_a_collector_and_no_run(house: House) -> None:
    done = house.hive("up", environment(house, "breaking_environments:NotANumberOnce", steps=5_000))
    assert done.returncode == 0, done.stderr
    summary = house.ended("bad-1")
    assert (summary["state"], summary["exact"], summary["restarts"]["collector-0"]) == ("finished", False, 1)
    (died,) = [event for event in house.events("bad-1") if event["kind"] == "died"]
    assert "returned an observation with nan in it (env " in died["text"]


def test_an_environment_that_hangs_is_killed_and_named(house: House) -> None:
    done = house.hive(
        "up", environment(house, "breaking_environments:Hangs", "[supervision]\nrestarts = 0\nphase_limit_s = 0.5\n")
    )
    assert done.returncode == 1
    assert "error: collector-0 failed in `env`" in done.stderr
    assert "no progress in `env`" in done.stderr
    report = (house.home / "bad-1" / "crash" / "collector-0-1.txt").read_text()
    assert "\nstack\n" in report
    assert "breaking_environments.py" in report  # where it hangs
