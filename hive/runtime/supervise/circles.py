"""Find actors that wait for each other in a circle, because then nothing in the run will ever move again.

    a page says             so the actor waits for
    wait <channel>, in      any producer of the channel, or the writer of the board
    wait <channel>, out     any consumer of the channel, which has no room

An actor is *blocked* if it has waited for STALLED_S seconds for actors that are all blocked too, or have ended.
A busy actor, one that awaits a timer, and one that only answers calls block no one. An actor that waits in several
tasks is judged by the wait that its page shows, the latest. So blocked actors are reported first, as a warning of the
run, and the run fails only after `phase_limit_s` seconds without any movement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hive.runtime.memory.status import WAIT_IN, WAIT_OUT, ActorStatus
from hive.runtime.supervise.actions import Action, Log
from hive.runtime.supervise.ending import end
from hive.runtime.supervise.states import ActorState, RunState
from hive.runtime.supervise.supervisor_state import SupervisorState
from hive.runtime.topology.plan import Plan

EVERY = 4  # checks of the watchdog between two checks here: once a second
STALLED_S = 10.0  # wait after which an actor may count as blocked: longer than healthy waits for restarts and saves
NAME = "nothing moves"  # of the warning
ADVICE = "an actor that receives messages must send on, or end the run; `hive stack` shows what each one awaits"
EVENT = {"warning": NAME, "advice": ADVICE}


@dataclass(frozen=True)
class Wait:
    """An actor that waits, the channel, and the actors of which any could end the wait."""

    actor: int
    channel: str
    targets: tuple[int, ...]
    seconds: float


def waits(plan: Plan, states: Sequence[ActorState], statuses: Sequence[ActorStatus]) -> dict[int, Wait]:
    """Return the waits of the running actors that have lasted for STALLED_S, by actor."""
    channels = {f"wait {channel.name}"[:23]: channel for channel in plan.channels}
    found = {}
    for actor, (state, status) in enumerate(zip(states, statuses, strict=True)):
        channel = channels.get(status.phase)
        if state is ActorState.running and channel is not None and status.doing_s >= STALLED_S:
            targets = {WAIT_IN: channel.producers, WAIT_OUT: channel.consumers}.get(status.kind, ())
            if targets:
                found[actor] = Wait(actor, channel.name, targets, status.doing_s)
    return found


def blocked(plan: Plan, states: Sequence[ActorState], statuses: Sequence[ActorStatus]) -> dict[int, Wait]:
    """Return the waits that nothing can end, by actor."""
    left = waits(plan, states, statuses)
    ended = {actor for actor, state in enumerate(states) if state is ActorState.finished}
    while free := [actor for actor, wait in left.items() if not ended.union(left).issuperset(wait.targets)]:
        for actor in free:
            del left[actor]
    return left


def checked(
    state: SupervisorState,
    statuses: Sequence[ActorStatus],
    accounts: Callable[[], Mapping[str, Mapping[str, Any]]],
    steps: int,
) -> list[Action]:
    """Log when actors begin or cease to be blocked, and end the run if they stay so.

    accounts: returns those of all channels; called only if actors are blocked. steps: of the environments.
    """
    running = state.run_machine.state is RunState.running and state.pause is None and not state.ending
    states = [machine.state for machine in state.machines]
    stuck = blocked(state.plan, states, statuses) if running else {}
    if not stuck:
        was, state.stalled = state.stalled, False
        text = f"{NAME}: no longer so at {steps:,} steps"
        return [Log("recovered", text, {"warning": NAME, "steps": steps})] if was and running else []
    seconds = min(wait.seconds for wait in stuck.values())
    text = f"nothing has moved for {seconds:.0f} s: {_circle(state, stuck)}{_lost(accounts())}"
    if seconds > state.settings.phase_limit_s:
        return end(state, "failed", NAME, text, ADVICE)
    if state.stalled:
        return []
    state.stalled = True
    return [Log("warning", f"{text}; {ADVICE}", EVENT | {"cause": text, "steps": steps})]


def _circle(state: SupervisorState, stuck: Mapping[int, Wait]) -> str:
    """Describe whom a blocked actor waits for, whom that one waits for, and so on, up to the first that was named."""
    names, actor, path = [a.name for a in state.plan.actors], min(stuck), list[str]()
    seen: list[int] = []
    while actor in stuck and actor not in seen:
        seen.append(actor)
        wait = stuck[actor]
        path.append(f"{names[actor]} waits for {wait.channel}")
        actor = next((target for target in wait.targets if target in stuck), wait.targets[0])
    ending = names[actor] if actor in stuck else f"{names[actor]}, which has ended"
    return " <- ".join([*path, ending])


def _lost(accounts: Mapping[str, Mapping[str, Any]]) -> str:
    """Describe the messages that were lost when actors exited, which may be the cause."""
    lost = {
        name: sum(accounts[name]["dropped"].get(reason, 0) for reason in ("consumer_died", "process_died"))
        for name in accounts
    }
    texts = [f"{count:,} messages of {name} were lost when an actor exited" for name, count in lost.items() if count]
    return f"; {', '.join(texts)}" if texts else ""
