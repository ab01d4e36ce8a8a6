"""Status pages: where the time goes, what a reader sees, limits, restarts, and reading a dead process."""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np
import pytest

from hive import _native
from hive.runtime.memory.segments import Bytes, Segment
from hive.runtime.memory.status import BUSY, PAGE_BYTES, RUNTIME, WAIT_IN, WAIT_OUT, ActorStatus, Status, read_status

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def memory() -> Bytes:
    segment = Segment.create("status", 2 * PAGE_BYTES)
    segment.close()
    return segment.memory


@pytest.fixture
def pages(memory: Bytes) -> _native.Status:
    return _native.Status(memory)


def actor(pages: _native.Status, incarnation: int = 0) -> Status:
    return Status(pages.page(1), "collector-3", 4127, incarnation)


def test_an_unused_page_is_empty(pages: _native.Status) -> None:
    page = read_status(pages, 0)
    assert (page.name, page.pid, page.phase, page.progress, page.doing_s) == ("", 0, "", 0, 0.0)
    assert page.share(BUSY) == 0.0
    assert page.kind == RUNTIME
    assert not page.spent_ns
    assert not page.counters


def test_a_page_shows_the_actor_its_phase_and_the_time(pages: _native.Status) -> None:
    status = actor(pages, incarnation=2)
    stepping = status.phase("step environments")
    assert status.phase("step environments") == stepping
    before = read_status(pages, 1)
    status.enter(stepping)
    status.show_version(17, 1)
    page = read_status(pages, 1)
    assert (page.name, page.pid, page.incarnation) == ("collector-3", 4127, 2)
    assert (before.phase, page.phase) == ("runtime", "step environments")
    assert (before.kind, page.kind) == (RUNTIME, BUSY)
    assert page.progress == before.progress + 1
    assert (page.version, page.lag) == (17, 1)
    assert before.since_ns < page.since_ns <= page.now_ns
    assert page.doing_s == (page.now_ns - page.since_ns) / 1e9
    assert read_status(pages, 0).name == ""


def test_time_goes_to_the_phase_that_it_was_spent_in(pages: _native.Status) -> None:
    status = actor(pages)
    phases = [status.phase("work"), status.phase("in", WAIT_IN), status.phase("out", WAIT_OUT)]
    starts = []
    for phase in [*phases, status.runtime]:
        status.enter(phase)
        starts.append(read_status(pages, 1).since_ns)
    page = read_status(pages, 1)
    for name, kind, begin, end in zip(["work", "in", "out"], range(3), starts, starts[1:], strict=False):
        assert page.spent_ns[name] == (kind, end - begin)
    assert page.spent_ns["runtime"][1] >= page.now_ns - starts[-1]  # the phase that is still going on counts
    assert sum(page.share(kind) for kind in (BUSY, WAIT_IN, WAIT_OUT, RUNTIME)) == pytest.approx(1.0)
    assert page.share(WAIT_IN) > 0.0


def test_shares_are_of_all_the_time() -> None:
    spent = {"step": (BUSY, 600), "act": (BUSY, 200), "wait": (WAIT_IN, 150), "runtime": (RUNTIME, 50)}
    page = ActorStatus("a", 1, 0, "wait", 10**9, 0, 3 * 10**9, 4, 0, 0, spent, {})
    assert [page.share(kind) for kind in (BUSY, WAIT_IN, WAIT_OUT, RUNTIME)] == [0.8, 0.15, 0.0, 0.05]
    assert (page.kind, page.doing_s) == (WAIT_IN, 2.0)


