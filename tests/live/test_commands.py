"""The commands around a run: detach, look, end."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import House


def test_a_detached_run_is_listed_looked_at_and_ended(house: House) -> None:
    assert "no run is live" in house.hive("down").stderr
    done = house.hive("up", house.cartpole(), "-d", "--name", "quiet", "--seed", "7", "--set", "collection.rollout=32")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "quiet-1\n"
    rows = json.loads(house.hive("ls", "--json").stdout)
    assert [row["name"] for row in rows] == ["quiet-1"]
    assert rows[0]["state"] == "running"
    assert Path(rows[0]["path"]) == (house.home / "quiet-1").resolve()
    table = {row["name"]: row for row in json.loads(house.hive("ps", "quiet", "--json").stdout)}
    assert set(table) == {"supervisor", "fork-server", "collector-0", "gradient-worker-0", "learner-0", "recorder"}
    assert all(row["pid"] > 0 and row["restarts"] == 0 and row["state"] == "running" for row in table.values())
    assert len({row["pid"] for row in table.values()}) == 5
    assert table["gradient-worker-0"]["pid"] == table["learner-0"]["pid"]
    logs = house.hive("logs", "quiet-1", "supervisor", "-n", "5")
    assert "running: 4 actors in 3 processes" in logs.stdout
    assert "quiet-1" in house.hive("ps").stdout
    down = house.hive("down", "quiet-1")
    assert down.returncode == 0, down.stderr
    assert down.stdout == "quiet-1 stopped\n"
    summary = house.summary("quiet-1")
    assert summary["seed"] == 7
    assert summary["stop_reason"] == "hive down"
    resolved = (house.home / "quiet-1" / "resolved.toml").read_text()
    assert "rollout = 32" in resolved
    assert (house.home / "quiet-1" / "config.toml").read_bytes() == (house.folder / "cart.toml").read_bytes()
    again = house.hive("down", "quiet-1")
    assert again.returncode == 2
    assert "quiet-1 is not running: it stopped" in again.stderr
    ended = json.loads(house.hive("ps", "quiet-1", "--json").stdout)
    assert next(row["state"] for row in ended if row["name"] == "learner-0") == "stopped"


@pytest.mark.full(reason="three runs to their goals")
def test_a_finished_run_is_judged_goes_on_with_another_goal_and_is_judged_again(house: House) -> None:
    normalised = "[network]\nnormalize_observations = true\n"
    done = house.hive("up", house.cartpole(6400, more=normalised))
    assert done.returncode == 0, done.stderr
    refused = house.hive("resume", "cart-1")
    assert (refused.returncode, refused.stderr.splitlines()[0]) == (2, "error: cart-1 has finished: 6,400 steps")
    before = house.summary("cart-1")
    done = house.hive("resume", "cart-1", "--set", "run.steps=12800")
    assert done.returncode == 0, done.stderr
    assert "6,400 steps" not in done.stderr.partition("run cart-1")[2]  # of the diary only what is new
    after = house.summary("cart-1")
    assert (before["env_steps"], after["env_steps"]) == (6400, 12800)
    assert (after["state"], after["stop_reason"]) == ("finished", "12,800 steps")
    judged = house.hive("eval", "cart", "--which", "all", "--episodes", "4", "--json")
    assert judged.returncode == 0, judged.stderr
    rows = json.loads(judged.stdout)
    assert [(row["env_steps"], row["episodes"]) for row in rows] == [(6400, 4), (12800, 4)]
    assert all(8 <= row["min"] <= row["mean_return"] <= row["max"] <= 500 for row in rows)


@pytest.mark.full(reason="one error message of a run", rotates=True)
def test_logs_of_an_actor_that_is_not_there(house: House) -> None:
    house.hive("up", house.cartpole(), "-d")
    done = house.hive("logs", "cart-1", "lerner-0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: cart-1 has no log of `lerner-0`; did you mean `learner-0`?\n\n"
        "hint: its logs are: collector-0, gradient-worker-0, learner-0, recorder, supervisor\n"
    )
    assert house.hive("down").returncode == 0


SLOW = """
import time

def scheme(config, directory):
    (directory / "building").touch()
    time.sleep(600)
