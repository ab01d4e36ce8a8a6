"""Hyper-parameters of rl-baselines3-zoo: every key becomes one of hive or a note, and a hostile file is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hive.config import Config, load_config, template
from hive.config.zoo.draft import Actions, Draft
from hive.config.zoo.entries import read_entry
from hive.config.zoo.environment import translate_environment
from hive.config.zoo.learning import translate_learning
from hive.config.zoo.python_values import Named, values_in
from hive.errors import ConfigError, UsageError

pytest.importorskip("yaml")

PPO = """
default: &usual
  n_timesteps: !!float 1e6
  policy: 'MlpPolicy'
Reacher-v2: &deep
  <<: *usual
  normalize: "{'norm_obs': True, 'norm_reward': False}"
  n_envs: 2
  n_steps: 512
  batch_size: 256
  learning_rate: lin_3e-4
  clip_range: lin_0.4
  target_kl: 0.04
  use_sde: True
  sde_sample_freq: 4
  policy_kwargs: "dict(log_std_init=-2,
                       ortho_init=False,
                       activation_fn=nn.ReLU,
                       net_arch=[dict(pi=[256, 256], vf=[64])]
                       )"
Reacher-v10:
  <<: *deep
  n_envs: 4
  gamma: 3e-1
atari:
  env_wrapper:
    - stable_baselines3.common.atari_wrappers.AtariWrapper
  frame_stack: 4
  policy: 'CnnPolicy'
  n_timesteps: 1000
"""
DISCRETE, BOX = Actions(0, unit=True), Actions(3, unit=False)


def translated(
    folder: Path, text: str, env_id: str, file: str = "ppo.yml", actions: Actions = DISCRETE, *, atari: bool = False
) -> tuple[Draft, Config]:
    """The translation of an environment's entry, and the config that it is."""
    (folder / file).write_text(text)
    entry = read_entry(folder / file, env_id, None, atari=atari)
    draft = Draft(entry)
    translate_environment(draft, atari=atari)
    translate_learning(draft, actions)
    notes = [str(note) for note in draft.notes]
    return draft, load_config(
        "t", text=template(env_id, entry.scheme, [*draft.settings.values()], entry.origin, notes=notes)
    )


def check(config: Config, expected: dict[str, Any]) -> None:
    """Compare keys by their full names."""
    assert {name: config.value(name) for name in expected} == expected


def test_an_entry_with_merges_schedules_and_layers(tmp_path: Path) -> None:
    draft, config = translated(tmp_path, PPO, "Reacher-v11", actions=BOX)
    expected = {
        "run.steps": 1_000_000,
        "env.scale_actions": False,
        "collection.envs": 4,
        "collection.rollout": 512,
        "algorithm.minibatches": 8,
        "algorithm.learning_rate": 3e-4,
        "algorithm.learning_rate_schedule": "linear",
        "algorithm.clip_range": 0.4,
        "algorithm.clip_range_schedule": "linear",
        "algorithm.discount": 0.3,  # a text for YAML
        "algorithm.target_kl": 0.04,
        "network.normalize_observations": True,
        "network.normalize_rewards": False,
        "network.action_distribution": "gsde",
        "network.noise_steps": 4,
        "network.initial_deviation": 0.1353,
        "network.initialization": "uniform",
        "network.activation": "relu",
        "network.middleware": (256, 256),
        "network.value_middleware": (64,),
    }
    check(config, expected)
    assert (draft.entry.name, draft.notes) == ("Reacher-v10", [])


def test_a_game_has_the_preset_with_the_options_of_its_wrapper(tmp_path: Path) -> None:
    _, config = translated(tmp_path, PPO, "ALE/Pong-v5", atari=True)
    expected = {"env.preset": "atari", "env.options": {"terminal_on_life_loss": True}, "env.frame_stack": 4}
    expected |= {"network.middleware": (), "network.separate_networks": False, "algorithm.minibatches": 32}
    check(config, expected)


