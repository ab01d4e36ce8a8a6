"""Programs behind a socket: what hive reads from them, every way in which they fail, and their ends."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from fake_program import HELLO, Answer, FakeProgram, framed, usual
from fuzzed_programs import Fuzz
from numpy.typing import NDArray

from hive.config import load_config
from hive.envs import Discrete, StepRow, configured_spec, recipe_of
from hive.envs.context import EnvContext
from hive.envs.external.address import Address, is_connected
from hive.envs.external.described import space_of
from hive.envs.external.frames import Misbehaved
from hive.envs.external.process import Listener
from hive.envs.external.program import Program, describe_program
from hive.envs.make import differs_by_environment, make_environment
from hive.envs.processes.ending import MARK
from hive.envs.processes.supervised import Failure, Limits, Supervised
from hive.envs.recipe import Recipe
from hive.envs.spaces.actions import action_spec
from hive.envs.spaces.observation import observation_spec
from hive.errors import ConfigError, EnvironmentFailed

CLIENT = Path(__file__).parents[2] / "examples" / "simulators"
GUIDE = Path(__file__).parents[2] / "examples" / "guide"
LIMIT_S = 20.0

Serve = Callable[..., FakeProgram]


@pytest.fixture
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Makes fake programs, whose answers the given ones replace: by the kind of their request."""
    made: list[FakeProgram] = []

    def make(**answers: Any) -> FakeProgram:
        def answer(request: dict[str, Any]) -> Answer:
            own = answers.get(request["request"], {})
            own = own(request) if callable(own) else own
            if isinstance(own, dict):
                fields = {**usual(request), **own}
                return {name: value for name, value in fields.items() if value != "left out"}
            return own

        made.append(FakeProgram(tmp_path_factory.mktemp("f"), answer))
        return made[-1]

    yield make
    for one in made:
        one.close()


def program_of(
    recipe: Recipe, hello: dict[str, Any] = HELLO, plays: NDArray[np.int64] | None = None
) -> tuple[Program, StepRow]:
    """A program with the spaces of this hello, not started, and its row."""
    count = hello["count"]
    observation = observation_spec("fake", space_of(hello["observation"], "observation"))
    action = action_spec("fake", space_of(hello["action"], "action"))
    row = StepRow.allocate(observation, count, len(recipe.info))
    actions = np.zeros((count, *action.shape), action.dtype)
    return Program(recipe, row, actions, observation, action, plays=plays), row


def do(program: Program, order: str, *given: Any) -> None:
    if order == "step":
        program.actions[...], given = given[0], ()
    getattr(program, order)(*given)
    assert program.done(LIMIT_S)


def started(recipe: Recipe, plays: NDArray[np.int64] | None = None) -> tuple[Program, StepRow]:
    program, row = program_of(recipe, plays=plays)
    do(program, "start", [EnvContext(3, seed=5, incarnation=2, run="run-1")])
    return program, row


def failure_of(fake: FakeProgram, info: tuple[str, ...] = ()) -> EnvironmentFailed:
    """How a program fails that is started, reset and stepped."""
    program, _ = program_of(Recipe("fake", connect=fake.address, info=info))
    orders = ("start", [EnvContext(0)]), ("reset", [5]), ("step", np.array([2])), ("step", np.array([2]))
    try:
        for order, given in orders:
            do(program, order, given)
    except EnvironmentFailed as error:
        return error
    finally:
        program.end(0.0)
    raise AssertionError("it has not failed")


def test_a_conversation(serve: Serve) -> None:
    fake = serve()
    program, row = started(Recipe("fake", {"map": "town-{index}"}, connect=fake.address, info=("height",)))
    assert program.said is not None
    assert (program.said.name, program.said.deterministic) == ("Fake", True)
    assert (program.pids(), program.tail()) == ([], "")
    do(program, "reset", [5])
    assert row.observations.tolist() == [[1.0, 0.0]]
    do(program, "step", np.array([2]))
    assert (row.observations.tolist(), row.rewards.tolist(), row.valid.tolist()) == ([[2.0, 0.0]], [1.0], [1])
    assert np.isnan(row.infos).all()  # no episode ended
    program.close()
    program.end(LIMIT_S)
    hello, reset, step, close = fake.requests
    assert next(iter(hello)) == "version"
    assert hello == {
        "version": 1,
        "request": "hello",
        "number": 0,
        "count": 1,
        "indices": [3],
        "seeds": [5],
        "incarnation": 2,
        "run": "run-1",
        "options": [{"map": "town-3"}],
    }
    assert reset == {"request": "reset", "number": 1, "which": [0], "seeds": [5], "options": [{}]}
    assert step == {"request": "step", "number": 2, "actions": np.array([2], "<i8").tobytes()}
    assert close == {"request": "close", "number": 3}


