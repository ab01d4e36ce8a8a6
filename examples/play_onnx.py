"""Plays CartPole with a policy that `hive export` wrote. It needs onnxruntime and Gymnasium, not hive and not torch.

hive up examples/cartpole.toml && hive export -o cartpole.onnx
python examples/play_onnx.py cartpole.onnx      ten episodes have a mean return of 500: 1 s
"""

from __future__ import annotations

import sys

import gymnasium
import onnxruntime


def play(file: str, episodes: int) -> list[float]:
    policy, env, returns = onnxruntime.InferenceSession(file), gymnasium.make("CartPole-v1"), []
    for seed in range(episodes):
        (observation, _), total, ended = env.reset(seed=seed), 0.0, False
        while not ended:
            (actions,) = policy.run(["action"], {"observation": observation[None]})
            observation, reward, terminated, truncated, _ = env.step(actions[0])
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/play_onnx.py FILE.onnx")
    played = play(sys.argv[1], episodes=10)
    sys.stdout.write(f"mean return of {len(played)} episodes: {sum(played) / len(played):.1f}\n")