@pytest.mark.parametrize(
    ("file", "entry", "expected"),
    [
        (
            "dqn.yml",
            "train_freq: 256, gradient_steps: 128, target_update_interval: 10, exploration_fraction: 0.16",
            {
                "algorithm.updates_per_step": "1/2",
                "algorithm.target_interval": 128,
                "algorithm.exploration_steps": 1600,
            },
        ),
        (
            "qrdqn.yml",
            "n_envs: 2, train_freq: 4, gradient_steps: -1, batch_size: 64, policy_kwargs: 'dict(n_quantiles=10)'",
            {
                "algorithm.updates_per_step": "1",
                "algorithm.quantiles": 10,
                "algorithm.optimizer_epsilon": 0.01 / 64,
                "network.middleware": (64, 64),
            },
        ),
        ("dqn.yml", "policy: CnnPolicy", {"network.middleware": (), "network.activation": "relu"}),
        (
            "sac.yml",
            "ent_coef: auto_0.1, target_entropy: -6, train_freq: [1, episode], learning_rate: lin_7.3e-4",
            {
                "algorithm.temperature": 0.1,
                "algorithm.learn_temperature": True,
                "algorithm.target_entropy": -2.0,
                "algorithm.learning_rate_schedule": "linear",
            },
        ),
        (
            "td3.yml",
            "noise_type: normal, noise_std: 0.1, policy_kwargs: 'dict(net_arch=dict(pi=[8], qf=[9]))'",
            {
                "algorithm.exploration_noise": 0.1,
                "network.middleware": (8,),
                "network.value_middleware": (9,),
                "collection.rollout": 1,
            },
        ),
        (
            "ppo_lstm.yml",
            "n_envs: 2, n_steps: 64, batch_size: 32, policy_kwargs: 'dict(lstm_hidden_size=32)'",
            {"network.memory": "lstm", "network.memory_size": 32, "algorithm.minibatches": 2},
        ),
        (
            "a2c.yml",
            "policy_kwargs: 'dict(optimizer_class=RMSpropTFLike, optimizer_kwargs=dict(eps=1e-4))'",
            {"algorithm.optimizer": "rmsprop", "algorithm.optimizer_epsilon": 1e-4, "collection.rollout": 5},
        ),
    ],
)
def test_conversions_of_each_algorithm(tmp_path: Path, file: str, entry: str, expected: dict[str, Any]) -> None:
    _, config = translated(tmp_path, f"Own-v0: {{n_timesteps: 10000, {entry}}}", "Own-v0", file, BOX)
    check(config, expected)


@pytest.mark.parametrize(
    ("file", "entry", "what"),
    [
        ("sac.yml", "ent_coef: 0.1, target_entropy: -6", "target_entropy: -6"),
        ("td3.yml", "target_policy_noise: 0.0, target_noise_clip: 0.3", "target_noise_clip: 0.3"),
        ("a2c.yml", "policy_kwargs: 'dict(optimizer_kwargs=dict(alpha=0.9))'", "policy_kwargs.optimizer_kwargs"),
    ],
)
def test_keys_without_an_effect_are_left_out(tmp_path: Path, file: str, entry: str, what: str) -> None:
    draft, _ = translated(
        tmp_path, f"Own-v0: {{n_timesteps: 10000, use_rms_prop: false, {entry}}}", "Own-v0", file, BOX
    )
    (note,) = [note for note in draft.notes if note.what.startswith(what)]
    assert "no effect" in note.text


def test_no_key_is_left_out_in_silence(tmp_path: Path) -> None:
    keys = {
        "n_envs: 8": "",
        "verbose: 1": "hive has record.log_level",
        "sde_sample_freq: 4": "without gSDE it has no effect",
        "n_sampled_goal: 4": "hive has nothing like it",
        "tau: 0.1": "ppo has no algorithm.target_rate",
        "env_wrapper: [rl_zoo3.wrappers.FrameSkip: {skip: 2}, absent_package.Own]": "`absent_package` is not installed",
        "callback: ['x\\ny']": "hive calls classes of run.callbacks",
    }
    text = "Own-v0:\n" + "".join(f"  {key}\n" for key in ("n_timesteps: 1000", *keys))
    draft, config = translated(tmp_path, text, "Own-v0")
    noted = [str(note) for note in draft.notes]
    for key, reason in keys.items():
        name = key.partition(":")[0]
        assert any(f": {name}: " in note and reason in note for note in noted) is bool(reason), key
    assert config.env.wrappers == ({"name": "RepeatAction", "num_repeats": 2},)


def test_an_environment_without_an_entry(tmp_path: Path) -> None:
    (tmp_path / "ppo.yml").write_text("CartPole-v1: {n_envs: 1}\n")
    with pytest.raises(ConfigError, match="no entry for `CartPol-v1`") as caught:
        read_entry(tmp_path / "ppo.yml", "CartPol-v1", None, atari=False)
    assert caught.value.hint == "near ones: CartPole-v1"
    (tmp_path / "ppo.yml").write_text(PPO)
    found = read_entry(tmp_path / "ppo.yml", "Reaper-v1", None, atari=False)
    assert (found.name, found.near) == ("default", ("Reacher-v10", "Reacher-v2"))


