"""SAC on one page: what hive's scheme `sac` computes with its defaults for box actions, by torch and Gymnasium alone.

The details that matter are numbered; each names its source. The test of this file gives `update` the weights, batches
and noise of a run of hive, and finds the same weights after ten updates, to 1e-6.

    paper       Haarnoja et al. 2018b, "Soft Actor-Critic Algorithms and Applications", https://arxiv.org/abs/1812.05905
    first       Haarnoja et al. 2018a, https://arxiv.org/abs/1801.01290
    SB3         Stable-Baselines3; CleanRL: its sac_continuous_action.py

    python examples/sac.py      Pendulum-v1: a mean return of -150 after 10,000 steps: 150 s
    python examples/sac.py --env Hopper-v5 --steps 200_000 --discount 0.98
"""

from __future__ import annotations

import argparse
import copy
import math
import sys
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import softplus

Floats = NDArray[Any]


@dataclass(frozen=True)
class Settings:
    """The keys of hive's `sac` and their defaults; each is an option of the command line."""

    env: str = "Pendulum-v1"
    steps: int = 10_000
    seed: int = 1
    learning_starts: int = 100  # steps with uniform actions before the first update
    batch_size: int = 256
    replay_capacity: int = 1_000_000
    learning_rate: float = 3e-4  # of actor, critics and temperature (paper, appendix D; SB3)
    discount: float = 0.99
    target_rate: float = 0.005
    target_entropy: float = -1.0  # in nats, for each element of an action


# --- networks


def layers(inputs: int, outputs: int) -> nn.Sequential:
    """Return a network float32 [N, inputs] -> [N, outputs] with two hidden layers."""
    # 1. Two layers of 256 with ReLU (paper, appendix D; SB3; CleanRL), and the initial values of torch.nn.Linear:
    #    weights and biases uniform in +-1 / sqrt(inputs) (SB3; CleanRL).
    return nn.Sequential(
        *(nn.Linear(inputs, 256), nn.ReLU()),
        *(nn.Linear(256, 256), nn.ReLU()),
        nn.Linear(256, outputs),
    )


class Critics(nn.Module):
    """Values of observations [N, size] and actions [N, width], which are scaled to -1 ... 1."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        # 2. Two critics without common layers (Fujimoto et al. 2018; paper, section 6).
        self.parts = nn.ModuleList(layers(size + width, 1) for _ in range(2))

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return the values of both critics, [2, N]."""
        inputs = torch.cat([observations, actions], -1)
        return torch.stack([part(inputs).squeeze(-1) for part in self.parts])


