"""Measure the steps and updates per second of Sample Factory's asynchronous PPO, between two ends of iterations.

    python sample_factory_rates.py SECONDS THREADS SETTINGS

It runs with the Python of an environment that has sample-factory, without hive (`--python sample-factory=PATH`):

    python -m venv sf && sf/bin/pip install sample-factory 'torch>=2.6,<2.14' 'gymnasium<1.0'

THREADS is not used: Sample Factory gives each of its processes one thread of torch. SETTINGS is `work` of a setting
(benchmarks.settings) of PPO. Two workers step half of the environments each, in two groups; one process computes
actions and one trains. An iteration is one round: as many steps, epochs and minibatches as in the other programs.
Actor and critic share no layer.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import gymnasium
import numpy as np
import torch
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.algo.utils.make_env import make_env_func_batched
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.actor_critic import create_actor_critic
from sample_factory.train import make_runner
from sample_factory.utils.attr_dict import AttrDict

from benchmarks.counting import TwoLooks

WORKERS = 2


class Looks(AlgoObserver):  # type: ignore[misc,unused-ignore]  # untyped where it is not installed
    """Ends the training after `seconds` between two looks. steps, updates: of one iteration."""

    def __init__(self, seconds: float, steps: int, updates: int) -> None:
        self.looks = TwoLooks(seconds)
        self.steps, self.updates = steps, updates

    def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
        done = training_iteration_since_resume
        if self.looks.round_ended(done * self.steps, done * self.updates):
            runner.cfg.train_for_seconds = -1  # below the seconds so far: the training ends


def words_of(settings: dict[str, Any]) -> list[str]:
    """Return the arguments of Sample Factory's command line."""
    round_steps = settings["envs"] * settings["rollout"]
    layers = [str(width) for width in settings["layers"]]
    return [
        *("--algo=APPO", f"--env={settings['env']}", "--experiment=bench", "--train_dir=runs", "--device=cpu"),
        *("--seed=1", f"--num_workers={WORKERS}", f"--num_envs_per_worker={settings['envs'] // WORKERS}"),
        *(f"--rollout={settings['rollout']}", f"--batch_size={settings['minibatch']}"),
        *(f"--num_batches_per_epoch={round_steps // settings['minibatch']}", f"--num_epochs={settings['epochs']}"),
        *(f"--learning_rate={settings['learning_rate']}", f"--gamma={settings['discount']}"),
        *(f"--gae_lambda={settings['gae_lambda']}", f"--ppo_clip_ratio={settings['clip_range']}"),
        *(f"--value_loss_coeff={settings['value_loss_weight']}", f"--max_grad_norm={settings['clip_gradients']}"),
        *(f"--exploration_loss_coeff={settings['entropy_weight']}", "--adam_eps=1e-5", "--use_rnn=False"),
        *("--actor_critic_share_weights=False", "--nonlinearity=tanh", "--encoder_mlp_layers", *layers),
        *("--normalize_input=False", "--normalize_returns=False", "--with_vtrace=False", "--value_bootstrap=True"),
    ]


def weights_of(cfg: Any) -> int:
    """Return the number of trained weights of its model."""
    env = make_env_func_batched(cfg, env_config=AttrDict(worker_index=0, vector_index=0, env_id=0))
    model = create_actor_critic(cfg, env.observation_space, env.action_space)
    env.close()
    return sum(int(one.numel()) for one in model.parameters() if one.requires_grad)


def made(name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> Any:
    """Construct one environment; the arguments are those of Sample Factory, whose processes import this function."""
    return gymnasium.make(name)


def run(seconds: float, settings: dict[str, Any]) -> dict[str, Any]:
    register_env(settings["env"], made)
    words = words_of(settings)
    parser, _ = parse_sf_args(words)
    cfg, runner = make_runner(parse_full_cfg(parser, words))
    round_steps = settings["envs"] * settings["rollout"]
    looks = Looks(seconds, round_steps, settings["epochs"] * (round_steps // settings["minibatch"]))
    runner.register_observer(looks)
    if runner.init() != ExperimentStatus.SUCCESS or runner.run() != ExperimentStatus.SUCCESS:
        sys.exit("Sample Factory did not train")
    versions = {"torch": torch.__version__, "numpy": np.__version__, "gymnasium": gymnasium.__version__}
    return {**looks.looks.rates, "weights": weights_of(cfg), "versions": versions}


if __name__ == "__main__":
    print(json.dumps(run(float(sys.argv[1]), json.loads(sys.argv[3]))))
