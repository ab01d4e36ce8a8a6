from __future__ import annotations

import pytest

from hive.config import load_config
from hive.config.run_names import trained_name
from hive.config.schema import NAME


@pytest.mark.parametrize(
    ("environment", "learner", "topology", "name"),
    [
        ("CartPole-v1", "ppo", "", "cartpole-ppo"),
        ("ALE/Pong-v5", "ppo", "", "pong-ppo"),
        ("dm_control/cartpole-swingup-v0", "sac", "", "cartpole-swingup-sac"),
        ("module:Coin", "ppo", "", "coin-ppo"),
        ("envs/coin.py:Coin", "ppo", "", "coin-ppo"),
        ("./libcoin.so:Coin", "c51", "", "coin-c51"),
        ("mpe2.simple_spread_v3:parallel_env", "ppo", "", "parallel_env-ppo"),
        ("mpe2:simple_spread_v3", "ppo", "", "simple_spread-ppo"),
        ("gymnasium_robotics:FetchReach-v4", "td3", "", "fetchreach-td3"),
        ("MiniGrid-Empty-8x8-v0", "dd-ppo", "", "minigrid-empty-8x8-dd-ppo"),
        ("CartPole-v1", "mine.schemes:Double_PPO", "", "cartpole-double_ppo"),
        ("CartPole-v1", "ppo", "examples/Curious.py", "cartpole-Curious"),
        ("", "ppo", "topologies/my tap.py:build", "my-tap"),
        ("", "ppo", "package.tap:build", "tap"),
        ("Größe (2)!", "ppo", "", "gr-e-2-ppo"),
        ("日本-v0", "ppo", "", "ppo"),
        ("x" * 100, "nstep-q", "", "x" * 56 + "-nstep-q"),
        ("coin:", "ppo", "", "coin-ppo"),
        ("", "", "", ""),
    ],
)
def test_a_run_is_named_after_what_it_trains(environment: str, learner: str, topology: str, name: str) -> None:
    assert trained_name(environment, learner, topology) == name
    assert not name or NAME.fullmatch(name)


@pytest.mark.parametrize(
    ("sets", "name"),
    [
        ((), "cartpole-ppo"),
        (("run.scheme=dd-ppo",), "cartpole-dd-ppo"),
        (("run.scheme=dqn", "algorithm.name=c51"), "cartpole-c51"),
        (("run.scheme=dd-ppo", "algorithm.name=ppo"), "cartpole-dd-ppo"),
        (("algorithm.name=mine:Careful",), "cartpole-careful"),
        (("env.id=Acrobot-v1",), "acrobot-ppo"),
        (("run.topology=league.py",), "cartpole-league"),
        (("run.name=fast",), "fast"),
    ],
)
def test_the_config_decides_and_not_its_file(sets: tuple[str, ...], name: str) -> None:
    text = '[run]\nscheme = "ppo"\n[env]\nid = "CartPole-v1"\n'
    assert load_config("fast.toml", sets, text=text).run.name == name


def test_no_environment_and_no_scheme_still_give_a_name() -> None:
    assert load_config("x.toml", ["run.topology=日本.py"], text="").run.name == "run"
