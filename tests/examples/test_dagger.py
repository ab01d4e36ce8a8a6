"""DAgger: the expert drives well, and the student nearly reaches it by learning from its own states."""

from __future__ import annotations

import dagger
import numpy as np
from short_runs import short_run

from hive.envs import Recipe, make_environment

NEAR = -125.0  # an episode ends at -200; the expert's mean is -107


def test_the_expert_drives_up_the_hill() -> None:
    environment, returns = make_environment(Recipe("MountainCar-v0")), []
    for seed in range(20):
        (observation, _), total, over = environment.reset(seed=seed), 0.0, False
        while not over:
            answer = dagger.expert(observation[None])[0]
            observation, reward, terminated, truncated, _ = environment.step(answer)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    assert -115.0 < np.mean(returns) < -100.0


def test_the_student_learns_to_drive() -> None:
    summary, _ = short_run(dagger.topology, None, f"custom.student.goal={NEAR}", "custom.student.updates=100")
    words = summary.stop_reason.split()
    assert float(words[2]) >= NEAR
    assert int(words[4]) >= 2  # one lesson driven by the expert, then at least one by the student
    assert summary.channels["lessons"]["produced"] >= 2 * int(words[4])