def test_the_conversation_of_the_specification_is_what_travels(serve: Serve) -> None:
    block = (GUIDE / "simulator-protocol.md").read_text().partition("```text\n")[2].partition("```")[0]
    frames: list[str] = []
    for line in block.splitlines():
        if line[0] in "<>":
            frames.append("")
        elif line.startswith(" " * 6):
            frames[-1] += line.replace(" ", "")
    requests, answers = map(bytes.fromhex, frames[::2]), map(bytes.fromhex, frames[1::2])
    fake = serve(**dict.fromkeys(("hello", "reset", "step", "close"), lambda request: next(answers)))
    program, row = program_of(Recipe("fake", connect=fake.address))
    do(program, "start", [EnvContext(0, seed=7, run="try-1")])
    do(program, "reset", [7])
    do(program, "step", np.array([2]))
    assert (row.observations.tolist(), row.terminated.tolist()) == ([[0.25, 0.0]], [1])
    program.close()
    program.end(LIMIT_S)
    assert [framed(request) for request in fake.requests] == [*requests]


def test_an_episode_that_ends_is_followed_by_the_next_one_in_the_same_step(serve: Serve) -> None:
    fake = serve(step={"truncated": b"\1"})
    program, row = started(Recipe("fake", connect=fake.address, info=("height",)))
    do(program, "reset", [5])
    do(program, "step", np.array([0]))
    assert row.observations.tolist() == [[3.0, 0.0]]  # of the reset, request 3
    assert row.finals.observations[row.final_index[0]].tolist() == [2.0, 0.0]
    assert (row.truncated.tolist(), row.episode_lengths.tolist(), row.infos.tolist()) == ([1], [1], [[7.0]])
    assert fake.requests[3] == {"request": "reset", "number": 3, "which": [0], "seeds": None, "options": [{}]}
    assert program.doing().activity == "reset"
    program.end(0.0)


def test_a_program_that_has_played_its_episodes_is_neither_stepped_nor_reset(serve: Serve) -> None:
    nan = np.full(2, np.nan, "<f4").tobytes()
    fake, plays = serve(step={"terminated": b"\1", "observations": nan}), np.array([1, 1])
    program, row = started(Recipe("fake", connect=fake.address), plays)
    do(program, "reset", [5])
    for _ in range(2):
        do(program, "step", np.array([0]))
    assert [one["request"] for one in fake.requests] == ["hello", "reset", "step"]
    assert (row.valid.tolist(), row.terminated.tolist(), row.observations.tolist()) == ([0], [0], [[1.0, 0.0]])
    do(program, "reset", [6])
    do(program, "step", np.array([0]))
    assert row.valid.tolist() == [1]
    program.end(0.0)


def test_a_program_that_is_started_again_plays_no_more_episodes_than_before(serve: Serve) -> None:
    fake, plays = serve(step={"terminated": b"\1"}), np.array([1, 1])
    program, _ = started(Recipe("fake", connect=fake.address), plays)
    do(program, "reset", [5])
    do(program, "step", np.array([0]))
    program.end(0.0)
    do(program, "start", [EnvContext(3)])
    do(program, "reset", [5])
    for _ in range(2):
        do(program, "step", np.array([0]))
    assert [one["request"] for one in fake.requests] == ["hello", "reset", "step"] * 2
    program.end(0.0)


def test_hive_truncates_an_episode_at_the_length_that_the_program_declares(serve: Serve) -> None:
    program, row = started(Recipe("fake", connect=serve(hello={"max_episode_steps": 2}).address))
    do(program, "reset", [5])
    do(program, "step", np.array([0]))
    do(program, "step", np.array([0]))
    assert (row.truncated.tolist(), row.episode_lengths.tolist()) == ([1], [2])
    program.end(0.0)


