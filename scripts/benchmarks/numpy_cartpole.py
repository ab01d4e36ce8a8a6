"""CartPole as Gymnasium's NumPy vector class, under its own id: `env.vector = "native"` of CartPole-v1 is hive's."""

import gymnasium

gymnasium.register(
    "Vector-v0",
    vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",
    max_episode_steps=500,
)
