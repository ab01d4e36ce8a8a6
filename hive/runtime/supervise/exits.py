"""Decide what follows when a process exits: repair shared memory, notify the other actors, then restart or stop.

    exit confirmed -> memory repaired -> `Left` to the others -> crash report -> restart, or the end of the run

A crash report names the actor and the cause, its phase, its traceback or the stack where it was stuck, its transitions
and the run's last events. If the exit ends the run, the report also has the stacks of all other processes. The process
is restarted within the limits of [supervision]; a start that fails because the machine has no room is retried.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hive import errors
from hive.errors import HiveError, UsageError
from hive.runtime.actor.error_location import source_lines, user_frames
from hive.runtime.memory.status import BUSY, ActorStatus
from hive.runtime.process.processes import Exit
from hive.runtime.supervise.actions import Action, Forget, Log, Reclaim, Restart, Retire
from hive.runtime.supervise.ending import end
from hive.runtime.supervise.membership import REPEATED, START_LIMIT, FailedAt, ProcessRecord, Work
from hive.runtime.supervise.outcome import CrashReport
from hive.runtime.supervise.states import ActorEvent, ActorState, RunState
from hive.runtime.supervise.supervisor_state import SupervisorState
from hive.runtime.wire.messages import Tree
from hive.runtime.wire.protocol import Failed, Left

# Signals by which faulty native code ends its own process. Any other signal may come from outside.
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
EXIT_REPORT_S = 0.5  # wait for the last message of a process that exited by itself; it is already on its way


# --- the exit


def report_arrived(state: SupervisorState, process: ProcessRecord, how: Exit) -> bool:
    """Return whether the last message of an exited process has arrived: `Done` of its actors, or `Failed` of one."""
    return bool(process.failures) or (how.clean and set(state.actor_states(process)) == {ActorState.finished})


def is_unexpected(state: SupervisorState, process: ProcessRecord, how: Exit) -> bool:
    """Return whether this exit calls for a report: not if its actors may exit, nor after a kill to end the run."""
    return not process.given_up and not (how.clean and _may_exit(state, process))


def confirmed(state: SupervisorState, process: ProcessRecord, how: Exit) -> list[Action]:
    """Repair the memory of a process whose exit is confirmed, and announce that its actors left."""
    process.cut_short = state.ending and is_unexpected(state, process, how)
    with_run = state.ending and how.clean and _may_exit(state, process)
    return _reclaim(state, process, str(how), "run_ended" if with_run else "consumer_died")


def start_lost(state: SupervisorState, process: ProcessRecord) -> list[Action]:
    """Reclaim an incarnation that was lost together with its fork server, and prepare the next.

    It may have been forked, sent Hello and begun to work before it was killed, so it is treated like any exit.
    """
    actions = _reclaim(state, process, "its start was lost", "consumer_died")
    state.handle(process, ActorEvent.restart)
    if state.ending:
        state.handle(process, ActorEvent.stop, state.end.reason)
    return actions


def actor_done(state: SupervisorState, actor: int, process: ProcessRecord) -> list[Action]:
    """Release the slots and pins of a finished actor whose process continues with other actors.

    If all actors of the process are finished, the process exits and `confirmed` does the same.
    """
    if not process.alive or _may_exit(state, process):
        return []
    why = "run_ended" if state.ending else "consumer_died"
    return [Retire(actor, process.incarnation, why), *_left(state, actor, process, "it is done", state.ending)]


def _may_exit(state: SupervisorState, process: ProcessRecord) -> bool:
    """Return whether all its actors are finished or draining, so that an exit is expected."""
    return set(state.actor_states(process)) <= {ActorState.finished, ActorState.draining}


def _reclaim(state: SupervisorState, process: ProcessRecord, how: str, why: str) -> list[Action]:
    process.alive = False
    actions: list[Action] = [Reclaim(actor, process.incarnation, why) for actor in process.actors]
    for actor in process.actors:
        actions += _left(state, actor, process, how, why == "run_ended")
    state.handle(process, ActorEvent.died, process.why or how)
    return [*actions, Forget(process.address)]


def _left(state: SupervisorState, actor: int, process: ProcessRecord, how: str, with_run: bool) -> list[Action]:
    # While the run ends, only producers that wait for credits of this consumer still need the message.
    if state.ending and actor not in state.receiving:
        return []
    return [*state.broadcast(Left(actor, process.incarnation, how, process.taken.get(actor, ()), with_run))]


# --- its report


@dataclass(frozen=True)
class Verdict:
    """The cause of an unexpected exit, and what follows from it.

    refusal: why the process is not restarted; None if it is, "" if the error itself explains why.
    """

    process: ProcessRecord
    actor: int  # the one that failed
    name: str
    how: Exit
    what: str  # the cause as a text
    where: str
    status: ActorStatus  # page of that actor
    failed: Failed | None  # its exception
    refusal: str | None
    hint: str = ""  # ways out of what the refusal says


def suspect(process: ProcessRecord, statuses: Sequence[ActorStatus]) -> int:
    """Return the position, among the actors of a process, of the one that made it exit. `statuses`: their pages.

    It is the first that raised an exception, else the one that was at work: only one of them works at a time.
    """
    if process.failures:
        return process.actors.index(process.failures[0].actor)
    working = [n for n, status in enumerate(statuses) if status.kind == BUSY and process.owns_page(status)]
    return max(working, key=lambda n: statuses[n].since_ns, default=0)


def judged(
    state: SupervisorState,
    process: ProcessRecord,
    how: Exit,
    statuses: Sequence[ActorStatus],
    now_ns: int,
    outputs: Mapping[int, tuple[float, ...]] | None = None,
) -> Verdict:
    """Count an unexpected exit and decide whether the process is restarted.

    statuses: the pages of its actors. outputs: what each has produced since the run began (`output_of`).
    """
    failed = process.failures[0] if process.failures else None
    number = suspect(process, statuses)
    actor, status = process.actors[number], statuses[number]
    at = {a: s.position for a, s in zip(process.actors, statuses, strict=True) if s.position is not None}
    failed_at = _failed_at(process, actor, how, status, failed)
    hung_s = status.still_s if process.limit else 0.0
    process.record_exit(how, now_ns, state.settings.window_s, actor, Work(outputs or {}, at), failed_at, hung_s)
    state.exact &= state.ending  # a restart after the run's goal changes no weights
    refusal, hint = _refusal(state, process, how, failed), ""
    if refusal and refusal == process.restart_limit(state.settings):
        hint = _ways_out(process, actor)
        if refusal != REPEATED and (unfinished := process.unfinished_rollout(actor)):
            refusal = f"{refusal}; {unfinished}"
    name, what = state.plan.actors[actor].name, process.why or (_cause(failed) if failed else str(how))
    return Verdict(process, actor, name, how, what, _where(status, failed), status, failed, refusal, hint)


def _failed_at(
    process: ProcessRecord, actor: int, how: Exit, status: ActorStatus, failed: Failed | None
) -> FailedAt | None:
    """Return where an error of the process ended it; None if it was killed."""
    if failed:
        return FailedAt(actor, failed.error, source_lines(failed.traceback), status.position)
    if process.limit == START_LIMIT:
        return FailedAt(actor, process.limit, ())
    return FailedAt(actor, str(how), (status.phase,), status.position) if _is_own_fault(process, how) else None


def _where(status: ActorStatus, failed: Failed | None) -> str:
    """Return the phase in which an actor failed, as a text, and for how long it had been in it if it is known."""
    if failed:
        return f"in `{failed.doing}`"
    return f"in `{status.phase or 'start'}`" + (f" after {status.doing_s:.1f} s" if status.since_ns else "")


def _ways_out(process: ProcessRecord, actor: int) -> str:
    """Return what a user can do about a process that is not restarted any more."""
    if process.limit:
        return f"raise {process.limit} if this can take longer; its stack is in the report"
    if process.repeated:
        return ""  # the error itself shows what is to be mended
    if process.unfinished_rollout(actor):
        return (
            "for failures that happen at random, raise supervision.restarts or make rollouts shorter: "
            "collection.rollout, collection.envs"
        )
    return "for failures that happen at random, raise supervision.restarts"


def _cause(failed: Failed) -> str:
    """Return the type and text of an exception; the text alone where it names the type."""
    return failed.text if failed.text.startswith(failed.error) else f"{failed.error}: {failed.text}"


def _reason(failed: Failed) -> str:
    """Return the text of one of hive's errors, which explains itself; type and text of any other exception."""
    return failed.text if failed.error in vars(errors) else _cause(failed)