@pytest.mark.parametrize(("file", "scheme"), [("trpo.yml", None), ("ppo.yml", "sac"), ("ppo.yml", "impala")])
def test_a_file_of_another_algorithm(tmp_path: Path, file: str, scheme: str | None) -> None:
    (tmp_path / file).write_text(PPO)
    with pytest.raises(UsageError):
        read_entry(tmp_path / file, "Reacher-v2", scheme, atari=False)


@pytest.mark.parametrize(
    ("file", "entry", "message"),
    [
        ("td3.yml", "noise_type: normal", "noise_type: normal: there is no noise_std"),
        ("td3.yml", "noise_type: sparkle", "noise_type: sparkle: expected normal, ornstein"),
        (
            "ppo_lstm.yml",
            "policy_kwargs: 'dict(enable_critic_lstm=3)'",
            "enable_critic_lstm: 3: expected True or False",
        ),
    ],
)
def test_an_invalid_value_of_an_algorithm(tmp_path: Path, file: str, entry: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(tmp_path, f"Own-v0: {{n_timesteps: 10, {entry}}}", "Own-v0", file, BOX)


def test_keys_that_mean_what_hive_does_have_their_line(tmp_path: Path) -> None:
    draft, _ = translated(
        tmp_path, "Own-v0: {n_timesteps: 10000, noise_type: normal, noise_std: 0.1}", "Own-v0", "td3.yml", BOX
    )
    assert draft.settings["algorithm.exploration_noise"].reason == "noise_type: normal, noise_std: 0.1"
    text = "Own-v0: {n_timesteps: 10000, strange.key: 7, policy_kwargs: 'dict(enable_critic_lstm=True)'}"
    draft, _ = translated(tmp_path, text, "Own-v0", "ppo_lstm.yml", BOX)
    assert "enable_critic_lstm: true" in draft.settings["network.separate_networks"].reason
    assert any("strange.key: 7" in str(note) for note in draft.notes)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("n_envs: many", "n_envs: many: expected a number"),
        ("gamma: 1.5", "gamma: 1.5: algorithm.discount is a number >= 0 and <= 1"),
        ("policy_kwargs: \"dict(net_arch=open('x').read())\"", "is no value"),
        ("normalize: [1]", "normalize: \\[1\\]: expected true, false"),
        ("env_wrapper: {a.B: 1}", "expected `package.module.Class`"),
        ("batch_size: 0", "batch_size: 0: expected a whole number >= 1"),
    ],
)
def test_an_invalid_value(tmp_path: Path, entry: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(tmp_path, f"Own-v0:\n  n_timesteps: 10\n  {entry}\n", "Own-v0")


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 6)}]\n" for n in range(1, 30))
MERGES = f"a: &a {{{', '.join(f'k{n}: 1' for n in range(100))}}}\n" + "".join(f"b{n}: {{<<: *a}}\n" for n in range(30))


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (LAUGHS, "its aliases make more than 20,000 values of it"),
        (MERGES, "merges copy more than 2,000 entries"),
        ("a: [" + "*a, " * 300 + "1]\n", "undefined alias"),
        ("a: &a [" + "*a, " * 300 + "1]\n", "more than 200 aliases"),
        ("a: &a [*a]\n", "a value contains itself"),
        ("a: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
        ("[" * 20_000, "nested too deeply"),
        ("a: {b: 1, b: 2}\n", "`b` stands twice in the table of line 1"),
        ("a: !!int " + "9" * 5_000, "Exceeds the limit"),
        ("a: \x00", "special characters are not allowed"),
        ("- a\n", "is not a table of environments"),
        ("# " + "x" * (1 << 16), "is larger than 64 KiB"),
        ("CartPole-v1: 3\n", "is no table of hyper-parameters"),
    ],
    ids=lambda value: value[:20],
)
def test_a_hostile_file(tmp_path: Path, text: str, cause: str) -> None:
    (tmp_path / "ppo.yml").write_text(text)
    with pytest.raises(ConfigError, match=cause):
        read_entry(tmp_path / "ppo.yml", "CartPole-v1", None, atari=False)


def test_values_of_python_without_running_it() -> None:
    found = values_in("dict(a=[1, -2.5, (None, True)], b={'c': nn.ReLU}, d=lstm)")
    assert found == {"a": [1, -2.5, [None, True]], "b": {"c": "nn.ReLU"}, "d": "lstm"}
    assert isinstance(found["b"]["c"], Named)
    for text in ("__import__('os').system('true')", "dict(**x)", "[x for x in y]", "1 +", "(" * 3_000, "2 ** 9", "f()"):
        with pytest.raises(ValueError, match=r"no value|no expression"):
            values_in(text)