class Agent(nn.Module):
    """The actor, the critics, their targets and the temperature."""

    def __init__(self, observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> None:
        super().__init__()
        if not isinstance(observation, gymnasium.spaces.Box) or len(observation.shape) != 1:
            raise ValueError(f"observations are {observation}: this page learns from a vector of numbers")
        if not isinstance(action, gymnasium.spaces.Box) or not action.is_bounded():
            raise ValueError(f"actions are {action}: this page has boxes with bounds")
        size, self.width = observation.shape[0], math.prod(action.shape)
        self.action = action
        self.actor = layers(size, 2 * self.width)
        self.critics = Critics(size, self.width)
        # 3. Targets of the critics, which begin as copies; the actor has none (first, algorithm 1; SB3; CleanRL).
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        # 4. The logarithm of the temperature is the parameter, so that the temperature stays positive; it is 0 at first
        #    (SB3; CleanRL).
        self.log_temperature = nn.Parameter(torch.zeros(()))

    def gaussian(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and log deviations, each [N, width], of actions before tanh."""
        mean, log_std = self.actor(observations).chunk(2, -1)
        # 5. Both depend on the observation. Log deviations are clamped to -20 ... 2 (code of the first paper; SB3;
        #    CleanRL maps them into -5 ... 2 by tanh).
        return mean, log_std.clamp(-20.0, 2.0)

    def sample(self, observations: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions [N, width], scaled to -1 ... 1, and their log densities [N]. noise: N(0, 1), [N, width]."""
        # 6. The reparametrization trick: an action is a function of the outputs and of noise, so a gradient flows
        #    through it (first, equation 11).
        mean, log_std = self.gaussian(observations)
        variables = mean + log_std.exp() * noise
        # 7. tanh maps the Gaussian into the bounds, and its slope corrects the density (first, appendix C). The slope's
        #    logarithm, log(1 - tanh(u)^2), is written so that it is finite for any u (TensorFlow Probability's Tanh;
        #    SB3 and CleanRL add 1e-6 instead). Densities are those of actions scaled to -1 ... 1 (SB3).
        log_slope = 2.0 * (math.log(2.0) - variables - softplus(-2.0 * variables))
        log_density = -0.5 * noise.square() - log_std - 0.5 * math.log(2.0 * math.pi)
        return variables.tanh(), (log_density - log_slope).sum(-1)

    def for_environment(self, scaled: Tensor) -> Floats:
        """Return an action [width], scaled to -1 ... 1, in the environment's units."""
        low, high = self.action.low, self.action.high
        action: Floats = (low + high) / 2 + (high - low) / 2 * scaled.numpy().reshape(self.action.shape)
        return action.clip(low, high).astype(self.action.dtype)


# --- the replay memory


class Batch(NamedTuple):
    """N transitions."""

    observations: Tensor  # float32 [N, size]
    actions: Tensor  # float32 [N, width], scaled to -1 ... 1
    rewards: Tensor  # float32 [N]
    following: Tensor  # float32 [N, size]
    terminated: Tensor  # bool [N]


class ReplayMemory:
    """The newest `capacity` transitions."""

    def __init__(self, capacity: int, size: int, width: int, seed: int) -> None:
        observations, following = torch.zeros(2, capacity, size)
        actions, rewards = torch.zeros(capacity, width), torch.zeros(capacity)
        self.columns = Batch(observations, actions, rewards, following, torch.zeros(capacity, dtype=torch.bool))
        self.capacity, self.written, self.random = capacity, 0, np.random.default_rng(seed)

    def add(self, *step: Any) -> None:
        """Add a transition, the columns of a Batch."""
        for column, value in zip(self.columns, step, strict=True):
            column[self.written % self.capacity] = torch.as_tensor(value)
        self.written += 1

    def sample(self, count: int) -> Batch:
        """Draw transitions."""
        # 8. All transitions are equally likely. The memory is cut into `count` equal parts and one is drawn from each,
        #    which spreads a batch evenly over the run (the strata of Schaul et al. 2016; SB3 and CleanRL draw freely).
        held = min(self.written, self.capacity)
        rows = ((np.arange(count) + self.random.random(count)) * held / count).astype(np.int64)
        picked = torch.from_numpy(np.minimum(rows, held - 1))
        return Batch(*(column[picked] for column in self.columns))


# --- learning


def update(
    agent: Agent,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    settings: Settings,
    noise_of_targets: Tensor,
    noise: Tensor,
) -> dict[str, float]:
    """Make one update of all networks, and return what is reported. noise: N(0, 1), [N, width], of two draws."""
    temperature = agent.log_temperature.exp().item()
    with torch.no_grad():
        # 9. The target is the reward plus the soft value of the next observation: the smaller one of the target
        #    critics' values of a new action, less temperature times its log density (paper, equations 3 and 5).
        actions, log_probs = agent.sample(batch.following, noise_of_targets)
        soft = agent.targets(batch.following, actions).amin(0) - temperature * log_probs
        # 10. Only a termination ends the rewards. After a time limit the last observation has its value (Pardo et al.
        #     2018; SB3; CleanRL).
        targets = batch.rewards + torch.where(batch.terminated, 0.0, settings.discount * soft)
    # 11. Half the squared error, summed over the critics (paper, equation 5; SB3. CleanRL has no half).
    errors = agent.critics(batch.observations, batch.actions) - targets
    critic_loss = 0.5 * errors.square().mean(-1).sum()
    # 12. The actor seeks actions of high value and low density, by the smaller one of both critics (paper, equation 9).
    actions, log_probs = agent.sample(batch.observations, noise)
    values = agent.critics(batch.observations, actions).amin(0)
    actor_loss = (temperature * log_probs - values).mean()
    # 13. The temperature rises where the entropy is below its target, -1 for each element of an action (paper, equation
    #     18 and appendix D). The loss has the logarithm in place of the temperature (code of the paper; SB3).
    target_entropy = settings.target_entropy * agent.width
    temperature_loss = -agent.log_temperature * (log_probs.detach().mean() + target_entropy)
    # 14. Each loss moves its own networks only: the critics stay as they are in the actor's loss (paper, algorithm 1).
    # 15. All gradients are those of the same weights, and one step follows. SB3 and CleanRL step the critics first, and
    #     the actor by the new ones, as hive does with `critic_first`.
    losses = [
        (critic_loss, list(agent.critics.parameters())),
        (actor_loss, list(agent.actor.parameters())),
        (temperature_loss, [agent.log_temperature]),
    ]
    for loss, parameters in losses:
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
    optimizer.step()
    # 16. After each update the targets follow by a two-hundredth (paper, appendix D; SB3; CleanRL).
    with torch.no_grad():
        for target, online in zip(agent.targets.parameters(), agent.critics.parameters(), strict=True):
            target.mul_(1.0 - settings.target_rate).add_(online, alpha=settings.target_rate)
    named = {"critic": critic_loss, "actor": actor_loss, "error": errors.abs().mean(), "entropy": -log_probs.mean()}
    return {**{name: one.item() for name, one in named.items()}, "temperature": temperature}


def optimizer_of(agent: Agent, settings: Settings) -> torch.optim.Optimizer:
    """Return the optimizer of all parameters."""
    # 17. Adam with torch's constants, and no limit of the gradient's norm (paper, appendix D; SB3; CleanRL). Its steps
    #     are element by element, so one optimizer does what three would.
    parameters = [*agent.actor.parameters(), *agent.critics.parameters(), agent.log_temperature]
    return torch.optim.Adam(parameters, lr=settings.learning_rate, eps=1e-8)


def evaluate(agent: Agent, settings: Settings, episodes: int = 20) -> float:
    """Return the mean return of episodes without noise."""
    env, total = gymnasium.make(settings.env), 0.0
    for episode in range(episodes):
        observation, ended = env.reset(seed=1_000_000 + episode)[0], False
        while not ended:
            with torch.no_grad():
                # 18. Evaluations act by tanh of the mean (first, section 5; SB3).
                scaled = agent.gaussian(torch.as_tensor(observation, dtype=torch.float32)[None])[0].tanh()[0]
            observation, reward, terminated, truncated, _ = env.step(agent.for_environment(scaled))
            total, ended = total + float(reward), terminated or truncated
    return total / episodes


def train(settings: Settings) -> float:
    """Train, write a line every 1,000 steps, and return the mean return of an evaluation."""
    torch.manual_seed(settings.seed)
    env = gymnasium.make(settings.env)
    agent = Agent(env.observation_space, env.action_space)
    optimizer, returns, report = optimizer_of(agent, settings), [0.0], dict[str, float]()
    observation = torch.as_tensor(env.reset(seed=settings.seed)[0], dtype=torch.float32)
    memory = ReplayMemory(min(settings.replay_capacity, settings.steps), len(observation), agent.width, settings.seed)
    for step in range(1, settings.steps + 1):
        # 19. The first actions are uniform between the bounds, so that the memory begins with all kinds of them (SB3;
        #     CleanRL). Later ones are samples of the policy: the entropy explores.
        with torch.no_grad():
            if step <= settings.learning_starts:
                action = 2.0 * torch.rand(agent.width) - 1.0
            else:
                action = agent.sample(observation[None], torch.randn(1, agent.width))[0][0]
        after, reward, terminated, truncated, _ = env.step(agent.for_environment(action))
        following = torch.as_tensor(after, dtype=torch.float32)
        memory.add(observation, action, float(reward), following, terminated)
        observation, returns[-1] = following, returns[-1] + float(reward)
        if terminated or truncated:
            observation = torch.as_tensor(env.reset()[0], dtype=torch.float32)
            returns.append(0.0)
        # 20. One update for each step (paper, appendix D; SB3; CleanRL). hive's collector by default acts meanwhile, by
        #     the weights of the update before; with `collection.communication = "synchronous"` it waits as this loop.
        if step > settings.learning_starts:
            draws = torch.randn(2, settings.batch_size, agent.width)
            report = update(agent, optimizer, memory.sample(settings.batch_size), settings, *draws)
        if step % 1_000 == 0:
            numbers = "  ".join(f"{name} {value:.4g}" for name, value in report.items())
            mean = np.mean(returns[:-1][-20:]) if len(returns) > 1 else float("nan")
            sys.stdout.write(f"{step:>9,} steps  return {mean:.1f}  {numbers}\n")
    return evaluate(agent, settings)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="SAC on one page")
    for field in fields(Settings):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    torch.set_num_threads(1)
    given = Settings(**vars(parser.parse_args()))
    sys.stdout.write(f"mean return of 20 episodes: {train(given):.1f}\n")
