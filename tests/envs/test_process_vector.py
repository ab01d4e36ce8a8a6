"""Environments in processes of their own: the same bytes as without, and seams where one fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing_environments import GROWTH
from simulation.environments import LIMITS, World, run

from hive.config import EnvConfig
from hive.envs import EnvContext, Failure, Household, ProcessVector, StepRow, Watcher, configured_spec, process_vector
from hive.envs.configured import configured_vector, recipe_of
from hive.envs.processes.ending import MARK, end_processes, new_mark, resident_bytes
from hive.envs.processes.environment_process import execute
from hive.envs.processes.output import Output
from hive.envs.processes.supervised import DELAY_S, MAX_DELAY_S, SAME
from hive.envs.random_actions import RandomActions
from hive.errors import EnvironmentFailed
from hive.runtime.process.user_code.companion import state_of

FAILING = "failing_environments:Failing"
FIELDS = (
    "observations",
    "rewards",
    "terminated",
    "truncated",
    "valid",
    "episode_returns",
    "episode_lengths",
    "final_index",
)


def rows_of(vector: Any, seeds: list[int], steps: int) -> list[Any]:
    """Step a vector with random actions, and return copies of all that it writes."""
    row = StepRow.allocate(vector.observation, vector.count)
    vector.reset(seeds, row.observations)
    act, found = RandomActions(vector.action, None, 0), [row.observations.copy()]
    for _ in range(steps):
        row.finals.count = 0
        vector.step(act(row.observations), row)
        found += [getattr(row, name).copy() for name in FIELDS]
        found.append(row.finals.observations[: row.finals.count].copy())
    return found


@pytest.mark.rotates
@pytest.mark.parametrize("processes", ["each", "2"])
def test_rows_are_those_of_the_same_environments_in_one_process(processes: str) -> None:
    env = EnvConfig(id="CartPole-v1", vector="python", options={"max_episode_steps": 15})
    contexts = [EnvContext(number, seed=number) for number in range(3)]
    apart, together = (configured_vector(one, 3, contexts=contexts) for one in (replace(env, processes=processes), env))
    try:
        assert isinstance(apart, ProcessVector)
        assert len(apart.units) == (3 if processes == "each" else 2)
        pairs = zip(rows_of(apart, [5, 6, 7], 40), rows_of(together, [5, 6, 7], 40), strict=True)
        assert all(np.array_equal(one, other) for one, other in pairs)
    finally:
        apart.close()


def test_a_process_imports_neither_torch_nor_an_event_loop_nor_the_config() -> None:
    code = "import sys, hive.envs.processes.serving; print([m for m in sys.argv[1].split() if m in sys.modules])"
    modules = "torch zmq asyncio hive.config.schema hive.experience"
    printed = subprocess.run(
        [sys.executable, "-P", "-c", code, modules], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "[]"


def test_threads_of_its_libraries_sleep_between_their_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    assert policy() == {b"OMP_WAIT_POLICY=PASSIVE"}
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert policy() == {b"OMP_WAIT_POLICY=ACTIVE"}, "the user's own"


def policy() -> set[bytes]:
    """How threads of OpenMP wait in an environment process, which is killed at once."""
    output = Output(None)
    process, end = execute({}, [], output, new_mark(0, 0))
    try:
        while not (environment := Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")[:-1]):
            pass  # it is being executed
    finally:
        process.kill()
        process.wait()
        os.close(end)
        output.close()
    return {line for line in environment if line.startswith(b"OMP_WAIT")}


class Run:
    """Two environments in processes, of which number 1 fails; steps until it is back and has made some steps."""

    def __init__(self, how: str, **env: Any) -> None:
        options = {"how": how, **env.pop("options", {})}
        self.failures: list[Failure] = []
        self.env = EnvConfig(id=FAILING, processes="each", options=options, **env)
        self.spec = configured_spec(self.env)
        household = Household(Watcher(self.failures.append))
        self.vector = process_vector(self.env, recipe_of(self.env), self.spec, 2, household)
        self.rows: list[StepRow] = []

    def until_back(self) -> list[tuple[int, ...]]:
        """Return what environment 1 observed in each row, with whether the row is valid."""
        self.vector.make_environments([EnvContext(0), EnvContext(1)])
        first = np.zeros((2, 3), np.float32)
        self.vector.reset([0, 1], first)
        while len(self.rows) < 5 or not self.rows[-1].observations[1, 1:].all():
            row = StepRow.allocate(self.spec.observation, 2)
            self.vector.step(np.zeros(2, np.int64), row)
            self.rows.append(row)
        return [(*map(int, row.observations[1]), int(row.valid[1])) for row in self.rows]


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    made: list[Run] = []
    yield made
    for one in made:
        pids = [pid for unit in one.vector.units for pid in unit.stepper.pids()]
        one.vector.close()
        assert all(state_of(pid) in ("", "Z") for pid in pids)


def check_seam(seen: list[tuple[int, ...]], run: Run) -> None:
    """Environment 1 fails in step 3, has rows that are not valid until its reset, and environment 0 loses none."""
    assert seen[:2] == [(1, 0, 1, 1), (1, 0, 2, 1)]
    seam = [one for one in seen if not one[-1]]
    assert seam[:-1] == [(1, 0, 2, 0)] * (len(seam) - 1)
    assert seam[-1] == (1, 1, 0, 0)
    assert seen[-1] == (1, 1, 1, 1)
    assert [tuple(row.observations[0]) for row in run.rows] == [(0, 0, number + 1) for number in range(len(run.rows))]
    assert all(row.valid[0] for row in run.rows)


FULL = pytest.mark.full(reason="the others are alike", rotates=True)


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("segfault", "failing_environments.py:"),
        pytest.param("raise an error", "RuntimeError: the wheel came off", marks=FULL),
        pytest.param("exit", "exited with code 7", marks=FULL),
        pytest.param("stop", "SIGSTOP", marks=FULL),
        pytest.param("hang", "it took longer than 0.3 s (env.step_limit_s)", marks=FULL),
        pytest.param("return nan", "returned an observation with nan", marks=FULL),
        pytest.param("grow", "over the limit (env.memory_limit, 0.195312 GiB)", marks=FULL),
    ],
)
def test_one_that_fails_comes_back_and_its_neighbour_loses_no_step(how: str, cause: str, runs: list[Run]) -> None:
    limit = {"step_limit_s": 0.3} if how == "hang" else {"memory_limit": "200 MiB"} if how == "grow" else {}
    assert GROWTH > 200 << 20
    run = Run(how, **limit)
    runs.append(run)
    check_seam(run.until_back(), run)
    (failure,) = run.failures
    assert cause in failure.cause
    assert (list(failure.indices), failure.activity, failure.output) == ([1], "step", f"about to {how}")


def test_one_that_raises_closes_its_environments_before_it_comes_back(runs: list[Run], tmp_path: Path) -> None:
    """Each process has a group and a folder for temporary files of its own, which is gone with it."""
    run = Run("raise an error", options={"closed": str(tmp_path)})
    runs.append(run)
    check_seam(run.until_back(), run)
    group, folder = (tmp_path / "1-0").read_text().split()
    assert group == "0"
    assert Path(folder).name.startswith("hive-env-")
    assert not Path(folder).exists()


def test_one_whose_step_ends_while_it_is_waited_for_closes_its_environments(runs: list[Run], tmp_path: Path) -> None:
    word = tmp_path / "word"
    run = Run("wait for a word", options={"closed": str(tmp_path), "path": str(word), "at": 1})
    runs.append(run)
    run.vector.make_environments([EnvContext(0), EnvContext(1)])
    run.vector.reset([0, 1], np.zeros((2, 3), np.float32))
    run.vector.units[1].step()
    run.vector.meanwhile = lambda order: word.touch()  # type: ignore[method-assign]
    run.vector.close()
    assert not run.failures
    assert (tmp_path / "1-0").exists()


def test_a_first_reset_that_always_raises_the_same_is_not_tried_for_ever(runs: list[Run]) -> None:
    run = Run("always raise an error", options={"at": 0})
    runs.append(run)
    with pytest.raises(EnvironmentFailed, match="the wheel came off"):
        run.until_back()
    assert SAME <= len(run.failures) < 10


def test_pages_that_processes_share_are_counted_once() -> None:
    shared = 64 << 20
    code = (
        f"import os, sys; held = bytearray({shared}); held[::4096] = bytes(len(held[::4096])); os.fork(); os.fork(); "
    )
    code += "print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(4):
            process.stdout.readline()
        assert shared < resident_bytes(process.pid) < 2 * shared
        process.communicate()


def test_a_signal_to_the_group_of_a_simulator_spares_the_process_of_its_environment() -> None:
    code = """if True:
        import os, signal, subprocess
        from hive.runtime.process.user_code.user_exits import raise_on_exit
        raise_on_exit()
        child = subprocess.Popen(["sleep", "600"])
        os.killpg(os.getpgid(child.pid), signal.SIGKILL)
        print(child.wait())
    """
    done = subprocess.run([sys.executable, "-P", "-c", code], process_group=0, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{-signal.SIGKILL}\n")


@FULL
def test_one_that_is_stopped_while_it_starts_again_is_noticed_though_its_neighbour_goes_on(runs: list[Run]) -> None:
    run = Run("exit")
    runs.append(run)
    run.vector.make_environments([EnvContext(0), EnvContext(1)])
    run.vector.reset([0, 1], np.zeros((2, 3), np.float32))
    row = StepRow.allocate(run.spec.observation, 2)
    while not run.failures:
        row.finals.count = 0
        run.vector.step(np.zeros(2, np.int64), row)
    os.kill(run.vector.units[1].stepper.pids()[0], signal.SIGSTOP)
    while row.observations[1, 1] < 2 or not row.valid[1]:
        row.finals.count = 0
        run.vector.step(np.zeros(2, np.int64), row)
    assert [failure.activity for failure in run.failures] == ["step", "start"]
    assert "SIGSTOP" in run.failures[1].cause


@FULL
def test_a_process_that_it_has_left_in_a_session_of_its_own_is_gone_before_it_comes_back(
    runs: list[Run], tmp_path: Path
) -> None:
    path = tmp_path / "pid"
    run = Run("leave a process", options={"path": str(path)})
    runs.append(run)
    check_seam(run.until_back(), run)
    assert state_of(int(path.read_text())) in ("", "Z")


def test_the_number_of_a_process_that_was_reaped_is_another_process() -> None:
    mark, sleep = new_mark(0, 0), ["sleep", "600"]
    leave = f"import subprocess; print(subprocess.Popen({sleep}, start_new_session=True).pid)"
    command, variables = [sys.executable, "-P", "-c", leave], {**os.environ, MARK: mark}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE) as lost, subprocess.Popen(sleep) as bystander:
        assert lost.stdout is not None
        left = int(lost.stdout.readline())
        lost.wait()
        lost.pid = bystander.pid  # the kernel gives a number again that was reaped
        end_processes(lost, mark)
        assert (state_of(left) in ("", "Z"), bystander.poll()) == (True, None)
        bystander.kill()


@FULL
def test_a_flood_of_output_is_no_failure(runs: list[Run]) -> None:
    run = Run("flood")
    runs.append(run)
    run.vector.make_environments([EnvContext(0), EnvContext(1)])
    assert all(row[1, 2] == number for number, row in enumerate(rows_of(run.vector, [0, 1], 5)[1::9], start=1))
    assert not run.failures


@FULL
def test_a_slow_first_reset_is_waited_for_and_a_slow_reset_within_a_step_has_the_limit_of_resets(
    runs: list[Run],
) -> None:
    run = Run("hang", options={"slow_s": 1.0, "at": 0}, reset_limit_s=1.5, step_limit_s=0.3)
    runs.append(run)
    run.vector.make_environments([EnvContext(0), EnvContext(1)])
    run.vector.reset([0, 1], np.zeros((2, 3), np.float32))
    (failure,) = run.failures
    assert (failure.activity, failure.cause) == ("reset", "it took longer than 1.5 s (env.reset_limit_s)")


def test_other_spaces_than_those_of_the_run_are_a_permanent_failure(runs: list[Run]) -> None:
    run = Run("", on_failure="end")
    runs.append(run)
    spec = replace(run.spec, observation=replace(run.spec.observation, shape=(4,)))
    run.vector.close()
    run.vector = process_vector(run.env, recipe_of(run.env), spec, 2, Household(Watcher(run.failures.append)))
    with pytest.raises(EnvironmentFailed, match=r"differ in shape: \(4,\) and \(3,\)") as raised:
        run.vector.make_environments([EnvContext(0), EnvContext(1)])
    assert raised.value.permanent
    assert len(run.failures) < 5, "it is not tried ten times"


# --- in virtual time


@pytest.mark.parametrize(
    "seeds",
    [range(20), pytest.param(range(20, 1000), marks=pytest.mark.full(reason="twenty show the same", rotates=True))],
)
def test_whatever_fails_neighbours_lose_no_step_and_each_failure_is_told(seeds: range) -> None:
    for seed in seeds:
        assert run(seed).wrong == [], f"seed {seed}"


def failing(limits: Any, **more: Any) -> World:
    """A world without failures, which the test makes."""
    return World(1, chance=0.0, limits=limits, **more)


def recover(world: World) -> float:
    """Step until an environment has failed and all are back; return the seconds that it took."""
    begin, step_s = world.time.now, 0.1
    world.collect(1)
    while any(unit.state != "running" for unit in world.vector.units):
        world.time.sleep(step_s)
        world.collect(1)
    world.collect(2)
    return (world.time.now - begin) / 1e9


def test_one_failure_more_than_allowed_ends_the_run() -> None:
    world = failing(replace(LIMITS, restarts=2))
    world.steppers[0].doomed = 3
    with pytest.raises(EnvironmentFailed, match="it is not started again") as raised:
        recover(world)
    assert raised.value.permanent
    assert [failure.for_good for failure in world.failures] == [False, False, True]


def test_or_it_is_left_out_and_the_others_go_on() -> None:
    world = failing(replace(LIMITS, restarts=0, leaves_out=True))
    world.steppers[0].doomed = 1
    world.collect(50)
    assert len(world.steppers) > 1
    assert [stepper.alive for stepper in world.steppers] == [False, *[True] * (len(world.steppers) - 1)]
    assert world.wrong == []
    assert world.vector.rows()[0].state == "left out"


def test_failures_are_forgotten_after_the_window() -> None:
    world = failing(replace(LIMITS, restarts=1, window_s=100.0))
    for _ in range(3):
        world.steppers[0].doomed = 1
        recover(world)
        world.time.sleep(101.0)
    assert [failure.number for failure in world.failures] == [1, 1, 1]


def test_starts_in_vain_come_later_and_later() -> None:
    world = failing(LIMITS)
    world.steppers[0].doomed = 9
    waited_s = recover(world)
    delays = [min(DELAY_S * 2**number, MAX_DELAY_S) for number in range(8)]
    assert sum(delays) < waited_s < sum(delays) + 60.0
    assert world.wrong == []


def test_all_of_them_left_out_end_the_run() -> None:
    world = failing(replace(LIMITS, restarts=0, leaves_out=True))
    for number in range(len(world.steppers)):
        world.steppers[number].doomed = 1
    with pytest.raises(EnvironmentFailed, match="all environments of this collector have failed for good"):
        world.collect(10)


def test_one_that_grows_while_its_neighbour_is_waited_for_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has answered its step, and fails before the answer is taken: its start must not be taken for it."""
    sizes = dict.fromkeys(range(9), 1)
    monkeypatch.setattr("hive.envs.processes.supervised.resident_bytes", sizes.__getitem__)
    world = failing(replace(LIMITS, memory_bytes=100))
    world.collect(1)
    last = len(world.steppers) - 1
    world.slow[0] = LIMITS.step_s * 0.9  # long enough for a look
    world.time.sleep(1.0)
    sizes[last] = 101
    world.on_wait = lambda: sizes.update({last: 1}) if world.failures else None
    recover(world)
    assert [failure.cause.split(",")[0] for failure in world.failures] == ["its processes take 0.00 GiB"]
    assert world.wrong == []