def test_several_environments_with_a_dictionary_a_mask_and_several_kinds_of_actions(serve: Serve) -> None:
    parts = {
        "camera": {"type": "box", "dtype": "uint8", "shape": [2, 2, 3]},
        "speed": {"type": "box", "dtype": "float64", "shape": []},
        "gear": {"type": "discrete", "n": 3, "start": -1},
        "allowed": {"type": "multi_binary", "shape": [5]},
    }
    action = {
        "type": "dict",
        "parts": {"a": {"type": "discrete", "n": 2, "start": 1}, "b": {"type": "discrete", "n": 3}},
    }
    hello = {**HELLO, "count": 2, "observation": {"type": "dict", "parts": parts}, "action": action, "info": []}
    seen = {
        "camera": bytes(range(24)),
        "speed": np.array([0.5, 2.5], "<f8").tobytes(),
        "gear": np.array([-1, 1], "<i8").tobytes(),
        "allowed": bytes([1, 0, 1, 1, 1, 0, 1, 1, 1, 1]),
    }
    step = {"observations": seen, "rewards": bytes(8), "terminated": bytes(2), "truncated": bytes(2), "info": None}
    fake = serve(hello=hello, reset={"observations": seen}, step=step)
    recipe = Recipe("fake", connect=fake.address, mask="allowed")
    spec = describe_program(Recipe("fake", connect=serve(hello={**hello, "count": 1}).address, mask="allowed"), LIMIT_S)
    row = StepRow.allocate(spec.observation, 2)
    actions = np.zeros((2, *spec.action.shape), spec.action.dtype)
    program = Program(recipe, row, actions, spec.observation, spec.action)
    do(program, "start", [EnvContext(0), EnvContext(1)])
    do(program, "reset", [1, 2])
    of = {part.name: part.view(row.observations) for part in spec.observation.parts}
    assert of["camera"].ravel().tolist() == list(range(24))
    assert of["gear"].tolist() == [[1, 0, 0], [0, 0, 1]]
    assert of["speed"].tolist() == [0.5, 2.5]
    assert spec.observation.mask is not None
    assert spec.observation.mask.view(row.observations).tolist() == [[1, 0, 1, 1, 1], [0, 1, 1, 1, 1]]
    do(program, "step", np.array([[1, 2], [0, 1]]))
    assert fake.requests[-1]["actions"] == {
        "a": np.array([2, 1], "<i8").tobytes(),
        "b": np.array([2, 1], "<i8").tobytes(),
    }
    program.end(0.0)


def test_a_reset_of_several_environments_that_fails_names_all_of_them(serve: Serve) -> None:
    hello, failures = {**HELLO, "count": 2}, list[Failure]()
    program, _ = program_of(Recipe("fake", connect=serve(hello=hello, reset=lambda request: None).address), hello)
    limits = Limits(LIMIT_S, LIMIT_S, LIMIT_S)
    unit = Supervised(program, slice(0, 2), 1, limits, time.monotonic_ns, lambda *_: 0, failures.append)
    unit.start([EnvContext(4), EnvContext(5)])
    unit.seeds = [0, 1]
    while not failures:
        unit.tend(LIMIT_S)
    program.end(0.0)
    assert failures[0].what.startswith("envs 4 to 5 failed while being reset")


