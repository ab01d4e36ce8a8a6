"""Names that other trainers use for keys of the config, for the hint "hive calls it `algorithm.discount`".

They come from Stable-Baselines3, CleanRL, RLlib, Sample Factory and papers. Names that correspond to no single key are
in WITHOUT_ONE: `batch_size`, for example, means a rollout in one trainer and a minibatch in another. It is a key of
algorithms with a replay memory; the note is for all others. Their tables are in OTHER_TABLES.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hive.config.algorithms import ALGORITHMS
from hive.config.keys import keys_of
from hive.config.schema import SECTIONS
from hive.config.schemes import SCHEMES

__all__ = ["OTHER_NAMES", "OTHER_TABLES", "WITHOUT_ONE", "homes_of", "is_key", "note_on", "note_on_table"]

KEYS_NAMED = 4  # maximum keys of a foreign table whose names are translated: more do not fit beside its mark

OTHER_NAMES: Mapping[str, str] = {
    "action_noise": "algorithm.exploration_noise",
    "action_std_init": "network.initial_deviation",
    "activation_fn": "network.activation",
    "actor_hidden_sizes": "network.middleware",
    "actor_middleware": "network.middleware",
    "adam_beta1": "algorithm.adam_optimizer_beta1",
    "adam_beta2": "algorithm.adam_optimizer_beta2",
    "adam_eps": "algorithm.optimizer_epsilon",
    "beta1": "algorithm.adam_optimizer_beta1",
    "beta2": "algorithm.adam_optimizer_beta2",
    "buffer_capacity": "algorithm.replay_capacity",
    "buffer_size": "algorithm.replay_capacity",
    "capture_video": "evaluation.videos",
    "clip": "algorithm.clip_range",
    "clip_coef": "algorithm.clip_range",
    "clip_eps": "algorithm.clip_range",
    "clip_epsilon": "algorithm.clip_range",
    "clip_grad_norm": "algorithm.clip_gradients",
    "clip_param": "algorithm.clip_range",
    "clip_range_vf": "algorithm.value_clip_range",
    "critic_hidden_sizes": "network.value_middleware",
    "critic_middleware": "network.value_middleware",
    "double_dqn": "algorithm.double",
    "double_q": "algorithm.double",
    "end_e": "algorithm.exploration_end",
    "ent_coef": "algorithm.entropy_weight",
    "entropy_coef": "algorithm.entropy_weight",
    "entropy_coeff": "algorithm.entropy_weight",
    "entropy_coefficient": "algorithm.entropy_weight",
    "env_config": "env.options",
    "env_id": "env.id",
    "env_kwargs": "env.options",
    "env_name": "env.id",
    "env_wrapper": "env.wrappers",
    "env_wrappers": "env.wrappers",
    "environment": "env.id",
    "eps": "algorithm.optimizer_epsilon",
    "eps_decay": "algorithm.exploration_steps",
    "eps_end": "algorithm.exploration_end",
    "eps_start": "algorithm.exploration_start",
    "epsilon_decay_steps": "algorithm.exploration_steps",
    "epsilon_end": "algorithm.exploration_end",
    "epsilon_start": "algorithm.exploration_start",
    "eval_episodes": "evaluation.episodes",
    "eval_freq": "evaluation.every",
    "evaluation_interval": "evaluation.every",
    "experiment": "run.name",
    "exploration_final_eps": "algorithm.exploration_end",
    "exploration_initial_eps": "algorithm.exploration_start",
    "features_extractor": "network.extractor",
    "features_extractor_class": "network.extractor",
    "features_extractor_kwargs": "network.extractor_options",
    "gae": "algorithm.gae_lambda",
    "gamma": "algorithm.discount",
    "grad_clip": "algorithm.clip_gradients",
    "hidden_sizes": "network.middleware",
    "hidden_units": "network.middleware",
    "horizon": "collection.rollout",
    "init_std": "network.initial_deviation",
    "lam": "algorithm.gae_lambda",
    "layers": "network.middleware",
    "learning_start": "algorithm.learning_starts",
    "log_interval": "record.every_s",
    "log_std_init": "network.initial_deviation",
    "lr": "algorithm.learning_rate",
    "lr_schedule": "algorithm.learning_rate_schedule",
    "lstm_cell_size": "network.memory_size",
    "lstm_hidden_size": "network.memory_size",
    "make_env": "env.id",
    "max_grad_norm": "algorithm.clip_gradients",
    "max_steps": "run.steps",
    "n_atoms": "algorithm.atoms",
    "n_envs": "collection.envs",
    "n_epochs": "algorithm.epochs",
    "n_eval_episodes": "evaluation.episodes",
    "n_minibatches": "algorithm.minibatches",
    "n_quantiles": "algorithm.quantiles",
    "n_steps": "collection.rollout",
    "net_arch": "network.middleware",
    "nonlinearity": "network.activation",
    "norm_adv": "algorithm.normalize_advantages",
    "normalize_advantage": "algorithm.normalize_advantages",
    "num_actors": "collection.workers",
    "num_atoms": "algorithm.atoms",
    "num_batches_per_epoch": "algorithm.minibatches",
    "num_env_runners": "collection.workers",
    "num_envs": "collection.envs",
    "num_envs_per_env_runner": "collection.envs",
    "num_envs_per_worker": "collection.envs",
    "num_epochs": "algorithm.epochs",
    "num_learners": "gradients.workers",
    "num_minibatches": "algorithm.minibatches",
    "num_quantiles": "algorithm.quantiles",
    "num_rollout_workers": "collection.workers",
    "num_sgd_iter": "algorithm.epochs",
    "num_steps": "collection.rollout",
    "num_workers": "collection.workers",
    "optim": "algorithm.optimizer",
    "ortho_init": "network.initialization",
    "orthogonal_init": "network.initialization",
    "pi": "network.middleware",
    "policy_middleware": "network.middleware",
    "polyak": "algorithm.target_rate",
    "ppo_clip_ratio": "algorithm.clip_range",
    "prioritized_replay_alpha": "algorithm.priority_exponent",
    "prioritized_replay_beta": "algorithm.importance_exponent",
    "qf": "network.value_middleware",
    "random_seed": "run.seed",
    "replay_buffer_size": "algorithm.replay_capacity",
    "replay_ratio": "algorithm.updates_per_step",
    "replay_size": "algorithm.replay_capacity",
    "rho_bar": "algorithm.rho_clip",
    "rollout_fragment_length": "collection.rollout",
    "rollout_length": "collection.rollout",
    "save_freq": "checkpoint.every",
    "save_interval": "checkpoint.every",
    "seq_len": "collection.rollout",
    "start_e": "algorithm.exploration_start",
    "target_network_frequency": "algorithm.target_interval",
    "target_network_update_freq": "algorithm.target_interval",
    "target_update_interval": "algorithm.target_interval",
    "tau": "algorithm.target_rate",
    "timesteps": "run.steps",
    "total_steps": "run.steps",
    "total_timesteps": "run.steps",
    "train_for_env_steps": "run.steps",
    "unroll_length": "collection.rollout",
    "update_epochs": "algorithm.epochs",
    "utd_ratio": "algorithm.updates_per_step",
    "value_coef": "algorithm.value_loss_weight",
    "value_loss_coeff": "algorithm.value_loss_weight",
    "vf": "network.value_middleware",
    "vf_coef": "algorithm.value_loss_weight",
    "vf_loss_coeff": "algorithm.value_loss_weight",
    "vtrace_c": "algorithm.c_clip",
    "vtrace_rho": "algorithm.rho_clip",
    "warmup_steps": "algorithm.learning_starts",
}
"""Name in another trainer -> full name of the key (`table.key`)."""

BESIDE: Mapping[str, str] = {
    "ent_coef": "; that of sac is `algorithm.temperature`",
    "net_arch": "; its `vf` or `qf` is `network.value_middleware`",
    "n_steps": "; of algorithms with a replay memory it is `algorithm.n_step`",
}
"""Name in another trainer -> what else it means there."""

BATCH = "hive divides a round (`collection.workers` x `envs` x `rollout` steps) into PPO's `algorithm.minibatches`"
UPDATES = "hive calls gradient_steps / train_freq `algorithm.updates_per_step`, and updates after each round"
WITHOUT_ONE: Mapping[str, str] = {
    "batch_size": BATCH,
    "callback": "hive has `run.update_hook`, [evaluation] and `run.stop_at_return`",
    "eval_env": "hive has [evaluation.env], with the keys of [env] that differ",
    "exploration_fraction": "hive gives the environment steps, `algorithm.exploration_steps`",
    "gradient_steps": UPDATES,
    "mini_batch_size": BATCH,
    "minibatch_size": BATCH,
    "policy": "hive chooses the network by the spaces; `network.middleware` has its sizes",
    "policy_kwargs": "hive has these keys in [network]: net_arch is `network.middleware`",
    "share_features_extractor": "`network.separate_networks = false` lets policy and value share all layers",
    "tensorboard_log": 'hive has `record.sinks = ["jsonl", "tensorboard"]`',
    "train_batch_size": BATCH,
    "train_freq": UPDATES,
    "use_sde": 'hive has `network.action_distribution = "gsde"`',
    "verbose": "from Python, quiet=True prints nothing",
}
"""Name in another trainer -> note, where no single key of hive means the same."""


OTHER_TABLES: Mapping[str, str] = {
    "actor": "network",
    "agent": "algorithm",
    "buffer": "algorithm",
    "critic": "network",
    "env_runners": "collection",
    "environment": "env",
    "eval": "evaluation",
    "exploration": "algorithm",
    "general": "run",
    "hyperparameters": "algorithm",
    "learner": "algorithm",
    "log": "record",
    "logger": "record",
    "logging": "record",
    "memory": "algorithm",
    "model": "network",
    "net": "network",
    "optim": "algorithm",
    "optimizer": "algorithm",
    "policy": "network",
    "policy_kwargs": "network",
    "replay": "algorithm",
    "replay_buffer": "algorithm",
    "rollout": "collection",
    "sampler": "collection",
    "task": "env",
    "tensorboard": "record",
    "test": "evaluation",
    "train": "run",
    "trainer": "run",
    "training": "run",
    "wandb": "record",
    **dict.fromkeys([*ALGORITHMS, *SCHEMES], "algorithm"),
}
"""Table of another trainer's config -> hive's table with most of its keys."""


def note_on_table(name: str, table: Mapping[str, Any]) -> str:
    """Return a note for a table that hive does not have: hive's table, and hive's names for its keys."""
    keys = {key: [OTHER_NAMES[key]] if key in OTHER_NAMES else homes_of(key) for key in table if key not in WITHOUT_ONE}
    known = [f"`{key}` is `{homes[0]}`" for key, homes in keys.items() if len(homes) == 1][:KEYS_NAMED]
    meant = OTHER_TABLES.get(name.lower().replace("-", "_"), OTHER_TABLES.get(name.lower()))
    return "; ".join([*([f"hive calls it [{meant}]"] if meant else []), *known]) or note_on(name)


def is_key(full: str) -> bool:
    """Whether `full` (`table.key`) is a key of the config, for any algorithm."""
    return full in homes_of(full.rpartition(".")[2])


def note_on(name: str) -> str:
    """Return a note for a name that is no key where it stands: hive's name for it, or the tables that have it."""
    if name in OTHER_NAMES:
        return f"hive calls it `{OTHER_NAMES[name]}`{BESIDE.get(name, '')}"
    if name in WITHOUT_ONE:
        return WITHOUT_ONE[name]
    homes = [f"`{home}`" for home in homes_of(name)]
    return f"did you mean {' or '.join(homes)}?" if homes else ""


def homes_of(name: str) -> list[str]:
    """Return the full names of all keys `name`."""
    tables = [*SECTIONS.items(), *(("algorithm", table) for table in ALGORITHMS.values())]
    return list(dict.fromkeys(f"{section}.{name}" for section, table in tables if name in keys_of(table)))
