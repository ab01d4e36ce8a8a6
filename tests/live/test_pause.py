"""`hive pause`, `resume` and `save`: a run rests with nothing lost or half done, and is the run that never paused."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hive.config import load_config, render
from hive.records import RunDirectory, checkpoint_at, read_run_facts, write_bytes
from hive.runtime.run.control import ControlClient, open_control
from hive.runtime.run.execute import run_inline

if TYPE_CHECKING:
    from conftest import House

MODES = {
    "a2c pipelined, 2 x 2": [
        *("collection.communication=pipelined", "gradients.communication=pipelined"),
        *("collection.workers=2", "gradients.workers=2", "algorithm.normalize_advantages=true"),
    ],
    "ppo synchronous": [
        *("run.scheme=ppo", "algorithm.epochs=2", "algorithm.minibatches=2"),
        *("collection.communication=synchronous", "gradients.communication=synchronous", "collection.workers=2"),
    ],
}
SETTINGS = (
    "run.scheme=a2c",
    *('env.id="CartPole-v1"', "collection.envs=8", "collection.rollout=16"),
    "run.steps=120_000",  # far beyond the first pause, on a busy machine too
    "checkpoint.every={updates=50}",
)
SAME = ("weights_sha256", "updates", "env_steps", "episodes", "mean_return_100", "exact", "stop_reason")
PAUSES = 3
STEPS = 2_000  # between two pauses


def counters(status: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = next(a["counters"] for a in status["actors"] if a["name"] == "learner-0")
    return found


def paused(house: House, client: ControlClient) -> dict[str, Any]:
    """Pauses the run; what it says at rest."""
    client.pause()
    house.until(lambda: client.status()["state"] == "paused")
    return client.status()


def at_rest(status: dict[str, Any], after: dict[str, Any]) -> None:
    """Every account holds, whole rounds were made, and nothing has moved."""
    for name, account in status["channels"].items():
        gone = account["consumed"] + sum(account["dropped"].values())
        assert account["produced"] == gone + account["in_flight"], name
    assert status["channels"] == after["channels"]
    assert counters(status) == counters(after)
    assert {a["activity"] for a in status["actors"] if a["name"].startswith("collector")} == {"paused"}


@pytest.mark.parametrize(
    "mode",
    [
        "a2c pipelined, 2 x 2",
        pytest.param("ppo synchronous", marks=pytest.mark.full(reason="a second exact pair", rotates=True)),
    ],
)
def test_a_run_that_was_paused_and_saved_is_the_run_that_was_not(house: House, tmp_path: Path, mode: str) -> None:
    sets = [*SETTINGS, *MODES[mode]]
    done = house.hive("up", house.config(""), "-d", "--name", "part", *[f"--set={key}" for key in sets])
    assert done.returncode == 0, done.stderr
    directory = RunDirectory(house.home / "part-1")
    times: list[float] = []
    with closing(open_control(Path(read_run_facts(directory).socket_folder))) as client:
        for pause in range(PAUSES):
            reached = (pause + 1) * STEPS
            house.until(lambda reached=reached: counters(client.status()).get("env_steps", 0) >= reached)
            status = paused(house, client)
            assert status["channels"]["rollouts"]["in_flight"] == 0
            assert status["channels"]["rollouts"]["produced"] % 2 == 0, "whole rounds"
            times.append(counters(status)["train_s"])
            at_rest(status, paused(house, client))
            if pause == 1:  # an extra checkpoint, or the one of the schedule if that is of this turn
                saved = house.hive("save", "part-1")
                assert saved.returncode == 0, saved.stderr
                assert checkpoint_at(saved.stdout.strip()).update > 0
            client.resume()
    house.until(lambda: directory.summary_file.exists())
    house.until(lambda: not house.processes())
    second = house.ended("part-1")

    whole = RunDirectory.create(tmp_path, "whole")
    write_bytes(whole.resolved_file, render(load_config(tmp_path / "run.toml", sets, text="")).encode())
    assert run_inline(whole) == 0
    first = json.loads(whole.summary_file.read_text())
    assert first["exact"] is True
    assert {key: second[key] for key in SAME} == {key: first[key] for key in SAME}
    metrics = [json.loads(line)["seconds"] for line in directory.metrics_file.read_text().splitlines()]
    assert metrics == sorted(metrics)
    assert times == sorted(times)


@pytest.mark.full(reason="runtime/supervise has the decisions; here processes die", rotates=True)
def test_what_dies_in_a_pause_comes_back_to_it(house: House) -> None:
    sets = [f"--set={table}.communication=asynchronous" for table in ("collection", "gradients")]
    config = house.cartpole(more="workers = 2\n[gradients]\nworkers = 2\n")
    assert house.hive("up", config, "-d", *sets).returncode == 0
    house.until_steps("cart-1", 2_000)
    done = house.hive("pause", "cart-1")
    assert (done.returncode, done.stdout.partition(" at ")[0]) == (0, "cart-1 paused"), done.stderr
    before = house.ps("cart-1")
    assert before["supervisor"]["state"] == "paused"
    steps = before["learner-0"]["counters"]["env_steps"]
    for name in ("collector-0", "learner-0"):
        os.kill(before[name]["pid"], signal.SIGKILL)
        house.until(lambda name=name: house.ps("cart-1")[name]["restarts"] == 1)
        house.until(lambda name=name: house.ps("cart-1")[name]["state"] == "running")
    house.until(lambda: house.ps("cart-1")["collector-0"]["activity"] == "paused")
    assert house.ps("cart-1")["learner-0"]["counters"]["env_steps"] == steps

    saved = house.hive("save", "cart-1")  # also while nobody moves
    assert saved.returncode == 0, saved.stderr
    checkpoint = checkpoint_at(saved.stdout.strip())
    assert (checkpoint.scheduled, checkpoint.state["env_steps"]) == (False, steps)
    assert house.hive("save").stdout == saved.stdout

    again = house.hive("resume", "cart-1")
    assert (again.returncode, again.stdout) == (0, "cart-1 running\n")
    house.until_steps("cart-1", int(steps) + 2_000)
    assert house.hive("pause").returncode == 0
    assert house.hive("down").stdout == "cart-1 stopped\n"  # a paused run can be ended
    assert house.ended("cart-1")["restarts"]["learner-0"] == 1
    kinds = [event["kind"] for event in house.events("cart-1")]
    assert kinds.count("paused") == 2
    assert kinds.count("resumed") == 1


def learning_rate(house: House) -> float:
    """Of the newest line of metrics."""
    lines = (house.home / "cart-1" / "metrics.jsonl").read_text().splitlines()
    rate: float = json.loads(lines[-1]).get("learner/learning_rate", 0.0) if lines else 0.0
    return rate


@pytest.mark.full(reason="tests/runtime/run/test_scaling.py tests live changes without processes", rotates=True)
def test_a_change_holds_until_somebody_makes_another(house: House) -> None:
    """Over the death of those who were told, and over the end of the run."""
    rate = '[algorithm]\nlearning_rate = 7e-4\nlearning_rate_schedule = "constant"\nentropy_weight = 0.01\n'
    config = house.cartpole(more=f"[record]\nevery_s = 0.1\n{rate}")
    assert house.hive("up", config, "-d").returncode == 0
    house.until_steps("cart-1", 1_000)
    keys = ("algorithm.learning_rate=1e-5", "algorithm.entropy_weight=0.5")
    done = house.hive("set", "cart-1", *keys)
    assert (done.returncode, done.stdout) == (0, f"cart-1 continues with {' '.join(keys)}\n"), done.stderr
    house.until(lambda: learning_rate(house) == 1e-5)
    again = house.hive("set", "cart-1", keys[0])
    assert (again.returncode, again.stderr) == (2, f"error: cart-1 already has these values: {keys[0]}\n")
    slip = house.hive("set", "cart-1", "algorithm.lerning_rate=1")
    assert (slip.returncode, "did you mean `algorithm.learning_rate`?" in slip.stderr) == (2, True)
    before = house.ps("cart-1")
    assert before["gradient-worker-0"]["pid"] == before["learner-0"]["pid"], "two that were told, in one process"
    os.kill(before["learner-0"]["pid"], signal.SIGKILL)
    house.until(lambda: all(house.ps("cart-1")[n]["restarts"] for n in ("learner-0", "gradient-worker-0")))
    house.until(lambda: house.ps("cart-1")["learner-0"]["counters"].get("env_steps", 0) > 0)
    steps = house.ps("cart-1")["learner-0"]["counters"]["env_steps"]
    house.until_steps("cart-1", int(steps) + 1_000)
    assert learning_rate(house) == 1e-5
    assert house.hive("down").returncode == 0
    assert house.ended("cart-1")["exact"] is False
    events = {event["kind"]: event["text"] for event in house.events("cart-1")}
    assert events["set"].startswith("algorithm.learning_rate 0.0007 -> 1e-05, algorithm.entropy_weight 0.01 -> ")
    assert "not done" not in events
    kept = load_config(house.home / "cart-1" / "resolved.toml").algorithm
    assert (kept.learning_rate, kept.entropy_weight) == (1e-5, 0.5)


@pytest.mark.full(reason="stacks and histories of fakes are in tests/runtime", rotates=True)
def test_stacks_and_histories_of_a_live_run(house: House) -> None:
    assert house.hive("up", house.cartpole(), "-d").returncode == 0
    house.until_steps("cart-1", 1_000)
    stacks = {row["name"]: row["stack"] for row in json.loads(house.hive("stack", "--json").stdout)}
    assert set(stacks) == {"collector-0", "gradient-worker-0", "learner-0", "recorder"}
    assert all("most recent call first" in stack for stack in stacks.values())
    assert "learner_actor.py" in house.hive("stack", "cart-1", "learner-0").stdout
    history = house.hive("history", "cart-1", "learner-0").stdout
    assert history == "learner-0  running\n    starting -ready-> ready\n    ready -begin-> running\n"
    healthy = house.hive("doctor", "cart-1")
    assert healthy.returncode == 0
    assert "running, " in healthy.stdout
    elsewhere = house.hive(cwd=Path("/"))
    assert "cart-1 " in elsewhere.stdout
    assert "running" in elsewhere.stdout
    assert house.hive("down").returncode == 0
    assert house.hive("doctor").returncode == 0