def _twice(request: dict[str, Any]) -> bytes:
    return framed({**usual(request), "number": request["number"]}) * 2


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "a raw length": ({"step": struct.pack("<I", 104_857_600)}, "104,857,600 bytes, at most 8,"),
    "no length": ({"reset": bytes(4)}, "sent a message of 0 bytes"),
    "garbage": ({"step": struct.pack("<I", 4) + b"\xc1\xff\x00\x01"}, "not msgpack"),
    "an extension": ({"step": framed({"x": msgpack.ExtType(1, b"x")})}, "not msgpack"),
    "a list": ({"step": framed([1])}, "a list, expected a map"),
    "numbers as keys": ({"step": framed({1: 2})}, "not msgpack"),
    "one key twice": ({"step": struct.pack("<I", 5) + b"\x82\xa1a\x01\xa1a"[:5]}, "not msgpack"),
    "the end of the connection": ({"step": lambda _: None}, "closed its connection"),
    "its own error": ({"step": {"error": "no \x1b[31mlicense\nleft"}}, "failed in step: no ?[31mlicense left"),
    "another number": ({"step": {"number": 7}}, "answered request 7, and hive had sent request 2 (step)"),
    "two answers": ({"step": _twice}, "without a request"),
    "another version": ({"hello": {"version": 2}}, "speaks version 2 of the protocol, hive speaks 1"),
    "no version": ({"hello": framed({"number": 0})}, "begins with `number`"),
    "another count": ({"hello": {"count": 2}}, "steps 2 environments, hive asked it for 1"),
    "a field of hello": ({"hello": {"colour": 1}}, "unknown field `colour`"),
    "a field of step": ({"step": {"truncatd": b"\0"}}, "unknown field `truncatd`"),
    "no rewards": ({"step": {"rewards": "left out"}}, "sent `rewards` as NoneType, expected 4 bytes of float32 [1]"),
    "too few bytes": ({"reset": {"observations": bytes(4)}}, "of 4 bytes, expected 8: float32 [1, 2]"),
    "NaN": ({"reset": {"observations": np.array([np.nan, 0], "<f4").tobytes()}}, "an observation with nan in it"),
    "infinity": ({"step": {"rewards": np.array([np.inf], "<f4").tobytes()}}, "the reward"),
    "a flag of 2": ({"step": {"terminated": b"\2"}}, "sent `terminated` with a 2, expected 0 or 1"),
    "other info": ({"step": {"info": {"depth": bytes(4)}}}, "sent `info` with `depth`"),
    "infinite info": ({"step": {"info": {"height": np.array([np.inf], "<f4").tobytes()}}}, "`info.height` with inf"),
    "other observations": (
        {"hello": {"observation": {"type": "box", "dtype": "float32", "shape": [3]}}},
        "other observations than those of the run: float32 [3], expected float32 [2]",
    ),
    "other actions": ({"hello": {"action": {"type": "discrete", "n": 4}}}, "has other actions"),
    "no space": ({"hello": {"action": None}}, "describes `action` by None, expected a map"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_program_that_lies_fails_with_its_reason(serve: Serve, lie: str) -> None:
    answers, reason = LIES[lie]
    error = failure_of(serve(**answers))
    assert reason in str(error)
    assert str(error).startswith(("`fake` ", "fake returned "))
    assert str(error).isprintable()


def test_info_that_the_program_does_not_have(serve: Serve) -> None:
    error = failure_of(serve(), info=("depth",))
    assert "no value `depth` of `info`" in str(error)
    assert error.permanent


SPACES: dict[str, tuple[Any, str]] = {
    "type": ({"type": "graph"}, "`type` = graph"),
    "dtype": ({"type": "box", "dtype": "object", "shape": [1]}, "`dtype` = object"),
    "rank": ({"type": "box", "dtype": "uint8", "shape": [1] * 9}, "at most 8 sizes"),
    "zero": ({"type": "box", "dtype": "uint8", "shape": [0]}, "integers from 1"),
    "too large": ({"type": "box", "dtype": "float64", "shape": [1 << 12, 1 << 12]}, "at most 16,777,216 bytes"),
    "NaN": ({"type": "box", "dtype": "float32", "shape": [1], "low": float("nan")}, "`low` = nan"),
    "beyond": ({"type": "box", "dtype": "uint8", "shape": [1], "high": 256}, "`high` = 256"),
    "crossed": ({"type": "box", "dtype": "uint8", "shape": [1], "low": 9, "high": 8}, "low above its high"),
    "bytes": ({"type": "box", "dtype": "float32", "shape": [2], "low": bytes(4)}, "4 bytes, expected 8"),
    "n": ({"type": "discrete", "n": 0}, "`n` = 0"),
    "bool": ({"type": "discrete", "n": True}, "`n` = True"),
    "nvec": ({"type": "multi_discrete", "nvec": []}, "1 to 4,096 integers"),
    "start": ({"type": "multi_discrete", "nvec": [2], "start": [0, 1]}, "an array of 1 integers"),
    "field": ({"type": "discrete", "n": 2, "shape": [1]}, "unknown field `shape`"),
    "name": ({"type": "dict", "parts": {"a\n": {"type": "discrete", "n": 2}}}, "printable characters"),
    "nested": ({"type": "dict", "parts": {"a": {"type": "dict", "parts": {}}}}, "no dict inside a dict"),
    "sum": (
        {"type": "dict", "parts": {n: {"type": "box", "dtype": "uint8", "shape": [1 << 23]} for n in "abc"}},
        "25,165,824 bytes",
    ),
}


@pytest.mark.parametrize("fault", SPACES)
def test_spaces_are_checked_before_they_are_made(fault: str) -> None:
    described, reason = SPACES[fault]
    with pytest.raises(Misbehaved) as failed:
        space_of(described, "observation")
    assert reason in str(failed.value)


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1:80",
        "example.org:80",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "[::1]:0012345678",
        "127.0.0.1:" + 5000 * "1",
        "unix:relative",
        "unix:/" + 107 * "a",
    ],
    ids=lambda address: address[:24],
)
def test_hive_connects_to_this_machine_only(address: str) -> None:
    with pytest.raises(ConfigError):
        Address(address)


