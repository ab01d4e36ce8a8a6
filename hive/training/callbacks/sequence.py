"""The learner's side of callbacks: what happened, in order, and what follows from it.

After a turn that ends a round or is evaluated, the learner makes an event of it, and waits until every callback has
answered. Then it applies the answers, in the order of `run.callbacks`, and publishes the state after the event, which
commits it: a learner that is killed before repeats the event, and takes the answers that are there already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hive.algorithms.parameters import Configured, update_parameter
from hive.config import Config, with_parameter
from hive.errors import TopologyError
from hive.plain_data import pack, read_content, write_content
from hive.runtime import Publication, Slot, SlotInlet
from hive.training.blueprint import Blueprint
from hive.training.callbacks.calling import Answer, call, checked, restore, state_of
from hive.training.callbacks.changes import Changes, first_round
from hive.training.callbacks.events import KEY, Actions
from hive.training.callbacks.messages import CallbacksState, Wanted, state_key
from hive.training.callbacks.rules import rules_of
from hive.training.callbacks.start import replaced_value, state_at_start
from hive.training.messages import EpisodesEnded, Evaluation
from hive.training.record.best_policy import chooses_none, is_same, value_of
from hive.training.resume_barriers import ResumeBarriers

KEPT_ROUNDS = 2  # whose turns a replica of the learner may still have to make (hive.training.update.replica)


@dataclass(frozen=True)
class CallbackPorts:
    """The learner's ports for callbacks; see hive.training.callbacks.messages."""

    events: Publication[Any]
    answers: SlotInlet[Any]
    state: Publication[Any]
    changes: Publication[Any]


