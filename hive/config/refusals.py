"""What algorithms refuse, with the reason and a way out: one table, from which all of these errors are made.

A row about a key becomes a rule between this key and the algorithm (hive.config.rules). A run with a replay memory
checks these rows again (`ReplayBlueprint`), for configs that were not loaded and for algorithms of users. Rows about
actions and scripts have the text of the errors of the code that meets them.

The guide's page on replay shows `guide_table()`, without the rows OF_BC, which are on its page on data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hive.config.algorithms import ALGORITHMS, ReplayConfig
from hive.config.keys import keys_of
from hive.config.schema import REWARD_CLIP, Config

REPLAYING = tuple(name for name, table in ALGORITHMS.items() if issubclass(table, ReplayConfig))
OF_STEPS = tuple(name for name in REPLAYING if name != "bc")  # those whose memory has the steps of the run
AGENTS = ("sac", "td3", "ddpg")
VALUES = ("nstep-q", "pqn", "dqn", "c51", "qr-dqn")  # those that learn action values


@dataclass(frozen=True)
class Refusal:
    """A row of the table.

    what: the key, or what else is refused, in words. algorithms: those that refuse it. reason: a predicate of the
    algorithm, so that "dqn" and this are a sentence. instead: the way out, an imperative. is_refused: whether a value
    of the key is. shown: the refused values in the guide.
    """

    what: str
    algorithms: tuple[str, ...]
    reason: str
    instead: str
    is_refused: Callable[[Any], bool] = bool
    shown: str = ""

    @property
    def text(self) -> str:
        """The predicate with the way out."""
        return f"{self.reason}: {self.instead}"


def _is_set(value: str | None) -> bool:
    return value not in (None, "none")


KEYS = (
    Refusal(
        "network.memory",
        (*VALUES, *AGENTS),
        "has no recurrent version",
        "use ppo, a2c or impala",
        _is_set,
        '"lstm" or "gru"',
    ),
    Refusal(
        "network.module",
        AGENTS,
        "has networks of an actor and of critics, not a single one",
        "set network.extractor, or the layers in [network]",
    ),
    Refusal(
        "network.noisy_deviation",
        ("a2c", "ppo", "impala", "sac"),
        "compares probabilities of actions, which this noise changes",
        "set network.noisy_deviation to 0",
    ),
    Refusal(
        "network.noisy_deviation",
        ("td3", "ddpg"),
        "explores by noise in its actions",
        "set algorithm.exploration_noise",
    ),
    Refusal(
        "network.novelty_weight",
        REPLAYING,
        "would draw the novelty of states that are familiar by now",
        "use ppo, a2c or impala",
    ),
    Refusal(
        "network.reward_clip",
        REPLAYING,
        "clips normalised rewards and observations at 10 deviations as it gathers them",
        "leave it out, or scale rewards in the environment with network.normalize_rewards = false",
        lambda value: value != REWARD_CLIP,
        "other than 10",
    ),
    Refusal(
        "gradients.communication",
        REPLAYING,
        "makes each gradient of rows and priorities that follow from the updates before it",
        'set it to "pipelined"',
        lambda value: value == "asynchronous",
        '"asynchronous"',
    ),
    Refusal(
        "gradients.decentralized",
        REPLAYING,
        "has a memory that the learner alone writes, with the priorities from all gradients",
        "set gradients.workers, which share each batch",
    ),
    Refusal(
        "gradients.bootstrap_rounds",
        REPLAYING,
        "draws a batch for each update",
        "raise algorithm.batch_size",
        lambda value: value > 1,
        "2 or more",
    ),
    Refusal(
        "collection.fraction_workers",
        REPLAYING,
        "counts updates by rounds of full rollouts",
        "lower collection.rollout",
        lambda value: value < 1,
        "less than 1",
    ),
)
"""The rows about keys."""

OF_BC = (
    Refusal("network.memory", ("bc",), "has no recurrent version", "leave it out", _is_set),
    Refusal("network.noisy_deviation", ("bc",), "learns probabilities, which this noise changes", "set it to 0"),
    Refusal(
        "algorithm.n_step",
        ("bc",),
        "learns the action of each step",
        "leave it out",
        lambda value: value > 1,
        "2 or more",
    ),
    Refusal("algorithm.priority_exponent", ("bc",), "has no TD errors", "leave it out", shown="more than 0"),
)
"""The rows of "bc" about keys, some of which other algorithms do not have."""

ONE_DISCRETE = Refusal(
    "actions other than one discrete action",
    VALUES,
    "learns a value for every action, so it needs a single discrete action",
    "use ppo, a2c or impala, or for box actions sac, td3 or ddpg",
)
BOUNDED_OR_DISCRETE = Refusal(
    "actions other than a bounded box or one discrete action",
    ("sac",),
    "needs a box action with bounds, or a single discrete action",
    "use ppo, a2c or impala, which serve the actions of this environment",
)
BOUNDED_BOX = Refusal(
    "actions other than a bounded box",
    ("td3", "ddpg"),
    "needs a box action with bounds",
    "use ppo, a2c or impala, which serve the actions of this environment",
)
IN_SCRIPTS = Refusal(
    "`hive.GWorker` in a script",
    REPLAYING,
    "learns from a replay memory, and a GWorker from rollouts",
    "start a run (hive.train, hive up), or use hive.ReplayBuffer in a script",
)


def refused_keys(config: Config) -> Iterator[tuple[Refusal, str]]:
    """Yield the refusals of keys that a config breaks, each with the name of its algorithm.

    The class of a user counts as the algorithm whose keys it has.
    """
    table: type = type(config.algorithm)
    algorithm = str(keys_of(table)["name"].default)
    for row in (*KEYS, *OF_BC):
        if algorithm in row.algorithms and row.is_refused(config.value(row.what)):
            yield row, config.algorithm.name


def guide_table() -> str:
    """Return the rows that concern algorithms with a replay memory, as a Markdown table."""
    lines = ["| refused | by | because it | instead |", "|---|---|---|---|"]
    for row in (*KEYS, ONE_DISCRETE, BOUNDED_OR_DISCRETE, BOUNDED_BOX, IN_SCRIPTS):
        if names := [name for name in row.algorithms if name in OF_STEPS]:
            what = f"`{row.what}`" if row in KEYS else row.what
            shown = f" = {row.shown}" if row.shown else ""
            by = "all" if tuple(names) == OF_STEPS else ", ".join(names)
            lines.append(f"| {what}{shown} | {by} | {row.reason} | {row.instead} |")
    return "\n".join(lines)