def test_hive_waits_for_a_program_that_listens_later(serve: Serve, tmp_path: Path) -> None:
    program, _ = program_of(Recipe("fake", connect=f"unix:{tmp_path}/fake"))
    program.start([EnvContext(0)])
    assert not program.done(0.0)
    assert program.doing().activity == "start"
    late = FakeProgram(tmp_path, usual)
    assert program.done(LIMIT_S)
    program.end(0.0)
    late.close()


def test_a_connection_that_is_reset_at_once_is_a_failed_attempt(tmp_path: Path) -> None:
    program, _ = program_of(Recipe("fake", connect=f"unix:{tmp_path}/fake"))
    with socket.socket(socket.AF_UNIX) as forwarder:
        forwarder.bind(f"{tmp_path}/fake")
        forwarder.listen()
        program.start([EnvContext(0)])
        assert not program.done(0.1)
        forwarder.accept()[0].close()  # with hello unread, which resets the connection
    assert not program.done(0.1)
    (tmp_path / "fake").unlink()
    late = FakeProgram(tmp_path, usual)
    assert program.done(LIMIT_S)
    program.end(0.0)
    late.close()


def test_a_connection_that_was_reset_before_it_is_looked_at_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock = Address(f"127.0.0.1:{server.getsockname()[1]}").attempt()
        assert sock is not None
        there, _ = server.accept()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        there.close()
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # the error is told once
        assert not is_connected(sock)
        sock.close()


def test_an_address_where_nothing_listens_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match="has not answered hello within") as failed:
        describe_program(Recipe("x", connect=f"unix:{tmp_path}/x-{{index}}"), 0.03)
    assert failed.value.hint.startswith(f"a program must listen at unix:{tmp_path}/x-0 (env.connect)")


def test_a_silent_program_costs_only_the_limit_and_its_late_answer_counts(serve: Serve) -> None:
    release = threading.Event()

    def wait(request: dict[str, Any]) -> dict[str, Any]:
        release.wait(LIMIT_S)
        return {}

    program, row = started(Recipe("fake", connect=serve(reset=wait).address))
    program.reset([5])
    before_s = time.monotonic()
    assert not program.done(0.05)
    assert time.monotonic() - before_s < 1.0
    release.set()
    assert program.done(LIMIT_S)
    assert row.observations.tolist() == [[1.0, 0.0]]
    program.end(0.0)


def test_a_single_environment_with_pictures(serve: Serve) -> None:
    environment = make_environment(Recipe("fake", connect=serve(hello={"max_episode_steps": 9}).address), "rgb_array")
    assert environment.reset(seed=3)[0].tolist() == [1.0, 0.0]
    observation, reward, terminated, truncated, info = environment.step(np.int64(1))
    assert (observation.tolist(), reward, terminated, truncated, info) == (
        [2.0, 0.0],
        1.0,
        False,
        False,
        {"height": 7.0},
    )
    image: Any = environment.render()
    assert image.tolist() == [[[0, 1, 2], [3, 4, 5]]]
    environment.close()