class CallbackSequence:
    """Has callbacks and rules follow what happens in a run.

    learner: whose keys they may change. counts: returns the numbers that all events have. log: takes metrics.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        ports: CallbackPorts,
        barriers: ResumeBarriers,
        learner: Configured,
        counts: Callable[[], dict[str, float]],
        log: Callable[[Mapping[str, float]], None],
    ) -> None:
        self.config: Config = blueprint.config
        self.wanted: Wanted = blueprint.wanted
        self.ports = ports
        self.barriers = barriers
        self.learner = learner
        self.counts = counts
        self.log = log
        self.state = state_at_start(blueprint)
        self.rules = rules_of(self.config)
        self.keys: dict[str, Any] = {}  # changed keys of [algorithm] that the learner has

    @property
    def stop(self) -> str | None:
        """Why the run ends, if a callback has ended it."""
        return self.state.stop

    async def setup(self, turn: int) -> None:
        """Continue from the last event whose state was published. turn: the last committed one."""
        board = self.ports.state.board
        if board.latest >= 0:
            self.state = CallbacksState.of(read_content(board.read(board.latest)))
        elif self.state.number == 0:
            self.state.turn = self.state.evaluated = turn  # what was before this run is no event
        self._publish()
        for name, rule in self.rules.items():
            if state := self.state.states.get(name):
                restore(rule, state)
        if self.wanted.entries:
            lines = self.ports.answers.lines
            for producer in lines.producers:
                for sequence in lines.waiting(producer):
                    if sequence < self.state.number:
                        lines.retire(await self.ports.answers.claim(producer, sequence))

    def begin_round(self, number: int) -> None:
        """Use the keys of [algorithm] that hold in round `number`."""
        for name, value in Changes(self.state.changes).at(number).keys.items():
            if name not in self.keys or self.keys[name] != value:
                self.keys[name] = value
                update_parameter(self.learner, name, value)

    async def follow_round(self, turn: int, rounds: int, episodes: EpisodesEnded | None) -> None:
        """Follow the end of a round. rounds: so far. episodes: those that ended in it."""
        if turn > self.state.turn:
            if self.wanted.rounds and self.state.stop is None:
                data = {**self.counts(), "number": rounds, "episodes": _columns(episodes)}
                await self._follow("round", data, turn, rounds)
            self.state.turn = turn
        self.begin_round(rounds)

    def is_evaluated(self, turn: int) -> bool:
        """Whether the evaluation of a turn has been followed."""
        return turn <= self.state.evaluated

    async def follow_evaluation(self, evaluation: Evaluation, rounds: int) -> None:
        """Follow an evaluation of the newest turn."""
        best_by = self.config.evaluation.best_by
        value = value_of(evaluation, best_by)
        best = self.state.best
        self.state.balanced |= chooses_none(evaluation, best_by)
        self.state.chooses |= best is not None and not is_same(value, best)
        # The newest policy is as good as any while the value chooses none: a rule does not take it for a worse one.
        is_any = self.state.balanced and not self.state.chooses
        is_best = not math.isnan(value) and (best is None or value > best or is_any)
        if is_best:
            self.state.best = value
        names = ("episodes", "mean_return", "deviation", "min", "max", "mean_length", "info")
        data = {
            **self.counts(),
            **{name: getattr(evaluation, name) for name in names},
            "value": value,
            "is_best": is_best,
        }
        self.state.evaluated = evaluation.turn
        await self._follow("evaluation", data, evaluation.turn, rounds)

    async def end(self, reason: str, rounds: int) -> None:
        """Follow the end of a run that has reached its goal."""
        if self.wanted.entries:
            data = {**self.counts(), "reason": reason, "finished": True}
            await self._follow("end", data, self.state.turn, rounds)

    async def _follow(self, kind: str, data: dict[str, Any], turn: int, rounds: int) -> None:
        state = self.state
        begun = rounds + (not self.barriers.ends_round(turn))  # a change within a round follows it
        first = first_round(self.barriers, begun, self.config.gradients.max_lag)
        answers = self._of_rules(kind, data)
        slots = await self._ask(kind, data)
        for producer, slot in slots:
            answer = self._read(slot)
            answers.append((state_key(producer, self.wanted.entries[producer]), answer))
        changes = Changes(state.changes)
        for name, answer in answers:
            if answer.state:
                state.states[name] = answer.state
            self.log(answer.log)
            state.stop = state.stop or answer.stop
            for change, key, value in answer.changes:
                changes.add(first, change, key, value)
                self._note_replaced(change, key)
        changes.forget_before(rounds - KEPT_ROUNDS - self.config.gradients.max_lag)
        state.changes = [list(one) for one in changes.changes]
        state.number += 1
        if kind == "round":
            state.turn = turn
        self._publish()
        for _, slot in slots:  # after the state, which is the commit
            self.ports.answers.retire(slot)

    def _note_replaced(self, kind: str, name: str) -> None:
        """Store the configured value that a change replaces, also one of `hive set`."""
        algorithm = self.learner.config
        if kind != KEY or name not in self.keys or with_parameter(algorithm, name, self.keys[name]) != algorithm:
            self.state.configured[f"{kind} {name}"] = replaced_value(kind, name, self.config, algorithm)

    def _of_rules(self, kind: str, data: dict[str, Any]) -> list[tuple[str, Answer]]:
        answers = []
        for name, rule in self.rules.items():
            actions: Actions = call(rule, ("on_round", "on_evaluation"), kind, data, []) if kind != "end" else Actions()
            changes = checked(actions, self.config)
            answers.append((name, Answer(actions.stop, actions.log, changes, state_of(rule)[0])))
        return answers

    async def _ask(self, kind: str, data: dict[str, Any]) -> list[tuple[int, Slot]]:
        """Send an event to all callbacks, unless a predecessor has, and wait for their answers."""
        if not self.wanted.entries:
            return []
        number, board = self.state.number, self.ports.events.board
        if board.latest < number:
            content = pack({"kind": kind, "data": {**data, "event": number}, "states": self.state.states})
            write_content(content, board.begin())
            board.publish(number)
        return [
            (producer, await self.ports.answers.claim(producer, number)) for producer in self.ports.answers.producers
        ]

    def _read(self, slot: Slot) -> Answer:
        try:
            return Answer.of(read_content(slot.arrays["content"]))
        except (ValueError, TypeError) as error:
            raise TopologyError(f"the answer of a callback cannot be read: {error}") from None

    def _publish(self) -> None:
        """Publish the state and its changes. Collectors must see the changes before the next behaviour policy."""
        if self.ports.changes.connected:
            board, content = self.ports.changes.board, Changes(self.state.changes).packed()
            if board.latest < 0 or read_content(board.read(board.latest)) != content:
                write_content(content, board.begin())
                board.publish(board.latest + 1)
        board = self.ports.state.board
        if board.latest < self.state.number:
            write_content(self.state.packed(), board.begin())
            board.publish(self.state.number)


def _columns(episodes: EpisodesEnded | None) -> dict[str, Any] | None:
    """Return the columns of episodes that an event has."""
    if episodes is None:
        return None
    return {name: getattr(episodes, name) for name in ("returns", "lengths", "columns", "infos")}
