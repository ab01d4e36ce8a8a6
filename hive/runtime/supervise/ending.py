"""Decide how a run ends: which actors stop first, which save state last, which are killed, and with which outcome.

    all other actors drain -> `last` actors drain -> a `last` actor killed while saving is started again -> outcome

One deadline holds for the whole sequence, and half of what is left of it is reserved for the `last` actors. Every
problem on the way is logged as an event, but only one fails the run: a `last` actor that has not finished. Its state
was not saved, and the exit code must report that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hive.errors import HiveError
from hive.runtime.actor.error_location import user_frames
from hive.runtime.supervise.actions import Action, DropInFlight, Log, Send
from hive.runtime.supervise.membership import ProcessRecord
from hive.runtime.supervise.outcome import CrashReport, Outcome
from hive.runtime.supervise.states import ActorEvent, RunEvent
from hive.runtime.supervise.supervisor_state import StopPhase, StopSequence, SupervisorState
from hive.runtime.wire.protocol import Drain

LAST_TRIES = 3  # restarts of a `last` actor that is killed while it saves: more would fight a deliberate kill
KILL_AFTER_S = 2.0  # wait after SIGKILL before giving up on a process that ignores it (state D)
ENDS = {"finished": RunEvent.finish, "failed": RunEvent.fail}  # final event by `End.state`; any other is `stop`


# --- the reason


def end(state: SupervisorState, to: str, reason: str, error: str = "", hint: str = "") -> list[Action]:
    """Begin to end the run, with the final state `to`; only the first call has an effect."""
    if state.ending:
        return []
    state.end.state, state.end.reason, state.end.error, state.end.hint = to, reason, error, hint
    state.run_machine.handle(RunEvent.drain, reason)
    return [Log("draining", reason, {"state": to})]


def goal_reached(state: SupervisorState, results: Mapping[str, float]) -> list[Action]:
    """End the run if what its actors report has reached its goal. A built-in learner decides that itself, exactly."""
    steps, score = state.settings.goal_steps, state.settings.goal_score
    if state.plan.results_actor or state.ending:
        return []
    if score is not None and (reached := results.get("mean_return_100", -math.inf)) >= score:
        return _finished(state, f"score {reached:g} >= {score:g}")
    if steps is not None and results.get("env_steps", 0) >= steps:
        return _finished(state, f"{steps:,} steps")
    return []


def _finished(state: SupervisorState, reason: str) -> list[Action]:
    state.exact = False  # when the supervisor looks depends on time
    return end(state, "finished", reason)


def requested(state: SupervisorState, reason: str, *, at_once: bool) -> list[Action]:
    """End the run as requested from outside; `at_once` kills the actors instead of draining them. Idempotent."""
    processes = state.table.values() if at_once else ()
    kills = [process.kill(process.why or reason, given_up=True) for process in processes]
    return [*kills, *end(state, "stopped", reason)]


def supervisor_crash(state: SupervisorState, text: str, traceback: str) -> CrashReport:
    """Return the report of an exception of the supervisor itself."""
    return CrashReport("supervisor", text, "in `supervise`", traceback, events=list(state.recent))


def supervisor_failed(state: SupervisorState, text: str, path: str) -> list[Action]:
    """End the run after an exception of the supervisor: a bug, after which a restart or repair would be missing."""
    text = f"the supervisor failed: {text}"
    state.end.report = state.end.report or path
    actions = [Log("died", text, {"crash": path}), *end(state, "failed", "the supervisor failed", text)]
    state.end.state = "failed"  # also if the run was already ending for another reason
    return actions


# --- the final stop


def begin_stop(state: SupervisorState, now_s: float) -> list[Action]:
    """Begin to stop all actors: first all others, then the `last` ones, within `drain_s` seconds in all."""
    last = _last(state)
    others = [process for process in state.table.values() if process not in last]
    unfinished = [*last] if state.can_restart else []
    state.stop = StopSequence(now_s + state.settings.drain_s, [others, last], unfinished)
    return advance(state, now_s)


def advance(state: SupervisorState, now_s: float) -> list[Action]:
    """Continue the stop after an exit or with time, as far as possible; [] while it waits."""
    assert state.stop is not None
    stop = state.stop
    actions: list[Action] = []
    while stop.phase in (StopPhase.draining, StopPhase.killing):
        running = any(process.alive for process in stop.waiting)
        if running and now_s < stop.until_s:
            break
        if running and stop.phase is StopPhase.draining:
            actions += _kill_late(stop, now_s)
            continue
        for process in stop.waiting if stop.phase is StopPhase.killing else ():
            process.cut_short = True
        actions += _next(state, stop, now_s)
    return actions


def _next(state: SupervisorState, stop: StopSequence, now_s: float) -> list[Action]:
    """Begin the next part of the stop: another wave, another start of a `last` process, or its end."""
    left_s = stop.deadline_s - now_s
    if stop.waves:
        return _drain(state, stop, stop.waves.pop(0), now_s)
    while stop.unfinished:
        process = stop.unfinished[0]
        hopeless = any(failed.permanent for failed in process.failures)
        if process.cut_short and not hopeless and left_s > 0 and stop.tries < LAST_TRIES:
            return _start_again(state, stop, process, left_s)
        _give_up(stop)
    stop.phase, stop.waiting = StopPhase.over, []
    for process in _last(state):
        if process.cut_short and state.end.state in ("finished", "stopped"):  # "scaled": the next stage decides
            _fail_at_the_end(state, process)
    return [DropInFlight()]


def _drain(state: SupervisorState, stop: StopSequence, wave: Sequence[ProcessRecord], now_s: float) -> list[Action]:
    state.stop_actors(wave)
    left_s = stop.deadline_s - now_s
    limit_s = left_s / 2 if any(stop.waves) else left_s  # the other half is for the actors that save
    _wait(stop, StopPhase.draining, wave, limit_s, now_s)
    to = tuple(process.name for process in wave if process.alive)
    return [Send(to, Drain(state.end.reason))] if to else []


def _kill_late(stop: StopSequence, now_s: float) -> list[Action]:
    late = [process for process in stop.waiting if process.alive]
    actions: list[Action] = []
    for process in late:
        text = f"{process.name} did not stop within {stop.limit_s:.1f} s"
        actions.append(Log("killed", text, {"process": process.name}))
        actions.append(process.kill("it did not stop in time", given_up=True))
    _wait(stop, StopPhase.killing, late, KILL_AFTER_S, now_s)
    return actions


def _start_again(state: SupervisorState, stop: StopSequence, process: ProcessRecord, left_s: float) -> list[Action]:
    """Restart a `last` process that exited before it had saved; the supervisor answers its Hello with a Drain."""
    stop.tries += 1
    stop.phase, stop.waiting, stop.limit_s, stop.until_s = StopPhase.starting, [process], left_s, math.inf
    state.handle(process, ActorEvent.restart)
    state.handle(process, ActorEvent.stop, state.end.reason)
    text = f"{process.name} had not finished and is started again"
    return [Log("restarted", text, {"process": process.name})]


def last_started(state: SupervisorState, now_s: float) -> None:
    """Give the `last` process that was started again the time that was left before its start."""
    assert state.stop is not None
    _wait(state.stop, StopPhase.draining, state.stop.waiting, state.stop.limit_s, now_s)


def last_not_started(state: SupervisorState, error: HiveError) -> list[Action]:
    """Give up the `last` process that could not be started again."""
    assert state.stop is not None
    (process,) = state.stop.waiting
    process.alive, process.cut_short = False, True
    state.stop.phase = StopPhase.draining
    _give_up(state.stop)
    return [Log("not started", str(error), {"process": process.name})]


def _wait(
    stop: StopSequence, phase: StopPhase, processes: Sequence[ProcessRecord], limit_s: float, now_s: float
) -> None:
    stop.phase, stop.waiting, stop.limit_s, stop.until_s = phase, [*processes], limit_s, now_s + limit_s


def _give_up(stop: StopSequence) -> None:
    stop.unfinished.pop(0)
    stop.tries = 0


def _last(state: SupervisorState) -> list[ProcessRecord]:
    """Return the processes with a `last` actor."""
    return [p for p in state.table.values() if any(state.plan.actors[a].last for a in p.actors)]


# --- the outcome


def _fail_at_the_end(state: SupervisorState, process: ProcessRecord) -> None:
    """Turn the outcome into a failure: the state that this `last` process should have saved is lost."""
    failed = process.failures[0] if process.failures else None
    name = state.plan.actors[failed.actor].name if failed else process.name
    what = failed.text if failed else f"{process.why or 'it was killed'} before it had finished"
    state.end.state, state.end.error = "failed", f"{name} failed at the end: {what}"
    state.end.hint = failed.hint if failed else ""
    state.end.frames = user_frames(failed.traceback) if failed else ""
    state.end.reason = f"{name} failed at the end ({state.end.reason})"


def outcome(
    state: SupervisorState, channels: dict[str, dict[str, Any]], results: Mapping[str, float], digest: str
) -> Outcome:
    """Conclude the run and return its outcome, with the accounts, results and digest read from shared memory."""
    end = state.end
    state.run_machine.handle(ENDS.get(end.state, RunEvent.stop), end.reason)
    return Outcome(
        state=end.state,
        reason=end.reason,
        error=end.error,
        hint=end.hint,
        exact=state.exact,
        restarts={state.plan.actors[a].name: p.restarts for p in state.table.values() for a in p.actors},
        channels=channels,
        results=dict(results),
        digest=digest,
        report=end.report,
        frames=end.frames,
    )