def test_fuzzed_answers_are_read_or_refused_and_nothing_else() -> None:
    fuzz = Fuzz(seed=1)
    for _ in range(2000):
        fuzz.one()
    assert min(fuzz.outcomes[name] for name in ("read", "Misbehaved", "Closed", "EnvironmentFailed")) > 5


# ---- programs that hive starts


def script(folder: Path, text: str) -> tuple[str, ...]:
    """The command of a Python program that may import the client."""
    path = folder / "world.py"
    path.write_text(f"import sys\nsys.path[:0] = {[str(CLIENT), *sys.path]!r}\n{textwrap.dedent(text)}")
    return (sys.executable, "-P", "-S", str(path))


WORLD = """
    import os
    from hive_client import box, discrete, serve
    class World:
        observation, action, info = box([2]), discrete(3), ["height"]
        def __init__(self, index, options):
            self.index = index
            print("world", index, os.environ["HIVE_ENV_INDEX"], options, flush=True)
        def reset(self, seed, options): return [seed or 0, self.index]
        def step(self, action): return [action, 0.0], 1.0, action == 2, False, {"height": 2.0}
    serve(World)
"""


def test_a_program_that_hive_starts_and_ends(tmp_path: Path) -> None:
    recipe = Recipe("world", {"map": 1}, command=script(tmp_path, WORLD), info=("height",))
    program, row = started(recipe)
    (pid,) = program.pids()
    do(program, "reset", [5])
    assert row.observations.tolist() == [[5.0, 3.0]]
    do(program, "step", np.array([2]))
    assert (row.observations.tolist(), row.terminated.tolist(), row.infos.tolist()) == ([[0.0, 3.0]], [1], [[2.0]])
    program.renew([EnvContext(3)])
    assert program.done(0.0)
    program.close()
    program.end(LIMIT_S)
    assert not Path(f"/proc/{pid}").exists()
    assert program.tail() == "world 3 3 {'map': 1}"


def test_a_program_that_listens_and_is_started_by_hive(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s-{{index}}"
    program, row = started(Recipe("world", command=script(tmp_path, WORLD), connect=address))
    do(program, "reset", [5])
    assert row.observations.tolist() == [[5.0, 3.0]]
    program.end(0.0)


ENDS = {
    "import sys; print('no license'); sys.exit(3)": "`world` exited with status 3 before it had answered hello",
    "import os; os.kill(os.getpid(), 11)": "`world` was killed by SIGSEGV before it had answered hello",
    "import os; os.environ['HIVE_ENV_SECRET'] = 'x'\n" + textwrap.dedent(WORLD): "another secret",
}


@pytest.mark.parametrize("text", ENDS)
def test_a_program_that_ends_early_or_is_another_one(tmp_path: Path, text: str) -> None:
    program, _ = program_of(Recipe("world", command=script(tmp_path, text)))
    program.start([EnvContext(0)])
    with pytest.raises(EnvironmentFailed, match=ENDS[text]):
        program.done(LIMIT_S)
    assert program.tail() == ("no license" if "license" in text else program.tail())
    program.end(0.0)


def test_an_exit_is_noticed_by_whoever_only_looks(tmp_path: Path) -> None:
    program, _ = program_of(Recipe("world", command=script(tmp_path, "raise SystemExit(3)")))
    program.start([EnvContext(0)])
    os.waitid(os.P_PID, program.pids()[0], os.WEXITED | os.WNOWAIT)
    with pytest.raises(EnvironmentFailed, match="exited with status 3"):
        program.done(0.0)
    program.end(0.0)


def test_a_program_that_does_not_exist() -> None:
    with pytest.raises(EnvironmentFailed, match="exited with status 127") as failed:
        describe_program(Recipe("x", command=("/nowhere/simulator",)), LIMIT_S)
    assert "cannot start /nowhere/simulator: No such file" in failed.value.hint


def test_the_end_kills_also_what_is_in_a_session_of_its_own(tmp_path: Path) -> None:
    text = """
        import subprocess, time, sys
        sleep = [sys.executable, "-P", "-S", "-c", "import time; time.sleep(600)"]
        child = subprocess.Popen(sleep, start_new_session=True)
        print(child.pid, flush=True)
        time.sleep(600)
    """
    program, _ = program_of(Recipe("world", command=script(tmp_path, text)))
    program.start([EnvContext(0)])
    while not program.tail():
        assert not program.done(0.01)
    child = int(program.tail())
    assert MARK.encode() in Path(f"/proc/{child}/environ").read_bytes()
    program.end(0.0)
    assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]