def _is_own_fault(process: ProcessRecord, how: Exit) -> bool:
    """Return whether the code of a process ended it without an exception, not a kill by hive or from outside."""
    return not process.why and (not how.signal or how.signal in CRASHES)


def _refusal(state: SupervisorState, process: ProcessRecord, how: Exit, failed: Failed | None) -> str | None:
    if state.ending:
        return "the run is ending"
    # An actor that raises during the first start would raise again; one that a signal killed may succeed.
    hopeless = state.run_machine.state is RunState.starting and not how.signal
    if hopeless or not state.can_restart or (failed and failed.permanent):
        return ""
    if not all(state.plan.actors[a].restart for a in process.actors):
        return "it was added with restart=False"
    if state.settings.strict and (failed or _is_own_fault(process, how)):
        return "supervision.strict ends the run at the first error"
    return process.restart_limit(state.settings) or None


def witnesses(state: SupervisorState, verdict: Verdict) -> list[str]:
    """Return the processes whose stacks belong into the report: all that run, if this exit ends the run."""
    ends_the_run = verdict.refusal is not None and not state.ending
    return [process.name for process in state.listening()] if ends_the_run else []


def crash_report(state: SupervisorState, verdict: Verdict, stacks: Mapping[str, str]) -> CrashReport:
    """Return the report of an exit; `stacks` are those of the witnesses."""
    status, failed = verdict.status, verdict.failed
    return CrashReport(
        actor=verdict.name,
        error=verdict.what,
        doing=f"{verdict.where} (version {status.version}, {status.progress:,} phase changes)",
        traceback=failed.traceback if failed else "",
        stack=verdict.process.stack,
        story=list(state.machines[verdict.actor].history),
        events=list(state.recent),
        stacks="\n\n".join(f"{name}\n{stack}" for name, stack in stacks.items() if stack),
    )


