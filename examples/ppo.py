"""PPO on one page: what hive's scheme `ppo` computes with its defaults, in one process, by torch and Gymnasium alone.

The details that matter are numbered; each names its source. The test of this file gives `learn` the weights, rollouts
and permutations of a run of hive, and finds the same weights after ten updates, to 1e-6.

    paper       Schulman et al. 2017, https://arxiv.org/abs/1707.06347
    GAE         Schulman et al. 2016, https://arxiv.org/abs/1506.02438
    37 details  Huang et al. 2022, "The 37 Implementation Details of PPO", which CleanRL's ppo.py follows
    SB3         Stable-Baselines3; VecNormalize is its; RLlib is that of Ray, baselines are those of OpenAI

    python examples/ppo.py      CartPole-v1: a mean return of 500 after 80,000 steps: 40 s
    python examples/ppo.py --env Pendulum-v1 --learning_rate 1e-3 --discount 0.9 --steps 100_000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Floats = NDArray[Any]  # float32, or float64 in statistics


@dataclass(frozen=True)
class Settings:
    """The keys of hive's `ppo` and their defaults; each is an option of the command line."""

    env: str = "CartPole-v1"
    steps: int = 80_000
    seed: int = 1
    envs: int = 16
    rollout: int = 128  # steps of each environment in a round
    epochs: int = 10
    minibatch: int = 64  # steps, as in SB3
    learning_rate: float = 3e-4
    discount: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    value_loss_weight: float = 0.5
    entropy_weight: float = 0.0
    clip_gradients: float = 0.5


# --- networks


