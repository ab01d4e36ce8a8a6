"""Computes the state of callbacks at the start of a run: that of its checkpoint, with this run's numbers of rounds.

The config of a resumed run, or of the next stage of a scaled one, may have other values than the state follows from:

    a key of [algorithm], an option of env.options     what callbacks have set in its place holds no longer
    what is evaluated, or the goal of evaluations      the best value and successive evaluations count anew
    stages of env.curriculum                           those after the first other one have not begun
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from hive.config import AlgorithmConfig, Config
from hive.config.values import digest_of
from hive.plain_data import pack, unpack
from hive.training.blueprint import Blueprint
from hive.training.callbacks.changes import Changes
from hive.training.callbacks.events import ATTRIBUTE, KEY, OPTION
from hive.training.callbacks.messages import CallbacksState
from hive.training.callbacks.rules import NONE_YET
from hive.training.record.best_policy import measure_of
from hive.training.run_start import first_round, same_rounds

EVALUATIONS, GOAL, NO_BETTER = "evaluations", "run.stop_at_evaluation", "run.stop_when_no_better"
STAGES = "env.curriculum"


def state_at_start(blueprint: Blueprint) -> CallbacksState:
    """Return the state that a run begins with.

    Rounds of another shape have other numbers. Then all changes hold from the first round of this run on.
    """
    config, state = blueprint.config, CallbacksState.resumed(blueprint.resume)
    before, now = state.configured, configured(config)
    other = {name for name in now if before.get(name, now[name]) != now[name]}  # an earlier hive stored none
    if EVALUATIONS in other:
        state.best, state.chooses, state.balanced = None, False, False
    for name in (GOAL, NO_BETTER):
        if other & {EVALUATIONS, name}:
            state.states.pop(name, None)
    if not (same := same_rounds(blueprint)):
        first = first_round(blueprint)
        state.changes = [[min(one[0], first), *one[1:]] for one in state.changes]
    undone = _take_back_stages(state, now[STAGES], same=same)
    state.changes = _changes_that_hold(state, config, undone)
    state.configured = now | {
        f"{kind} {name}": replaced_value(kind, name, config, config.algorithm) for _, kind, name, _ in state.changes
    }
    return state


def configured(config: Config) -> dict[str, Any]:
    """Return digests of what best values and rules depend on; of each stage with the names of its options."""
    return {
        EVALUATIONS: digest_of(measure_of(config, "evaluation")),
        GOAL: digest_of(config.run.stop_at_evaluation),
        STAGES: [[digest_of(stage), *stage["options"]] for stage in config.env.curriculum],
    }


def replaced_value(kind: str, name: str, config: Config, algorithm: AlgorithmConfig) -> str:
    """Return a digest of the configured value that a change replaces; "" for an attribute, which has none."""
    if kind == ATTRIBUTE:
        return ""
    return digest_of(config.env.options.get(name) if kind == OPTION else getattr(algorithm, name, None))


def _take_back_stages(state: CallbacksState, stages: list[list[str]], *, same: bool) -> set[str]:
    """Take back the stages from the first one on that the config has otherwise, and return the names of their options.

    same: whether rounds keep their numbers.
    """
    if (rule := state.states.get(STAGES)) is None:
        return set()
    attributes, before = unpack(rule)["attributes"], state.configured.get(STAGES, stages)
    kept = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, stages, strict=False))))
    undone = before[kept : attributes["stage"]]
    attributes |= {} if same else {"begins": 0}
    attributes |= {"stage": kept, "begins": 0, "episodes": NONE_YET} if undone else {}
    state.states[STAGES] = pack({"attributes": attributes, "arguments": {}})
    return {name for stage in undone for name in stage[1:]}


def _changes_that_hold(state: CallbacksState, config: Config, undone: set[str]) -> list[list[Any]]:
    """Return the changes without those of values that the config has otherwise now, and of the options `undone`.

    An option that a stage gives keeps the value of the last stage that has begun.
    """
    rule = state.states.get(STAGES)
    begun = config.env.curriculum[: unpack(rule)["attributes"]["stage"]] if rule else ()
    given = {name: value for stage in begun for name, value in stage["options"].items()}
    held, left_out = [], dict[str, Any]()
    for first, kind, key, value in state.changes:
        name = key.removeprefix("algorithm.") if kind == KEY else key  # runs of an earlier hive have the prefix
        now = replaced_value(kind, name, config, config.algorithm)
        if state.configured.get(f"{kind} {name}", now) == now and not (kind == OPTION and name in undone):
            held.append([first, kind, name, value])
        elif kind == OPTION and name in given:
            left_out[name] = given[name]
    return [*held, *([0, OPTION, name, value] for name, value in left_out.items())]


def changes_at_start(blueprint: Blueprint) -> Changes:
    """Return the changes that hold when a run begins."""
    return Changes(state_at_start(blueprint).changes)
