"""Sixteen environments in processes of their own, of which one fails in each way in which simulators do.

The environments count their steps in files (counted_environments.py). A collector steps all its environments in each
row, so the counts of the fifteen others are equal to the number of rows: a step that one of them lost would be missing.
With `-s` the tests print the times of restarts: 100 ms cannot be judged on a machine that does other work.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hive.config import EnvConfig, load_config, render
from hive.envs import EnvContext, Household, Watcher, configured_spec, process_vector
from hive.envs.configured import recipe_of
from hive.records import RunDirectory, write_bytes
from hive.records.environments import environments_of
from hive.runtime.run.execute import run_inline

if TYPE_CHECKING:
    from conftest import House

    from hive.envs import Failure

pytestmark = pytest.mark.full(
    reason="sixteen processes; tests/envs/test_process_vector.py has two, and no run", rotates=True
)

ENVS, ROLLOUT, ROWS = 16, 16, 1600
FAILING = 5  # the index of the environment that fails
STEP_LIMIT_S = 1.0
FIELDS = ("constructions", "episodes", "steps", "reset_ns", "failed_ns")  # the numbers in a file of counts
MOST_OUTPUT = 20 << 20  # bytes of the output of an environment, of which half are kept
COUNTED = """
[run]
scheme = "a2c"
name = "sixteen"
steps = {steps}
[env]
id = "counted_environments:Counted"
processes = "each"
options = {{ folder = "{folder}"{options} }}
{env}
[collection]
envs = {envs}
rollout = 16
{more}
"""


def config_of(
    house: House,
    options: str = "",
    env: str = "",
    more: str = "",
    run: str = "",
    steps: int = ENVS * ROWS,
    envs: int = ENVS,
) -> tuple[Path, Path]:
    """Return the config of a run, and the folder of its counts."""
    folder = house.folder / "counts"
    folder.mkdir()
    text = COUNTED.format(folder=folder, options=options, env=env, more=more, steps=steps, envs=envs)
    return house.config(text), folder


def counts_of(folder: Path, index: int) -> dict[str, int]:
    """Return what environment `index` has counted."""
    return dict(zip(FIELDS, np.fromfile(folder / str(index), np.int64).tolist(), strict=True))


def alone_s(slow_s: float, folder: Path) -> float:
    """Return the time that a process of this environment needs from its start to the end of its first reset, alone."""
    failures: list[Failure] = []
    options = {"folder": str(folder), "slow_s": slow_s, "index": 99}
    env = EnvConfig(id="counted_environments:Counted", processes="each", options=options)
    vector = process_vector(env, recipe_of(env), configured_spec(env), 1, Household(Watcher(failures.append)))
    try:
        begin = time.monotonic()
        vector.make_environments([EnvContext(99)])
        vector.reset([1], np.zeros((1, 4), np.float32))
        return time.monotonic() - begin
    finally:
        vector.close()


def failures_of(house: House) -> list[dict[str, Any]]:
    return [event for event in house.events("sixteen-1") if event.get("warning") == "environment failed"]


def check_nothing_left(house: House) -> None:
    """The folder that TMPDIR names has what the test has made, and no process or socket is left."""
    assert not house.processes()
    assert not house.sockets()
    assert {path.name for path in house.folder.iterdir()} == {"runs", "run.toml", "counts", f"hive-{os.getuid()}"}


@pytest.mark.parametrize(
    ("how", "cause", "env", "slow_s"),
    [
        ("raises", "RuntimeError: the wheel came off", "", 0.0),
        ("segfaults", "killed by SIGSEGV", "", 0.0),
        ("exits", "SystemExit: os._exit(7)", "", 0.0),
        ("hangs", "it took longer than 1 s (env.step_limit_s)", "", 0.0),
        ("exits", "SystemExit: os._exit(7)", "reset_limit_s = 30", 2.5),  # longer than a step may take
        ("grows", "over the limit (env.memory_limit, 0.390625 GiB)", 'memory_limit = "400 MiB"', 0.0),
        ("leaves", "killed by SIGKILL", "", 0.0),
    ],
    ids=["raises", "segfaults", "exits", "hangs", "is slow to reset", "grows", "leaves a child"],
)
def test_one_of_sixteen_fails_and_the_others_lose_no_step(
    house: House, monkeypatch: pytest.MonkeyPatch, how: str, cause: str, env: str, slow_s: float
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    options = f', how = "{how}", index = {FAILING}, slow_s = {slow_s}'
    limit_s = 60 if how == "grows" else STEP_LIMIT_S  # it is the memory that ends it, however busy the machine is
    config, folder = config_of(
        house, options, f"step_limit_s = {limit_s}\n{env}", steps=ENVS * ROWS * (3 if slow_s else 1)
    )
    done = house.hive("up", config)
    assert done.returncode == 0, done.stderr
    (failure,) = failures_of(house)
    assert (failure["environments"], failure["activity"], failure["output"]) == ([FAILING], "step", "about to fail")
    assert cause in failure["cause"]
    summary = house.ended("sixteen-1")
    assert (summary["state"], summary["exact"]) == ("finished", False)
    assert not any(summary["restarts"].values())
    check_counts(summary, folder, failed=FAILING)
    check_nothing_left(house)
    counts = counts_of(folder, FAILING)
    down_s = (counts["reset_ns"] - counts["failed_ns"]) / 1e9
    noticed_s = {"hangs": STEP_LIMIT_S, "grows": limit_s}.get(how, 0.0)
    own_s = alone_s(slow_s, folder)
    print(f"{how}: back {down_s - noticed_s:.2f} s after its failure; its start takes {own_s:.2f} s alone")
    assert down_s < noticed_s + 3 * own_s + 3.0


def check_counts(summary: dict[str, Any], folder: Path, failed: int | None) -> None:
    """Each environment was stepped once in each row, but for one while it was down."""
    counts = {index: counts_of(folder, index) for index in range(ENVS)}
    rows = {one["steps"] for index, one in counts.items() if index != failed}
    assert rows == {ROLLOUT * summary["channels"]["rollouts"]["produced"]}
    assert {one["constructions"] for index, one in counts.items() if index not in (0, failed)} == {1}
    (rows_of_each,) = rows
    lost = 0 if failed is None else rows_of_each - counts[failed]["steps"]
    # The learner counts the valid steps of the rollouts that it took.
    assert summary["env_steps"] == ENVS * ROLLOUT * summary["channels"]["rollouts"]["consumed"] - lost
    if failed is not None:
        assert counts[failed]["constructions"] == 2
        assert counts[failed]["steps"] > 200, "it has made steps since it is back"
        assert 0 < lost < rows_of_each - 200


def test_a_flood_of_output_and_a_slow_first_reset_are_no_failures(house: House) -> None:
    config, folder = config_of(
        house,
        f', how = "floods", index = {FAILING}, slow_s = 2.5',
        f"step_limit_s = {STEP_LIMIT_S}\nreset_limit_s = 60",
    )
    done = house.hive("up", config)
    assert done.returncode == 0, done.stderr
    assert failures_of(house) == []
    summary = house.ended("sixteen-1")
    assert (summary["state"], summary["exact"]) == ("finished", True)
    check_counts(summary, folder, failed=None)
    check_nothing_left(house)
    log = house.home / "sixteen-1" / "log" / f"env-{FAILING}.out"
    assert log.stat().st_size < MOST_OUTPUT


CARTPOLE = ("env.id=CartPole-v1", "env.vector=python", "collection.helpers=0", "run.steps=3000")
BARRIERS = ("collection.rollout=8", "checkpoint.every={updates=30}")
REPLAY = ("algorithm.learning_starts=500", "algorithm.replay_capacity=2000", "algorithm.batch_size=32")
MODES = {
    "a2c": (*CARTPOLE, "run.scheme=a2c", "run.seed=1", "collection.envs=6"),
    "ppo, 2 collectors": (*CARTPOLE, "run.scheme=ppo", "run.seed=2", "collection.envs=3", "collection.workers=2"),
    "dqn, priorities, n-step, 2 collectors": (
        *(*CARTPOLE, *REPLAY, "run.scheme=dqn", "run.seed=2", "collection.envs=2", "collection.workers=2"),
        *("algorithm.priority_exponent=0.6", "algorithm.n_step=3", 'algorithm.updates_per_step="1/8"'),
    ),
    "sac": (
        *(*CARTPOLE[1:], *REPLAY, "env.id=Pendulum-v1", "run.scheme=sac", "run.seed=1", "collection.envs=4"),
        *('algorithm.updates_per_step="1/8"', "run.steps=1500"),
    ),
}
SAME = ("weights_sha256", "updates", "env_steps", "episodes", "mean_return_100", "exact")


@pytest.mark.parametrize("mode", MODES)
def test_without_failures_the_bytes_are_those_of_environments_in_the_collector(
    house: House, tmp_path: Path, mode: str
) -> None:
    sets = (*MODES[mode], *BARRIERS)
    directory = RunDirectory.create(tmp_path, "inside")
    write_bytes(directory.resolved_file, render(load_config(tmp_path / "run.toml", sets, text="")).encode())
    assert run_inline(directory) == 0
    inside = json.loads(directory.summary_file.read_text())
    processes = "each" if "workers" in mode else "2"
    words = [f"--set={one}" for one in (*sets, f"env.processes={processes}")]
    done = house.hive("up", house.config(""), "--name", "apart", *words)
    assert done.returncode == 0, done.stderr
    apart = house.ended("apart-1")
    assert apart["exact"] is True
    assert {key: apart[key] for key in SAME} == {key: inside[key] for key in SAME}


def left_children(house: House) -> set[int]:
    """Return the processes that environments have left in sessions of their own."""
    found = set()
    for pid in house.processes():
        try:
            if b"os.setsid" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
        except OSError:
            continue
    return found


def test_the_successor_of_a_killed_collector_ends_what_its_environments_have_left(house: House) -> None:
    config, folder = config_of(house, ", leaves = true", steps=10**9, envs=4)
    assert house.hive("up", config, "-d").returncode == 0
    house.until_steps("sixteen-1", 200)
    before = left_children(house)
    assert len(before) >= 4
    # The new collector comes from another fork server than the old one.
    os.kill(house.ps("sixteen-1")["fork-server"]["pid"], signal.SIGKILL)
    house.until(lambda: any(e["text"] == "fork-server is back" for e in house.events("sixteen-1")))
    steps = house.ps("sixteen-1")["learner-0"]["counters"]["env_steps"]
    os.kill(house.ps("sixteen-1")["collector-0"]["pid"], signal.SIGKILL)
    house.until_steps("sixteen-1", steps + 200)
    after = left_children(house)
    assert len(after) == 4, "one of each environment: those of the killed collector are gone"
    assert not after & before
    assert all(counts_of(folder, index)["constructions"] == 2 for index in range(1, 4))
    begin = time.monotonic()
    os.kill(house.ps("sixteen-1")["supervisor"]["pid"], signal.SIGKILL)
    house.until(lambda: not house.processes() and not house.sockets(), limit_s=10.0)
    print(f"nothing is left {time.monotonic() - begin:.2f} s after the supervisor was killed")


def kill_one(house: House, run: str, killed: Sequence[int]) -> int:
    """Kill an environment process that runs, and wait until the run knows it; return its pid."""
    directory = RunDirectory(house.home / run)

    def rows() -> list[Any]:
        return [row for rows in environments_of(directory).values() for row in rows]

    house.until(lambda: any(row.state == "running" and row.pid not in killed for row in rows()))
    victim = next(row for row in rows() if row.state == "running" and row.pid not in killed)
    os.kill(victim.pid, signal.SIGKILL)
    house.until(lambda: any(row.index == victim.index and row.failures > victim.failures for row in rows()))
    pid: int = victim.pid
    return pid


def test_a_run_with_failures_resumes_exactly_from_a_later_barrier(house: House) -> None:
    more = "workers = 2\n[checkpoint]\nevery = { updates = 10 }\n"
    config, folder = config_of(house, ", step_s = 0.01", steps=12_000, envs=3, more=more)
    assert house.hive("up", config, "-d").returncode == 0
    house.until_steps("sixteen-1", 100)
    killed: list[int] = []
    for _ in range(2):
        killed.append(kill_one(house, "sixteen-1", killed))
    assert len(failures_of(house)) == 2
    directory = RunDirectory(house.home / "sixteen-1")
    after = max((int(path.name) for path in directory.checkpoints.glob("0*")), default=0)
    house.until(lambda: any(int(done.parent.name) > after for done in directory.checkpoints.glob("0*/DONE")))
    os.kill(house.ps("sixteen-1")["supervisor"]["pid"], signal.SIGKILL)
    house.until(lambda: not house.processes())
    (folder / "fast").touch()
    home, found = house.home, []
    for name in ("one", "two"):  # each is a copy of the killed run
        shutil.copytree(home, house.folder / name, symlinks=True)
        house.home, house.env["HIVE_HOME"] = house.folder / name, str(house.folder / name)
        resumed = house.hive("resume", "sixteen-1", "--exact")
        assert resumed.returncode == 0, resumed.stderr
        found.append(house.ended("sixteen-1"))
        assert not house.processes()
    assert found[0]["state"] == "finished"
    assert {key: found[0][key] for key in SAME} == {key: found[1][key] for key in SAME}
    assert found[0]["exact"] is False, "what led to the barrier cannot be repeated"


def test_a_run_ends_within_seconds_though_its_environments_hang(house: House) -> None:
    config, _ = config_of(house, f', how = "hangs", index = {FAILING}, leaves = true', "step_limit_s = 1000")
    assert house.hive("up", config, "-d").returncode == 0
    folder = house.folder / "counts"
    house.until(lambda: counts_of(folder, FAILING)["failed_ns"] > 0)
    begin = time.monotonic()
    assert house.hive("down", "--now").returncode == 0
    print(f"`hive down --now` took {time.monotonic() - begin:.2f} s")
    house.until(lambda: not house.processes() and not house.sockets(), limit_s=10.0)
