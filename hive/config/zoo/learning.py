"""Translates the keys of an entry about learning: rounds, batches, schedules, exploration.

The Zoo's rounds are those of one collector. Its batch_size is a round divided by algorithm.minibatches; with a replay
memory its train_freq is collection.rollout, and gradient_steps are the updates of a round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from hive.config.algorithms import ALGORITHMS, ReplayConfig
from hive.config.known_tasks import usual_settings
from hive.config.other_names import note_on
from hive.config.zoo.draft import Actions, Draft
from hive.config.zoo.entries import names
from hive.config.zoo.environment import KEYS
from hive.config.zoo.layers import is_actor_critic, translate_layers

LINEAR = "lin_"  # how a value begins that falls in a straight line to 0
AUTO = "auto"
CLIP = 10.0  # deviations to which hive clips what it normalizes, as VecNormalize by default


def translate_learning(draft: Draft, actions: Actions) -> None:
    """Translate all keys but those of `translate_environment`, and set the defaults of the Zoo.

    Raises ConfigError for invalid values.
    """
    draft.box = actions.elements > 0
    translate_layers(draft)
    for key in draft.values:
        if key in (*KEYS, "policy", "policy_kwargs"):
            continue
        if key in HANDLERS:
            HANDLERS[key](draft, actions)
        elif key in names()["same"]:
            value = draft.values[key]
            draft.put(key, names()["same"][key], names()["none"].get(key) if value is None else value)
        else:
            text = names()["instead"].get(key) or note_on(key) or "hive has nothing like it"
            draft.leave(key, text)
    if draft.box and is_actor_critic(draft) and not actions.unit:
        draft.usual({"env.scale_actions": False})
    if draft.scheme == "qr-dqn":
        draft.usual({"algorithm.optimizer_epsilon": 0.01 / draft.count("batch_size")})
    draft.usual(usual_settings(draft.scheme))
    draft.drop_idle()


def _replays(draft: Draft) -> bool:
    return issubclass(ALGORITHMS[draft.algorithm], ReplayConfig)


# --- rounds and batches


def _n_steps(draft: Draft, actions: Actions) -> None:
    draft.put("n_steps", "algorithm.n_step" if _replays(draft) else "collection.rollout", draft.values["n_steps"])


def _batch_size(draft: Draft, actions: Actions) -> None:
    if _replays(draft):
        draft.put("batch_size", "algorithm.batch_size", draft.values["batch_size"])
        return
    if draft.algorithm != "ppo":
        draft.leave("batch_size", f"{draft.algorithm} makes one gradient of a round")
        return
    envs, samples = draft.count("n_envs"), draft.count("n_envs") * draft.count("n_steps")
    batch = draft.count("batch_size")
    parts = max(samples // batch, 1)
    if samples % batch and samples > batch:
        draft.differs("batch_size", f"hive divides the {samples:,} steps of a round into {parts} equal parts")
    if draft.recurrent and parts > envs:
        draft.differs("batch_size", f"a minibatch has whole sequences, so there are {envs}, one of each environment")
        parts = envs
    draft.put("batch_size", "algorithm.minibatches", parts)


def _steps_of_round(draft: Draft) -> int | None:
    """Return the steps of each environment between two series of updates; None if it is a number of episodes."""
    value = draft.values["train_freq"]
    if isinstance(value, str) and not value.strip().isdigit():
        value = draft.python("train_freq")
    if isinstance(value, list) and len(value) == 2 and value[1] in ("step", "episode"):
        if value[1] == "episode":
            return None
        value = value[0]
    number = draft.plain_number("train_freq", value)
    if number < 1 or number != int(number):
        raise draft.refused("train_freq", 'expected a number of steps, or [1, "episode"]')
    return int(number)


def _train_freq(draft: Draft, actions: Actions) -> None:
    steps = _steps_of_round(draft)
    if steps is None:
        draft.differs("train_freq", "rounds of hive have a number of steps, here 1, and as many updates per step")
    draft.put("train_freq", "collection.rollout", steps or 1)


def _updates(draft: Draft) -> tuple[int, int]:
    """Return the updates of a round, and its steps in all environments."""
    steps = (_steps_of_round(draft) or 1) * draft.count("n_envs")
    updates = draft.number("gradient_steps")
    if updates < 0 or _steps_of_round(draft) is None:
        return steps, steps
    if updates < 1 or updates != int(updates):
        raise draft.refused("gradient_steps", "expected a whole number >= 1, or -1")
    return int(updates), steps


def _gradient_steps(draft: Draft, actions: Actions) -> None:
    if _steps_of_round(draft) is None and draft.number("gradient_steps") > 0:
        draft.differs("gradient_steps", "it counts updates of an episode, whose length is unknown; hive has 1 a step")
    draft.put("gradient_steps", "algorithm.updates_per_step", str(Fraction(*_updates(draft))))


def _target_update_interval(draft: Draft, actions: Actions) -> None:
    """Translate environment steps to updates; of several copies between two series of updates the last one counts."""
    key = "target_update_interval"
    if draft.algorithm not in ("dqn", "qr-dqn"):
        draft.put(key, "algorithm.target_interval", draft.values[key])
        return
    updates, steps = _updates(draft)
    interval = max(max(draft.count(key), steps) * updates // steps, 1)
    draft.put(key, "algorithm.target_interval", interval, f"{draft.shown(key)} steps, in updates")


# --- schedules


def _scheduled(key: str, name: str) -> Callable[[Draft, Actions], None]:
    """Return the translation of a key that is a number or `lin_NUMBER`."""

    def translate(draft: Draft, actions: Actions) -> None:
        value = draft.values[key]
        falls = isinstance(value, str) and value.startswith(LINEAR)
        if isinstance(value, str) and falls:
            value = value.removeprefix(LINEAR)
        draft.put(key, name, value)
        if draft.settings.get(name) is not None:
            draft.put(key, f"{name}_schedule", "linear" if falls else "constant")

    return translate


def _clip_range_vf(draft: Draft, actions: Actions) -> None:
    value = draft.values["clip_range_vf"]
    if isinstance(value, str) and value.startswith(LINEAR):
        draft.differs("clip_range_vf", "hive's value_clip_range is constant")
        value = value.removeprefix(LINEAR)
    number = 0.0 if value is None else draft.plain_number("clip_range_vf", value)
    draft.put("clip_range_vf", "algorithm.value_clip_range", max(number, 0.0))


# --- normalisation, entropy, exploration


def _normalize(draft: Draft, actions: Actions) -> None:
    given = draft.values["normalize"]
    how = draft.python("normalize") if isinstance(given, str) else given
    options = how if isinstance(how, dict) else {}
    if not isinstance(how, dict | bool):
        raise draft.refused("normalize", "expected true, false or {'norm_obs': True, 'norm_reward': False}")
    for name, value in options.items():
        usual = {"clip_obs": CLIP, "clip_reward": CLIP, "norm_obs": value, "norm_reward": value}
        if usual.get(name) != value:
            draft.leave(
                "normalize", f"hive clips at {CLIP:g} deviations, and discounts as the algorithm does", str(name)
            )
    for name, key in (("norm_obs", "network.normalize_observations"), ("norm_reward", "network.normalize_rewards")):
        draft.put("normalize", key, how is not False and options.get(name, True) is not False)


def _ent_coef(draft: Draft, actions: Actions) -> None:
    value = draft.values["ent_coef"]
    if draft.algorithm != "sac":
        draft.put("ent_coef", "algorithm.entropy_weight", value)
        return
    learned = isinstance(value, str) and value.startswith(AUTO)
    if isinstance(value, str) and learned:
        value = value.removeprefix(AUTO).removeprefix("_") or 1.0
    draft.put("ent_coef", "algorithm.temperature", value)
    draft.put("ent_coef", "algorithm.learn_temperature", learned)


def _target_entropy(draft: Draft, actions: Actions) -> None:
    if draft.values["target_entropy"] == AUTO:
        return  # the default of hive: -1 for each element
    if not actions.elements:
        draft.leave("target_entropy", "for discrete actions hive has algorithm.target_entropy_share")
    else:
        each = draft.number("target_entropy") / actions.elements
        draft.put("target_entropy", "algorithm.target_entropy", each, f"{draft.shown('target_entropy')}, each element")


def _has_sde(draft: Draft) -> bool:
    """Whether the policy acts with gSDE, which needs box actions and a dense layer before them."""
    middleware = draft.settings.get("network.middleware")
    dense = middleware is None or bool(middleware.value)
    return bool(draft.values.get("use_sde")) and is_actor_critic(draft) and draft.box and dense


def _use_sde(draft: Draft, actions: Actions) -> None:
    if _has_sde(draft):
        draft.put("use_sde", "network.action_distribution", "gsde")
    elif draft.values["use_sde"]:
        cause = "this environment has no box actions" if not draft.box else "there is no dense layer for its noise"
        own = f"{draft.algorithm} of hive draws noise for each action on its own"
        draft.leave("use_sde", cause if is_actor_critic(draft) else own)


def _sde_sample_freq(draft: Draft, actions: Actions) -> None:
    if not _has_sde(draft):
        draft.leave("sde_sample_freq", "without gSDE it has no effect")
    else:
        draft.put("sde_sample_freq", "network.noise_steps", max(draft.number("sde_sample_freq"), 0))


def _exploration_fraction(draft: Draft, actions: Actions) -> None:
    steps = max(round(draft.number("exploration_fraction") * draft.number("n_timesteps")), 1)
    key = "exploration_fraction"
    draft.put(key, "algorithm.exploration_steps", steps, f"{draft.shown(key)} of n_timesteps")


NOISES = ("normal", "ornstein-uhlenbeck", "adaptive-param")
"""The Zoo's values of noise_type."""


