"""Gradients: their form in shared memory, and the learner's reduction."""

from hive.gradients.blocks import EPISODES, SAMPLES, VERSION, clear, combine, gradient_layout, put_episodes

__all__ = ["EPISODES", "SAMPLES", "VERSION", "clear", "combine", "gradient_layout", "put_episodes"]
