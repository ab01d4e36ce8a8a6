"""How the suite is spread over processes (pytest-xdist).

    pytest             the whole suite, in two to four processes; `pytest -n0` in this one
    pytest PATH ...    in this process, as ever

Live tests start whole runs, kill them and wait for what comes of it. They follow each other in one process, or in two
of four, which begin with them, because they take longest.

    pytest -m full     what the everyday tier leaves out; it loads only files in which `mark.full` occurs
    pytest --rotation=2, --rotation=all
                       which quarter runs of the tests that show again what others show; it changes with the commit
    pytest --affected  what the changes can reach that are not committed; `--affected=main`: since that revision
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

sys.path.append(str(Path(__file__).parent))  # for `simulation`; at the end, so that no folder here hides a module
from affected import NoChanges, affected, changed_since
from warm import Warm

hypothesis.settings.register_profile("hive", deadline=None)  # how long an example takes says nothing on a busy machine
hypothesis.settings.load_profile("hive")

LIVE = Path(__file__).parent / "live"
AFFECTED = pytest.StashKey[set[Path] | None]()  # the test files that --affected names; None: all
ROTATIONS = 4  # a test that shows again what others show runs for one commit in so many
MOST_PROCESSES = 4  # live tests alone take longer than all the others do in three

# What terminals and shells set, and what programs in terminals obey: a test that needs one sets it.
TERMINAL = ("COLUMNS", "LINES", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "PYTHON_COLORS", "TTY_COMPATIBLE")
NOHUP = "HIVE_TESTS_NOHUP"  # variable for the processes of xdist

for _name in TERMINAL:
    os.environ.pop(_name, None)
os.environ["TERM"] = "xterm-256color"


def _keep_bytecode() -> None:
    """Keep compiled modules where PYTHONDONTWRITEBYTECODE, which many containers set, forbids them beside the sources.

    Without them each process compiles anew what it imports, and pytest rewrites 700 files, which is 20 s.
    """
    if sys.dont_write_bytecode:
        sys.pycache_prefix = str(LIVE.parents[1] / ".pytest_cache" / "bytecode")
        sys.dont_write_bytecode = False
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _handle_ignored_signals() -> None:
    """Handle the signals that `nohup`, or `&` in a script, ignores: programs of tests would inherit that, not handlers.

    SIGHUP still does not end the tests.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN or NOHUP in os.environ:
        os.environ[NOHUP] = "1"
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_keep_bytecode()
_handle_ignored_signals()

_kill = os.kill


def _kill_one(pid: int, number: int) -> None:
    """os.kill, without groups: a process that is being started has pid 0 in a run's status, and 0 is all of us."""
    assert pid > 0, f"pid {pid} is a group of processes, to which the tests belong"
    _kill(pid, number)


os.kill = _kill_one

gc.disable()  # until the tests are collected: what is loaded stays, and looking for garbage takes a third of the time


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What `-n auto` of pyproject.toml means."""
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        config.option.dist = "no"
        return 0
    return min(MOST_PROCESSES, max(2, len(os.sched_getaffinity(0))))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutations", type=int, default=20, help="of each run, in tests/cli/test_hostile_files.py")
    parser.addoption("--mutations-seed", type=int, default=0, help="the first of their seeds")
    parser.addoption("--write", action="store_true", help="write the pages of tests/cli/test_wording.py")
    parser.addoption("--rotation", metavar="0-3|all", help="which quarter of repeating tests runs")
    parser.addoption(
        "--affected", nargs="?", const="HEAD", metavar="REVISION", help="tests that changes since it reach"
    )


def pytest_configure(config: pytest.Config) -> None:
    revision = config.getoption("--affected")
    try:
        config.stash[AFFECTED] = None if revision is None else affected(changed_since(revision))
    except (NoChanges, OSError) as error:
        raise pytest.UsageError(f"--affected asks git what has changed: {error}") from None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip files without a test of the tier, because importing all files takes longer than most tests."""
    reached = config.stash[AFFECTED]
    if reached is not None and collection_path.match("test_*.py") and collection_path not in reached:
        return True
    tier = config.option.markexpr
    if tier not in ("full", "not full") or not collection_path.match("test_*.py"):
        return None
    text = collection_path.read_text()
    has_none = "mark.full" not in text if tier == "full" else "\npytestmark = pytest.mark.full(" in text
    return True if has_none else None


def rotation(config: pytest.Config) -> str:
    """Return which tests of `rotates=True` run: a number below ROTATIONS, or "all"."""
    if (given := config.getoption("--rotation")) is not None:
        return str(given)
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=LIVE, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "0"
    return str(int(head, 16) % ROTATIONS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        terminalreporter.write_line(f"of the tests that repeat others, a quarter ran: --rotation={rotation(config)}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_out_repeating(config, items)
    live = [item for item in items if LIVE in item.path.parents]
    others = [item for item in items if LIVE not in item.path.parents]
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    # Each process begins with an equal part of the list, so that this begins the first part or the first two.
    groups = [live[0::2], live[1::2]] if workers >= MOST_PROCESSES else [live]
    items[:] = []
    for group in groups[:-1]:
        size = max((len(live) + len(others)) // workers - len(group), 0)
        items += group + others[:size]
        del others[:size]
    items += groups[-1] + others


def _leave_out_repeating(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a quarter of the tests that repeat others; of a function that repeats itself, one of its cases at least."""
    if (chosen := rotation(config)) == "all" or config.args_source is pytest.Config.ArgsSource.ARGS:
        return
    cases = Counter(_function_of(item) for item in items if _repeats(item) == "rotates")
    alone = {_function_of(item) for item in items if not _repeats(item)}
    seen = Counter[str]()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        repeats, function = _repeats(item), _function_of(item)
        turn, parts = zlib.crc32(item.nodeid.encode()), ROTATIONS
        if repeats == "rotates" and function not in alone and cases[function] > 1:
            turn, parts = zlib.crc32(function.encode()) + seen[function], min(cases[function], ROTATIONS)
            seen[function] += 1
        (left if repeats and turn % parts != int(chosen) % parts else kept).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def _repeats(item: pytest.Item) -> str:
    """Return the mark by which a test repeats others, "": it does not."""
    if (mark := item.get_closest_marker("full")) is not None:
        return "full" if mark.kwargs.get("rotates") else ""
    return "rotates" if item.get_closest_marker("rotates") else ""


def _function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def pytest_collection_finish() -> None:
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def warm() -> Iterator[Warm]:
    made = Warm(forked=False)
    yield made
    made.close()


@pytest.fixture
def cold(warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start all programs of a test as users start them, for tests of the start itself."""
    monkeypatch.setattr(warm, "enabled", False)


@pytest.fixture(scope="module", autouse=True)
def _freeze_objects() -> None:
    """Exclude what earlier modules left (modules, collected tests, reports) from the collections that many tests make.

    With it, one `gc.collect()` takes milliseconds instead of up to a second. The collection before it frees what the
    module before left in cycles: frozen, such runs would keep their descriptors open until the process ends.
    """
    gc.collect()
    gc.freeze()