def test_what_a_process_has_left_in_its_columns_is_not_observed_once_it_is_left_out() -> None:
    world = failing(replace(LIMITS, restarts=0, leaves_out=True))
    world.collect(3)
    world.steppers[0].doomed = 1
    world.collect(1)
    seen = world.row.observations[0].copy()
    world.steppers[0].row.observations[:] = np.nan
    world.begin()
    assert np.array_equal(world.seen[0], seen)


def test_attributes_reach_those_that_are_on_their_way_back() -> None:
    world = failing(LIMITS)
    world.steppers[0].doomed = 1
    world.collect(1)
    world.vector.set_attributes({"wind": 3.0})
    recover(world)
    assert [stepper.changed for stepper in world.steppers] == [1] * len(world.steppers)
    assert world.wrong == []


def test_one_that_fails_while_its_neighbour_takes_attributes_gets_them_once_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = dict.fromkeys(range(9), 1)
    monkeypatch.setattr("hive.envs.processes.supervised.resident_bytes", sizes.__getitem__)
    world = failing(replace(LIMITS, memory_bytes=100))
    world.collect(1)
    last = len(world.steppers) - 1
    world.slow[0] = LIMITS.step_s * 0.9
    world.time.sleep(1.0)
    sizes[last] = 101
    world.on_wait = lambda: sizes.update({last: 1}) if world.failures else None
    world.vector.set_attributes({"wind": 3.0})
    recover(world)
    assert [stepper.changed for stepper in world.steppers] == [1] * len(world.steppers)
    assert (len(world.failures), world.wrong) == (1, [])