def reported(state: SupervisorState, verdict: Verdict, path: str) -> list[Action]:
    """Log an exit whose crash report is in `path` ("" if it could not be written), then restart or end the run."""
    process, name = verdict.process, verdict.name
    fields: dict[str, Tree] = {"actor": name, "pid": process.pid, "how": str(verdict.how)}
    fields |= {"doing": verdict.status.phase} | ({"crash": path} if path else {})
    died = f"{name} was {verdict.what}" if process.by_hand else f"{name} died {verdict.where}: {verdict.what}"
    if verdict.refusal is None:
        process.restarts += 1
        died += "" if process.by_hand else f"; restart {process.counted_exits} of {state.settings.restarts}"
        return [Log("died", died, fields), Restart(process.name, process.backoff_s)]
    if state.ending:
        return [Log("died", died, fields)]
    state.end.report = path
    failed = verdict.failed
    state.end.frames = user_frames(failed.traceback) if failed else ""
    error = f"{name} failed {verdict.where}: {_reason(failed) if failed else verdict.what}"
    error += f" ({verdict.refusal})" if verdict.refusal else ""
    hint = "; ".join(filter(None, (failed.hint if failed else "", verdict.hint)))
    ended = end(state, "failed", f"{name} failed", error, hint)
    return [Log("died", died, fields), *ended]


# --- its restart


def restart_due(state: SupervisorState, process: ProcessRecord) -> bool:
    """Return whether the process is to be started now that its delay is over: not if the run ends meanwhile."""
    if state.ending:
        return False
    state.handle(process, ActorEvent.restart)
    return True


def not_started(state: SupervisorState, process: ProcessRecord, error: HiveError, now_ns: int) -> list[Action]:
    """Try again after a failed restart, until the restart limit is exceeded."""
    process.alive = False
    state.handle(process, ActorEvent.died, str(error))
    process.record_exit(Exit(code=1), now_ns, state.settings.window_s, process.actors[0])
    refusal = process.restart_limit(state.settings)
    text = f"{error}; {refusal}" if refusal else str(error)
    logged = Log("not started", text, {"process": process.name})
    if not refusal:
        return [logged, Restart(process.name, process.backoff_s)]
    name = state.plan.actors[process.actors[0]].name
    return [logged, *end(state, "failed", f"{name} failed", f"{error} ({refusal})", error.hint)]


def kill_on_request(state: SupervisorState, actor: int, *, by_hand: bool) -> list[Action]:
    """Kill the process of an actor, which is then restarted; with `by_hand` it does not count as a failure.

    Raises UsageError if the actor is not running.
    """
    process = state.process_of(actor)
    if state.ending or not process.alive:
        raise UsageError(f"{state.plan.actors[actor].name} is not running", hint="try again when it is")
    process.by_hand = by_hand
    return [process.kill("restarted by hand" if by_hand else "killed by hand")]