"""


@pytest.mark.rotates
@pytest.mark.usefixtures("cold")  # warm it may have begun
@pytest.mark.parametrize("words", [(), pytest.param(("-d",), marks=pytest.mark.rotates)])
def test_an_interrupt_at_the_very_start_leaves_nothing(house: House, words: tuple[str, ...]) -> None:
    up = house.start("up", house.cartpole(), *words)
    house.until(lambda: (house.home / "cart-1" / "log" / "supervisor.out").exists())
    up.send_signal(signal.SIGINT)
    out, err = up.communicate(timeout=house.limit_s)
    assert (up.returncode, out) == (130, "")
    assert err == "stopping cart-1, which was still starting - Ctrl-C again to kill it\n"
    house.until(lambda: not house.processes())
    assert list(house.home.glob("cart-*")) == []
    assert "no run is live" in house.hive("down").stderr


def test_an_interrupt_while_a_detached_run_is_built_ends_it(house: House) -> None:
    """Nobody waits until it is built."""
    (house.folder / "slow.py").write_text(SLOW)
    up = house.start("up", house.cartpole(), "-d", "--set", "run.scheme=slow:scheme")
    house.until(lambda: (house.home / "cart-1" / "building").exists())
    up.send_signal(signal.SIGINT)
    out, err = up.communicate(timeout=house.limit_s)
    assert (up.returncode, out) == (130, "")
    assert err == "stopping cart-1, which was still starting - Ctrl-C again to kill it\n"
    house.until(lambda: not house.processes())
    assert not (house.home / "cart-1").exists(), "nothing is left of a run that has not begun"


def test_a_run_that_is_built_can_be_ended_and_left(house: House) -> None:
    """`hive down` ends it; a view that goes away does not."""
    (house.folder / "slow.py").write_text(SLOW)
    up = house.start("up", house.cartpole(), "--set", "run.scheme=slow:scheme")
    house.until(lambda: (house.home / "cart-1" / "building").exists())
    assert house.ps("cart-1")["supervisor"]["state"] == "starting"
    up.send_signal(signal.SIGHUP)
    up.communicate(timeout=house.limit_s)
    assert up.returncode == 0
    assert house.ps("cart-1")["supervisor"]["state"] == "starting"
    down = house.hive("down")
    assert (down.returncode, down.stdout) == (0, "cart-1 stopped\n")


@pytest.mark.full(reason="three runs for one message", rotates=True)
def test_a_failed_start_leaves_no_trace_in_the_run_that_goes_on(house: House) -> None:
    assert house.hive("up", house.cartpole(), "-d").returncode == 0
    house.until_steps("cart-1", 2_000)
    assert house.hive("down").returncode == 0
    before = house.summary("cart-1")
    resolved = house.home / "cart-1" / "resolved.toml"
    text = resolved.read_text()
    resolved.write_text(text.replace("CartPole-v1", "CartPol-v1"))
    done = house.hive("resume", "cart-1", "-d")
    assert done.returncode == 2
    assert "no environment `CartPol-v1`" in done.stderr
    failure = house.home / "cart-1" / "failure.json"
    assert failure.exists()
    assert house.summary("cart-1") == before  # it is what it was
    resolved.write_text(text)
    assert house.hive("resume", "cart-1", "-d").returncode == 0
    assert not failure.exists()
    assert house.hive("down").returncode == 0


def test_down_now_kills(house: House) -> None:
    house.hive("up", house.cartpole(), "-d")
    assert house.hive("down", "--now").returncode == 0
    assert house.summary("cart-1")["state"] == "stopped"


def test_garbage_on_the_control_socket_hurts_nobody(house: House) -> None:
    import socket

    house.hive("up", house.cartpole(), "-d")
    path = json.loads((house.home / "cart-1" / "run.json").read_text())["socket_folder"] + "/control"
    for garbage in (b"\xff" * 64, b"\x05\x00\x00\x00hello", b"\x00", b"GET / HTTP/1.1\r\n\r\n"):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(path)
            line.sendall(garbage)
    house.until_steps("cart-1", 2_000)
    assert house.hive("down").returncode == 0


def test_check_config_and_init(house: House) -> None:
    written = house.hive("init", "CartPole-v1", "-o", "new.toml")
    assert written.returncode == 0, written.stderr
    checked = json.loads(house.hive("check", "new.toml", "--json").stdout)
    assert checked["processes"]["learner-0"] == ["gradient-worker-0", "learner-0"]
    assert {channel["name"] for channel in checked["channels"]} == {
        "behaviour",
        "checkpoints",
        "gradients",
        "improved",
        "optimizer_state",
        "metrics",
        "rollouts",
        "weights",
    }
    keys = json.loads(house.hive("config", "new.toml", "-s", "run.seed=9", "--json").stdout)
    assert keys["run.seed"] == {"value": 9, "origin": "--set"}
    assert keys["env.id"]["origin"].startswith("new.toml:")
    again = house.hive("init", "CartPole-v1", "-o", "new.toml")
    assert again.returncode == 2
    assert "already exists" in again.stderr