def test_a_second_program_of_the_same_index_ends_alone(tmp_path: Path) -> None:
    """That of a video, beside the one of an evaluation."""
    recipe = Recipe("world", command=script(tmp_path, WORLD))
    program, row = program_of(recipe)
    do(program, "start", [EnvContext(0)])
    drawn = make_environment(recipe.at(EnvContext(0)))
    drawn.close()
    do(program, "reset", [5])
    assert row.observations.tolist() == [[5.0, 0.0]]
    program.end(0.0)
    assert differs_by_environment(recipe), "so a video has the index of its evaluator"


def test_a_socket_is_left_only_if_its_process_has_ended_in_whatever_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: gone.pid)  # of a container: no process has this number here
        living = Listener()
    killed = "import os; from hive.envs.external.process import Listener; print(Listener().address); os._exit(1)"
    left = subprocess.run(
        [sys.executable, "-P", "-c", killed], stdout=subprocess.PIPE, text=True, check=False
    ).stdout.strip()
    other = Listener()
    paths = [Path(address.removeprefix("unix:")) for address in (living.address, left, other.address)]
    assert [path.exists() for path in paths] == [True, False, True]
    living.close()
    other.close()
    assert not any(path.parent.exists() for path in paths)


def test_a_flood_of_output_is_bounded(tmp_path: Path) -> None:
    text = """
        import os, time
        for _ in range(192): os.write(1, b"x" * 65536)
        os.write(1, b"\\nlast\\n")
        time.sleep(600)
    """
    program, _ = program_of(Recipe("world", command=script(tmp_path, text)))
    program.start([EnvContext(0)])
    while not program.tail().endswith("last"):
        assert not program.done(0.01)
    while program.tail():  # it is dropped at the next look
        assert not program.done(0.05)
    program.end(0.0)


# ---- config


def test_a_program_needs_no_id_and_is_named_after_its_file() -> None:
    config = load_config("run.toml", text='[env]\ncommand = ["python", "-u", "worlds/city.py", "{index}"]\n')
    assert (config.env.id, config.run.name) == ("city", "city-ppo")
    assert recipe_of(config.env).command == ("python", "-u", "worlds/city.py", "{index}")
    assert load_config("run.toml", text='[env]\nconnect = "127.0.0.1:{index + 47000}"\n').env.id == "program"
    label = load_config("run.toml", text='[env]\nid = "City"\nconnect = "unix:/tmp/a"\n')
    assert (recipe_of(label.env).is_program, label.env.id) == (True, "City")


@pytest.mark.parametrize(
    "other", ['preset = "atari"', 'wrappers = ["FlattenObservation"]', 'vector = "native"', 'action_mask = "info"']
)
@pytest.mark.parametrize("key", ['command = ["./world"]', 'connect = "unix:/tmp/world"'])
def test_what_does_not_go_with_a_program(key: str, other: str) -> None:
    with pytest.raises(ConfigError, match="program"):
        load_config("run.toml", text=f"[env]\n{key}\n{other}\n")


def test_evaluations_in_another_environment() -> None:
    text = '[env]\ncommand = ["./city"]\n[evaluation.env]\n'
    env = load_config("run.toml", text=text + 'id = "CartPole-v1"\n').evaluation_env
    assert (env.id, env.command, env.connect) == ("CartPole-v1", (), None)
    env = load_config("run.toml", text=text + 'connect = "unix:/tmp/town"\n').evaluation_env
    assert (env.id, env.command, env.connect) == ("program", (), "unix:/tmp/town")


def test_the_spaces_of_a_config(serve: Serve) -> None:
    config = load_config("run.toml", text=f'[env]\nconnect = "{serve(hello={"deterministic": False}).address}"\n')
    spec = configured_spec(config.env)
    assert (spec.id, spec.action, spec.deterministic) == ("program", Discrete(3), False)
