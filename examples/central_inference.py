"""Central batched inference (SEED RL, Espeholt et al. 2020): one player computes the actions of all collectors.

    learner ── behaviour ──> player <── act(observations) ── steppers ── rollouts ──> gradient workers

This is the built-in trainer with other collectors. A stepper holds environments but no network, and requests actions
from the player. The player answers all waiting requests in one forward pass, while the next ones arrive. Gradient
workers, learner and recorder are unchanged, and any actor may be killed. Collection is synchronous: a stepper begins
rollout n only when policy version n is published, which requires all rollouts n - 1. So every request is for the latest
version.

    python examples/central_inference.py      CartPole-v1 to a mean return of 475 over 100 episodes, in 49 s
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import hive
from hive.networks import FlatParameters

ROW = ("rewards", "terminated", "truncated", "valid", "episode_returns", "episode_lengths", "final_index")


class Player(hive.Actor):
    behaviour = hive.Subscription(hive.Weights)

    def __init__(self, blueprint: hive.Blueprint) -> None:
        self.network = blueprint.network()
        self.flat = FlatParameters(self.network)
        self.observation = blueprint.environment.observation
        self.idle, self.busy = self.status.phase("wait requests", hive.WAIT_IN), self.status.phase("forward")
        self.asked: list[tuple[bytes, asyncio.Future[bytes]]] = []
        self.some = asyncio.Event()

    @hive.endpoint
    async def act(self, observations: bytes) -> bytes:
        """Return the policy's outputs, float32 [B, width], for observations [B, ...], both as bytes."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.asked.append((observations, answer))
        self.some.set()
        return await answer

    async def run(self) -> None:
        while True:
            self.status.enter(self.idle)  # shown by `hive ps`; a declared wait never counts as stuck
            await self.some.wait()
            self.status.enter(self.busy)
            self.some.clear()
            (observations, answers), self.asked = zip(*self.asked, strict=True), []
            _, weights = await self.behaviour.pin()
            self.flat.bind(weights, read_only=True)
            batch = np.frombuffer(b"".join(observations), self.observation.dtype).reshape(-1, *self.observation.shape)
            with torch.inference_mode():
                outputs = self.network(torch.tensor(batch))[0].numpy()
            self.behaviour.unpin()
            for part, answer in zip(np.split(outputs, len(answers)), answers, strict=True):
                answer.set_result(part.tobytes())


class Stepper(hive.Actor):
    role = "collector"
    rollouts = hive.SlotOutlet(hive.RolloutReady)
    behaviour = hive.Subscription(hive.Weights)

    def __init__(self, blueprint: hive.Blueprint, player: hive.Handle) -> None:
        self.player, self.policy, self.seed = player, blueprint.distribution, blueprint.config.run.seed
        self.vector, observation = blueprint.vector(), blueprint.environment.observation
        self.current = np.zeros((self.vector.count, *observation.shape), observation.dtype)
        first = self.index * self.vector.count
        seeds = hive.stream_seeds(self.seed, hive.Purpose.environment, first, self.vector.count, self.incarnation)
        self.vector.reset(seeds, self.current)

    async def run(self) -> None:
        while True:
            slot = await self.rollouts.reserve()
            rollout, number = slot.arrays, slot.sequence
            await self.behaviour.pin(number)
            rollout["observations"][0], finals = self.current, hive.FinalObservations(rollout["final_observations"])
            noise, length = self.noise(number, rollout["rewards"].shape), 0
            while length < len(noise):
                observations, row = rollout["observations"][length : length + 2], {k: rollout[k][length] for k in ROW}
                outputs = np.frombuffer(await self.player.act(observations[0].tobytes()), np.float32)
                actions = self.policy.sample_numpy(outputs.reshape(self.vector.count, -1), noise[length])
                rollout["actions"][length] = actions
                self.vector.step(actions, hive.StepRow(observations=observations[1], finals=finals, **row))
                length += 1
            self.current[...] = rollout["observations"][length]
            self.behaviour.unpin()
            hive.Rollout.write_header(rollout, number, length, finals.count, self.index, number)
            self.rollouts.commit(slot)

    def noise(self, number: int, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return the noise of a rollout's actions. It depends on the number only, so a repeated rollout is equal."""
        random = hive.stream(self.seed, hive.Purpose.action, self.index, number)
        return self.policy.draw_noise(random, *shape)


def topology(config: hive.Config) -> hive.Topology:
    t = hive.schemes.build(config)
    player = t.add(Player, blueprint=hive.schemes.blueprint_of(t))
    t.connect(t["learner"].behaviour, player.behaviour)
    t.replace("collectors", Stepper, player=player.handle())
    return t


if __name__ == "__main__":
    synchronous = ["collection.communication='synchronous'", "collection.workers=2", "collection.envs=4"]
    hive.run(topology, Path(__file__).with_name("cartpole.toml"), sets=synchronous)