@pytest.mark.parametrize(
    ("pulse", "still"), [(0, 2.0), (10**9 // 2, 2.0), (10**9 * 5 // 2, 0.5), (3 * 10**9, 0.0), (4 * 10**9, 0.0)]
)
def test_one_whose_event_loop_runs_is_not_still(pulse: int, still: float) -> None:
    page = ActorStatus("a", 1, 0, "work", 10**9, pulse, 3 * 10**9, 4, 0, 0, {"work": (BUSY, 10)}, {})
    assert page.still_s == still


def test_the_pulse_is_of_this_incarnation(pages: _native.Status) -> None:
    status = actor(pages)
    assert read_status(pages, 1).pulse_ns == 0
    status.page.pulse()
    page = read_status(pages, 1)
    assert 0 < page.pulse_ns <= page.now_ns
    assert actor(pages) is not status
    assert read_status(pages, 1).pulse_ns == 0


def test_counters(pages: _native.Status) -> None:
    status = actor(pages)
    steps = status.counter("steps")
    assert status.counter("steps") == steps
    status.add(steps, 2)
    status.add(steps, 0.5)
    status.set(status.counter("return"), -7.25)
    status.count("restarts")
    assert status.get(steps) == 2.5
    assert read_status(pages, 1).counters == {"steps": 2.5, "return": -7.25, "restarts": 1.0}


def test_a_restart_goes_on_with_times_and_counters(pages: _native.Status) -> None:
    status = actor(pages)
    working = status.phase("work")
    status.count("steps", 10)
    status.enter(working)
    status.enter(status.runtime)
    spent = read_status(pages, 1).spent_ns["work"]
    status.enter(working)  # it dies at work: nobody knows for how long, so the time is not counted
    status = actor(pages, incarnation=1)
    page = read_status(pages, 1)
    assert (page.incarnation, page.phase, page.counters) == (1, "runtime", {"steps": 10.0})
    assert page.spent_ns["work"] == spent
    assert status.phase("work") == working


def test_limits_are_named(pages: _native.Status) -> None:
    status = actor(pages)
    for i in range(31):
        status.phase(f"phase {i}")
    for i in range(64):
        status.counter(f"counter {i}")
    assert len(read_status(pages, 1).spent_ns) == 32
    assert len(read_status(pages, 1).counters) == 64
    for call, message in (
        (lambda: status.phase("one more"), "at most 32 phases"),
        (lambda: status.counter("one more"), "at most 64 counters"),
        (lambda: status.phase("p" * 24), "phase name `p+` must have 1 to 23 bytes"),
        (lambda: status.counter(""), "counter name `` must have 1 to 31 bytes"),
        (lambda: status.phase("odd", 4), "a phase is busy"),
        (lambda: Status(pages.page(0), "n" * 48, 1, 0), "longer than 47 bytes"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for index in (-1, 64):
        for access in (status.get, lambda i: status.add(i, 1), lambda i: status.set(i, 1)):
            with pytest.raises(IndexError):
                access(index)
    for index in (-1, 32):
        with pytest.raises(IndexError):
            status.enter(index)
    for index in (-1, 2):
        with pytest.raises(IndexError):
            read_status(pages, index)


def test_names_may_fill_their_room(pages: _native.Status) -> None:
    status = Status(pages.page(0), "n" * 47, 1, 0)
    status.enter(status.phase("p" * 23))
    status.count("c" * 31)
    page = read_status(pages, 0)
    assert (page.name, page.phase, list(page.counters)) == ("n" * 47, "p" * 23, ["c" * 31])


def test_memory_of_another_size_or_alignment_is_refused(memory: Bytes) -> None:
    for wrong in (memory[: PAGE_BYTES - 64], memory[1 : PAGE_BYTES + 1], memory.view(np.float32)):
        with pytest.raises(ValueError, match="memory"):
            _native.Status(wrong)  # type: ignore[arg-type]
    assert _native.Status(memory[PAGE_BYTES:]).pages == 1


def test_the_page_of_a_killed_process_shows_its_last_phase(pages: _native.Status) -> None:
    pid = os.fork()
    if pid == 0:
        status = Status(pages.page(1), "learner-0", os.getpid(), 5)
        status.page.state = 3
        status.count("updates", 12)
        status.enter(status.phase("backward"))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    page = read_status(pages, 1)
    assert (page.name, page.pid, page.incarnation, page.phase) == ("learner-0", pid, 5, "backward")
    assert page.counters == {"updates": 12.0}
    assert pages.page(1).state == 3
    assert page.spent_ns["backward"][1] > 0


def test_a_page_keeps_the_memory_alive() -> None:
    segment = Segment.create("page", PAGE_BYTES)
    segment.close()
    page = _native.Status(segment.memory).page(0)
    del segment
    Status(page, "alone", 1, 0).count("steps", 4)
    assert page.get(page.counter("steps")) == 4.0


def test_a_block_shows_its_phase_and_then_that_of_the_block_around_it(pages: _native.Status) -> None:
    status = actor(pages)
    with status("curiosity"):
        assert read_status(pages, 1).phase == "curiosity"
        assert read_status(pages, 1).kind == BUSY
        with suppress(ZeroDivisionError), status("wait a file", WAIT_IN):
            assert (read_status(pages, 1).phase, read_status(pages, 1).kind) == ("wait a file", WAIT_IN)
            raise ZeroDivisionError
        assert read_status(pages, 1).phase == "curiosity"
    assert read_status(pages, 1).phase == "runtime"
    with pytest.raises(ValueError, match="23 bytes"), status("x" * 24):
        pass
    assert read_status(pages, 1).phase == "runtime"
