"""What ends a script ends its runs, which are saved first: signals, in every form of the call, and its own death."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hive.records import list_checkpoints
from hive.records.failed_starts import size_of

if TYPE_CHECKING:
    from conftest import House

SCRIPT = """
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
import hive

class Watch:
    def on_round(self, event):
        pass

def train(**more):
    hive.train("a2c", env="CartPole-v1", steps=10**9, name="cart", collection={"envs": 8, "rollout": 16}, **more)

%s
print("went on")
"""
CALLS = {
    "loop": "for seed in range(3): train(seed=seed)",
    "quiet": "train(quiet=True)",
    "callback": "train(quiet=True, callbacks=[Watch()])",
    "inline": "train(quiet=True, inline=True)",
    "thread": "t = threading.Thread(target=lambda: train(quiet=True, callbacks=[Watch()])); t.start(); t.join()",
    "pool": "with ThreadPoolExecutor() as pool: pool.submit(train).result()",
    "handler": "signal.signal(signal.SIGTERM, lambda *_: exit(7)); train(quiet=True)",
    "inline handler": "signal.signal(signal.SIGTERM, lambda *_: exit(7)); train(quiet=True, inline=True)",
}
GONE = "the program that started the run has ended"
FULL = pytest.mark.full("other forms take the same path", rotates=True)


@pytest.mark.parametrize(
    ("form", "number", "code", "reason"),
    [
        ("callback", signal.SIGTERM, -signal.SIGTERM, "SIGTERM"),
        pytest.param("loop", signal.SIGINT, -signal.SIGINT, "Ctrl-C", marks=pytest.mark.rotates),
        ("thread", signal.SIGKILL, -signal.SIGKILL, GONE),
        pytest.param("pool", signal.SIGINT, -signal.SIGINT, "Ctrl-C", marks=FULL),
        pytest.param("handler", signal.SIGTERM, 7, "SystemExit in the program", marks=FULL),
        pytest.param("inline handler", signal.SIGTERM, 7, "SystemExit in the program", marks=FULL),
        pytest.param("loop", signal.SIGTERM, -signal.SIGTERM, "SIGTERM", marks=FULL),
        pytest.param("quiet", signal.SIGINT, -signal.SIGINT, "Ctrl-C", marks=FULL),
        pytest.param("inline", signal.SIGINT, -signal.SIGINT, "Ctrl-C", marks=FULL),
        pytest.param("inline", signal.SIGTERM, -signal.SIGTERM, "SIGTERM", marks=FULL),
        pytest.param("thread", signal.SIGTERM, -signal.SIGTERM, GONE, marks=FULL),
    ],
)
def test_what_ends_a_script_saves_and_ends_its_run(
    house: House, form: str, number: signal.Signals, code: int, reason: str
) -> None:
    script = house.config(SCRIPT % CALLS[form], "script.py")
    command, pipe = [sys.executable, script], subprocess.PIPE
    process = subprocess.Popen(command, env=house.env, cwd=house.folder, stdout=pipe, stderr=pipe, text=True)
    house.started.append(process)
    house.until(lambda: size_of(house.home / "cart-1" / "metrics.jsonl") > 0)
    process.send_signal(number)
    out, err = process.communicate(timeout=house.limit_s)
    assert (process.returncode, out) == (code, ""), err
    house.until(lambda: not house.processes())
    summary = house.summary("cart-1")
    assert (summary["state"], summary["stop_reason"]) == ("stopped", reason)
    (*_, newest) = list_checkpoints(house.home / "cart-1" / "checkpoints", verify=True)
    assert newest.update == summary["updates"]
    assert not (house.home / "cart-2").exists()


@pytest.mark.full("a rare way to leave")
def test_a_terminal_that_is_closed_leaves_the_run_of_a_script(house: House) -> None:
    script = house.config(SCRIPT % CALLS["quiet"], "script.py")
    process = subprocess.Popen([sys.executable, script], env=house.env, cwd=house.folder, text=True)
    house.started.append(process)
    house.until(lambda: size_of(house.home / "cart-1" / "metrics.jsonl") > 0)
    process.send_signal(signal.SIGHUP)
    assert process.wait(house.limit_s) == -signal.SIGHUP
    steps = house.ps("cart-1")["learner-0"]["counters"]["env_steps"]
    house.until_steps("cart-1", steps + 50_000)  # for longer than the supervisor needs to notice
    assert house.hive("down", "cart-1").returncode == 0
