"""The warnings of hive by name: what each says about a run, and which others it explains.

A message of hive has one of three ranks. An error: the run cannot give what was asked, and nothing starts. A warning:
the result is probably wrong, and one action mends it; each has a name here and a row in examples/guide/warnings.md. A
fact: all else, for `hive check` and `hive doctor RUN`.

A run that is right has no warning. `run.accept` silences by name what its user knows better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class WarningKind:
    """What a warning means, and the names of those that follow from it, which are not shown beside it."""

    meaning: str
    explains: tuple[str, ...] = ()


WARNINGS: Mapping[str, WarningKind] = {
    "checkpoints not written": WarningKind("The disk takes no checkpoint: a crash would cost all work since the last."),
    "lines lost": WarningKind("Some lines of metrics, evaluations or episodes could not be written: curves have gaps."),
    "environment failed": WarningKind("An environment raised an error, or did not answer, and was started again."),
    "return not finite": WarningKind(
        "A return is NaN or infinite: rewards overflow, and no mean can be compared.",
        ("updates skipped", "values explain nothing", "goal not judged"),
    ),
    "updates skipped": WarningKind(
        "Gradients that are not finite were left out, so less is learned than the steps say.",
        ("values explain nothing", "return constant"),
    ),
    "given data": WarningKind(
        "The transitions of algorithm.replay_from are in other units than the environment, or do not follow each other."
    ),
    "other code": WarningKind(
        "Collectors, or parts of a run, have different files of the environment: the results are of two environments."
    ),
    "environments disturb each other": WarningKind(
        "Environments that are stepped in turn change each other's state, so none does what it does alone.",
        ("return constant", "values explain nothing"),
    ),
    "spaces change": WarningKind(
        "An environment gives itself another space while it is played; the policy keeps the form of the first one."
    ),
    "starts repeat": WarningKind(
        "Each reset without a seed begins the same episode, so training sees hardly any other."
    ),
    "resume not exact": WarningKind(
        "A resumed run made a round again that is not the same as before, so it is not the run that never stopped."
    ),
    "statistics in environments": WarningKind(
        "An environment keeps a running mean that no checkpoint has: a loaded policy sees other numbers."
    ),
    "statistics of another scale": WarningKind(
        "Observations are normalised by statistics of data in another unit, and become nearly one value.",
        ("return constant", "values explain nothing"),
    ),
    "mask not used": WarningKind(
        "The environment says which actions are allowed, and no key names it, so forbidden ones are taken."
    ),
    "agents see the same": WarningKind(
        "Agents that share a policy always see the same, so it cannot let one act otherwise than the other.",
        ("return constant",),
    ),
    "rewards counted again": WarningKind(
        "An environment whose agents act in turn does not clear an agent's rewards when it acts, so they count twice."
    ),
    "no last observations": WarningKind(
        "Agents that act in turn are truncated without a last observation, so the one of their last turn is valued."
    ),
    "rewards after the end": WarningKind(
        "Agents get rewards after their end: returns count them, but no action learns from them."
    ),
    "observations outside": WarningKind(
        "Observations lie outside of their declared space, by which hive scales them and allocates memory."
    ),
    "no episode ended": WarningKind(
        "No episode ends, so there is no return to learn from or to judge by.",
        ("goal not judged", "return constant", "values explain nothing"),
    ),
    "failures truncated": WarningKind(
        "All episodes end truncated, which means interrupted: the value of the last observation is added, and failing "
        "costs nothing.",
        ("return constant", "values explain nothing"),
    ),
    "limit terminated": WarningKind(
        "A time limit is returned as terminated, so an observation is worth less the later it comes, by chance."
    ),
    "episodes cut": WarningKind(
        "Scheduled checkpoints reset environments before the longest episodes can end.",
        ("no episode ended", "goal not judged", "return constant", "values explain nothing"),
    ),
    "rewards too large": WarningKind(
        "The values to learn are so large that learning them takes most of the updates.",
        ("values explain nothing", "updates too large"),
    ),
    "rewards too small": WarningKind(
        "The values to learn are so small that they drown in noise.", ("values explain nothing",)
    ),
    "rewards cut": WarningKind("Clipping takes so much of rare, large rewards that another behaviour pays more."),
    "updates too large": WarningKind(
        "The policy moves so far in one round that its data no longer say anything about it.",
        ("entropy gone", "deviation collapsed", "deviation exploded"),
    ),
    "return collapsed": WarningKind("The mean return fell far below its best."),
    "entropy gone": WarningKind(
        "The policy always takes the same actions, and finds nothing new.", ("return constant",)
    ),
    "deviation collapsed": WarningKind(
        "The noise of continuous actions is gone, and nothing new is found.", ("return constant",)
    ),
    "deviation exploded": WarningKind("Nearly all continuous actions are cut to their bounds."),
    "info missing": WarningKind("A value that env.info names is in no episode's last info.", ("goal not judged",)),
    "goal not judged": WarningKind("The run ended before its goal could be compared with anything."),
    "values explain nothing": WarningKind("The critic predicts no difference between states."),
    "return constant": WarningKind("Every episode ends with the same return, so that no action looks better."),
    "random beginning": WarningKind("The run begins with random actions, although it was given a policy or data."),
    "callback failed": WarningKind("A callback raised an error, or did not answer, and is called no more."),
    "sink failed": WarningKind("A destination of metrics failed; metrics.jsonl has them all."),
    "videos off": WarningKind("evaluation.videos records nothing on this machine."),
    "output dropped": WarningKind("The processes print so much that the oldest output is dropped."),
    "socket folder removed": WarningKind("Something removed the folder of the run's sockets; it was made again."),
}
"""Name of a warning -> what it means; the worst come first. A new warning is a new row."""

SHOWN = 3  # warnings that `hive up` prints at the start, and at the end: more are not read