def _noise_type(draft: Draft, actions: Actions) -> None:
    kind = str(draft.values["noise_type"]).strip()
    if draft.algorithm not in ("td3", "ddpg"):
        draft.leave("noise_type", f"{draft.algorithm} explores by its own distribution")
    elif kind not in NOISES:
        raise draft.refused("noise_type", f"expected {', '.join(NOISES)}")
    elif not draft.is_given("noise_std"):
        raise draft.refused("noise_type", "there is no noise_std, its standard deviation")
    elif kind != "normal":
        draft.differs("noise_type", "hive's noise is normal, and independent in each step")


def _noise_std(draft: Draft, actions: Actions) -> None:
    if draft.values.get("noise_type") is None:
        draft.leave("noise_std", "without noise_type it has no effect")
    elif draft.algorithm in ("td3", "ddpg"):
        given = f"{draft.shown('noise_type')}, {draft.shown('noise_std')}"
        draft.put("noise_std", "algorithm.exploration_noise", draft.values["noise_std"], given)
    else:
        draft.leave("noise_std", f"{draft.algorithm} explores by its own distribution")


def _use_rms_prop(draft: Draft, actions: Actions) -> None:
    if "algorithm.optimizer" not in draft.settings:  # that of policy_kwargs comes first, as in Stable-Baselines3
        draft.put("use_rms_prop", "algorithm.optimizer", "rmsprop" if draft.values["use_rms_prop"] else "adam")


HANDLERS: Mapping[str, Callable[[Draft, Actions], None]] = {
    "batch_size": _batch_size,
    "clip_range": _scheduled("clip_range", "algorithm.clip_range"),
    "clip_range_vf": _clip_range_vf,
    "ent_coef": _ent_coef,
    "exploration_fraction": _exploration_fraction,
    "gradient_steps": _gradient_steps,
    "learning_rate": _scheduled("learning_rate", "algorithm.learning_rate"),
    "n_steps": _n_steps,
    "noise_std": _noise_std,
    "noise_type": _noise_type,
    "normalize": _normalize,
    "sde_sample_freq": _sde_sample_freq,
    "target_entropy": _target_entropy,
    "target_update_interval": _target_update_interval,
    "train_freq": _train_freq,
    "use_rms_prop": _use_rms_prop,
    "use_sde": _use_sde,
}
"""Key of the Zoo -> its translation."""