def layers(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    """Return a network float32 [N, inputs] -> [N, outputs] with two hidden layers."""
    # 1. Two layers of 64 with tanh, for policy and value separately (paper, section 6.1; SB3; CleanRL for MuJoCo).
    sizes, found = (inputs, 64, 64, outputs), []
    for number in range(3):
        layer = nn.Linear(sizes[number], sizes[number + 1])
        # 2. Orthogonal weights and biases of 0 (37 details, 2). The gain is sqrt(2) in hidden layers, 1 for the value
        #    and 0.01 for the policy: the first policy is nearly uniform (Andrychowicz et al. 2021, section 3.2).
        nn.init.orthogonal_(layer.weight, gain if number == 2 else 2.0**0.5)
        nn.init.zeros_(layer.bias)
        found += [layer, nn.Tanh()]
    return nn.Sequential(*found[:-1])


class Agent(nn.Module):
    """A policy and a value of observations float32 [N, size], for a discrete action or a box."""

    def __init__(self, observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> None:
        super().__init__()
        if not isinstance(observation, gymnasium.spaces.Box) or len(observation.shape) != 1:
            raise ValueError(f"observations are {observation}: this page learns from a vector of numbers")
        if not isinstance(action, gymnasium.spaces.Discrete | gymnasium.spaces.Box):
            raise ValueError(f"actions are {action}: this page has discrete ones and boxes")
        self.is_box = isinstance(action, gymnasium.spaces.Box)
        self.action = action
        width = int(np.prod(action.shape)) if isinstance(action, gymnasium.spaces.Box) else int(action.n)
        self.policy = layers(observation.shape[0], width, gain=0.01)
        self.value = layers(observation.shape[0], 1, gain=1.0)
        # 3. The deviation of a box action does not depend on the observation; its logarithm is a parameter, at first 0
        #    (Schulman et al. 2015; 37 details, "continuous action domains" 2; SB3).
        self.log_std = nn.Parameter(torch.zeros(width)) if self.is_box else None
        self.observed, self.rewarded = Statistics(observation.shape), Statistics(())

    def normalized(self, observations: Floats) -> Tensor:
        """Return observations [..., size] as the networks see them."""
        # 4. Observations are normalized by mean and deviation of all steps so far, and clipped to 10 deviations (37
        #    details, "continuous" 6 and 7; SB3's VecNormalize). CleanRL does it for boxes only, SB3 on request. Here
        #    the statistics change only between rounds, so a round is collected and learned with the same ones.
        shift, scale = (torch.from_numpy(one.astype(np.float32)) for one in self.observed.shift_and_scale())
        return ((torch.from_numpy(observations) - shift) * scale).clamp(-10.0, 10.0)

    def sample(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions and their log probabilities [N]."""
        outputs = self.policy(inputs)
        if self.log_std is None:
            # 5. A discrete action is the largest of logits plus Gumbel noise: a sample of the softmax (Gumbel 1954).
            actions = (outputs - torch.empty_like(outputs).exponential_().log()).argmax(-1)
        else:
            actions = outputs + self.log_std.exp() * torch.randn_like(outputs)
        return actions, self.log_prob_and_entropy(inputs, actions)[0]

    def log_prob_and_entropy(self, inputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return log probabilities of actions and entropies of the policy, each [N]."""
        outputs = self.policy(inputs)
        if self.log_std is None:
            logs = outputs.log_softmax(-1)
            return logs.gather(-1, actions.unsqueeze(-1)).squeeze(-1), -(logs.exp() * logs).sum(-1)
        # 6. The elements of a box action are independent: log densities and entropies are sums over them (37 details,
        #    "continuous" 3).
        normal = torch.distributions.Normal(outputs, self.log_std.exp(), validate_args=False)
        return normal.log_prob(actions).sum(-1), normal.entropy().sum(-1)

    def for_environment(self, actions: Tensor) -> Any:
        """Return actions [N, ...] in the environment's units and bounds."""
        if not isinstance(self.action, gymnasium.spaces.Box):
            return actions.numpy()
        # 7. A policy acts in the scale where bounds are -1 and 1, so that its first deviation of 1 fits any box (as
        #    with RLlib's normalize_actions; SB3 and CleanRL act in the environment's units). Only what the environment
        #    gets is clipped: log probabilities are those of the sampled action (37 details, "continuous" 5; SB3).
        low, high = self.action.low, self.action.high
        bounded = np.isfinite(low) & np.isfinite(high)
        middle, reach = np.where(bounded, low / 2 + high / 2, 0), np.where(bounded, high / 2 - low / 2, 1)
        scaled = actions.numpy().reshape(-1, *self.action.shape)
        return np.clip(middle + reach * scaled, low, high).astype(self.action.dtype)


class Statistics:
    """Count, mean and sum of squared distances from it of all rows so far, in float64 (Chan et al. 1979)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(shape), np.zeros(shape)

    def add(self, rows: Floats) -> None:
        """Add rows [N, ...]."""
        mean = rows.mean(0, dtype=np.float64)
        squares, distance, count = ((rows - mean) ** 2).sum(0), mean - self.mean, self.count + len(rows)
        self.mean = self.mean + distance * (len(rows) / count)
        self.squares = self.squares + squares + distance**2 * (self.count * len(rows) / count)
        self.count = count

    def shift_and_scale(self) -> tuple[Floats, Floats]:
        """Return the mean and 1 / deviation; before the first row 0 and 1."""
        if not self.count:
            return self.mean, np.ones_like(self.mean)
        return self.mean, 1.0 / np.sqrt(self.squares / self.count + 1e-8)


# --- collecting


@dataclass
class Rollout:
    """T steps of B environments, [T, B, ...]."""

    observations: Floats  # float32
    actions: NDArray[Any]  # int64, or float32 in the scale of detail 7
    log_probs: Floats  # float32, of the policy that acted
    rewards: Floats  # float32
    discounted: Floats  # float64, discounted sums of rewards since the episode began
    following: Floats  # float32, what followed each step: where an episode ended, its last observation
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


class Environments:
    """Environments that are reset within the step that ends an episode."""

    # 8. Many environments are stepped side by side, and a round continues the episodes of the last (37 details, 1).
    def __init__(self, settings: Settings) -> None:
        self.envs = [gymnasium.make(settings.env) for _ in range(settings.envs)]
        seeds = range(settings.seed * len(self.envs), (settings.seed + 1) * len(self.envs))
        self.observations = np.stack([env.reset(seed=n)[0] for env, n in zip(self.envs, seeds, strict=True)])
        self.discount, self.sums, self.returns = settings.discount, np.zeros(settings.envs), np.zeros(settings.envs)
        self.ended: list[float] = []  # returns of all episodes

    def step(self, actions: Any) -> tuple[Any, ...]:
        """Return rewards, their discounted sums, what followed, terminated and truncated, each [B, ...]."""
        steps = [env.step(action)[:4] for env, action in zip(self.envs, actions, strict=True)]
        following, rewards, terminated, truncated = (np.array(column) for column in zip(*steps, strict=True))
        self.sums = self.sums * self.discount + rewards.astype(np.float32)
        self.returns += rewards
        result = rewards, self.sums.copy(), following, terminated, truncated
        self.observations = following.copy()
        for b in np.flatnonzero(terminated | truncated):
            self.ended.append(float(self.returns[b]))
            self.observations[b], self.sums[b], self.returns[b] = self.envs[b].reset()[0], 0.0, 0.0
        return result


def collect(agent: Agent, envs: Environments, steps: int) -> Rollout:
    """Make a rollout of `steps` steps with the policy."""
    rows = []
    for _ in range(steps):
        observations = envs.observations.astype(np.float32)
        with torch.no_grad():
            actions, log_probs = agent.sample(agent.normalized(observations))
        rewards, sums, following, *ends = envs.step(agent.for_environment(actions))
        step = rewards.astype(np.float32), sums, following.astype(np.float32), *ends
        rows.append((observations, actions.numpy(), log_probs.numpy(), *step))
    return Rollout(*(np.stack(column) for column in zip(*rows, strict=True)))


# --- learning


def normalized_rewards(agent: Agent, rollout: Rollout) -> Floats:
    """Return the rewards that are learned from, float32 [T, B]."""
    # 9. Rewards are divided by the deviation of their discounted sums since the episode began, keep their mean, and are
    #    clipped to 10 (37 details, "continuous" 8 and 9; VecNormalize). The first round has only its own sums.
    statistics = agent.rewarded
    if not statistics.count:
        statistics = Statistics(())
        statistics.add(rollout.discounted.reshape(-1))
    _, scale = statistics.shift_and_scale()
    rewards: Floats = np.clip(rollout.rewards * np.float32(scale), -10.0, 10.0, dtype=np.float32)
    return rewards


def generalized_advantages(
    settings: Settings, rollout: Rollout, rewards: Floats, values: Floats, following: Floats
) -> tuple[Floats, Floats]:
    """Return advantages and lambda-returns, float32 [T, B]; values, following: V(s_t) and V(s_t+1)."""
    advantages, carry = np.zeros_like(rewards), np.zeros_like(rewards[0])
    discount, decay = np.float32(settings.discount), np.float32(settings.discount * settings.gae_lambda)
    for t in reversed(range(len(rewards))):
        # 10. No reward follows a termination. After a truncation, by a time limit, the value of the last observation
        #     stands for the rewards that would have followed (Pardo et al. 2018; SB3; not in CleanRL's ppo.py).
        delta = rewards[t] - values[t] + np.where(rollout.terminated[t], 0.0, discount * following[t])
        # 11. The exponential mean of n-step advantages (GAE, equation 16). It ends where an episode does.
        ended = rollout.terminated[t] | rollout.truncated[t]
        advantages[t] = carry = (delta + np.where(ended, 0.0, decay * carry)).astype(np.float32)
    # 12. The value learns the lambda-return, advantage plus value (37 details, 5; SB3).
    return advantages, advantages + values


def learn(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    rollout: Rollout,
    settings: Settings,
    permutation: Callable[[int], NDArray[np.int64]],
) -> dict[str, float]:
    """Make all updates of a round, and return means of what is reported. permutation: of the numbers below N."""
    # 13. Advantages and returns are computed once, with the values before the round's first update (paper, algorithm 1;
    #     SB3; CleanRL).
    rewards = normalized_rewards(agent, rollout)
    inputs = agent.normalized(rollout.observations)
    with torch.no_grad():
        values = agent.value(inputs).squeeze(-1).numpy()
        following = agent.value(agent.normalized(rollout.following)).squeeze(-1).numpy()
    advantages, returns = generalized_advantages(settings, rollout, rewards, values, following)
    columns = rollout.actions, rollout.log_probs, advantages, returns
    flat = [inputs.flatten(0, 1), *(torch.from_numpy(column).flatten(0, 1) for column in columns)]
    reports = []
    for _ in range(settings.epochs):
        # 14. Each epoch permutes all steps of the round and divides them into minibatches (37 details, 6; SB3).
        order = permutation(rewards.size)
        for rows in np.array_split(order, max(rewards.size // settings.minibatch, 1)):
            picked = torch.from_numpy(rows)
            loss, report = ppo_loss(agent, settings, *(column[picked] for column in flat))
            optimizer.zero_grad()
            loss.backward()
            # 15. The norm of the whole gradient, of policy and value together, is at most 0.5 (37 details, 11; SB3).
            nn.utils.clip_grad_norm_(agent.parameters(), settings.clip_gradients)
            optimizer.step()
            reports.append(report)
    agent.observed.add(rollout.observations.reshape(-1, rollout.observations.shape[-1]))
    agent.rewarded.add(rollout.discounted.reshape(-1))
    return {name: float(np.mean([report[name] for report in reports])) for name in reports[0]}


def ppo_loss(
    agent: Agent, settings: Settings, inputs: Tensor, actions: Tensor, old: Tensor, advantages: Tensor, returns: Tensor
) -> tuple[Tensor, dict[str, float]]:
    """Return the loss of N steps and what is reported of it. old: log probabilities of the policy that acted, [N]."""
    # 16. Advantages are normalized in each minibatch (37 details, 7; SB3), if there are two at least.
    if len(advantages) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    log_probs, entropies = agent.log_prob_and_entropy(inputs, actions)
    ratio = (log_probs - old).exp()
    # 17. The clipped surrogate (paper, equation 7): nothing is gained where the ratio leaves 1 +- clip_range.
    clipped = ratio.clamp(1.0 - settings.clip_range, 1.0 + settings.clip_range)
    policy_loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
    # 18. A squared error without clipping, and without the half of baselines and CleanRL (SB3). Clipping the value as
    #     baselines and CleanRL do (37 details, 9) helps little (Andrychowicz et al. 2021; Engstrom et al. 2020).
    value_loss = (agent.value(inputs).squeeze(-1) - returns).square().mean()
    # 19. One loss for all, with 0.5 of the value's (paper, equation 9), and no entropy bonus by default (SB3).
    entropy = entropies.mean()
    loss = policy_loss + settings.value_loss_weight * value_loss - settings.entropy_weight * entropy
    with torch.no_grad():
        # 20. An estimate of KL(old || new) that is never negative, k3 of http://joschu.net/blog/kl-approx.html, and the
        #     share of clipped ratios (37 details, 12) are only reported.
        kl = (ratio - 1.0 - (log_probs - old)).mean()
        outside = ((ratio - 1.0).abs() > settings.clip_range).float().mean()
    named = {"policy": policy_loss, "value": value_loss, "entropy": entropy, "kl": kl, "clipped": outside}
    return loss, {name: one.item() for name, one in named.items()}


def optimizer_of(agent: Agent, settings: Settings) -> torch.optim.Optimizer:
    """Return the optimizer of all parameters."""
    # 21. Adam with an epsilon of 1e-5 (37 details, 3; SB3). The rate is constant (SB3; CleanRL's falls to 0).
    return torch.optim.Adam(agent.parameters(), lr=settings.learning_rate, eps=1e-5)


def evaluate(agent: Agent, settings: Settings, episodes: int = 20) -> float:
    """Return the mean return of episodes with the most likely actions."""
    env, total = gymnasium.make(settings.env), 0.0
    for episode in range(episodes):
        observation, ended = env.reset(seed=1_000_000 + episode)[0], False
        while not ended:
            with torch.no_grad():
                outputs = agent.policy(agent.normalized(np.asarray(observation, np.float32)[None]))
            action = agent.for_environment(outputs if agent.is_box else outputs.argmax(-1))[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated
    return total / episodes


def train(settings: Settings) -> float:
    """Train, write a line every few rounds, and return the mean return of an evaluation."""
    torch.manual_seed(settings.seed)
    order, envs = np.random.default_rng(settings.seed), Environments(settings)
    agent = Agent(envs.envs[0].observation_space, envs.envs[0].action_space)
    optimizer, round_steps = optimizer_of(agent, settings), settings.envs * settings.rollout
    for done in range(round_steps, settings.steps + round_steps, round_steps):
        report = learn(agent, optimizer, collect(agent, envs, settings.rollout), settings, order.permutation)
        if done // round_steps % max(8192 // round_steps, 1) == 0:
            numbers = "  ".join(f"{name} {value:.4g}" for name, value in report.items())
            mean = np.mean(envs.ended[-100:]) if envs.ended else float("nan")
            sys.stdout.write(f"{done:>9,} steps  return {mean:.1f}  {numbers}\n")
    return evaluate(agent, settings)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="PPO on one page")
    for field in fields(Settings):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    torch.set_num_threads(1)
    given = Settings(**vars(parser.parse_args()))
    sys.stdout.write(f"mean return of 20 episodes: {train(given):.1f}\n")
