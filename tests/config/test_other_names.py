"""Keys of other trainers get a hint with hive's name."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

import hive
from hive.config import load_config
from hive.config.algorithms import ALGORITHMS
from hive.config.keys import keys_of
from hive.config.other_names import homes_of, is_key, note_on, other_names
from hive.config.schema import SECTIONS
from hive.errors import ConfigError, UsageError

TABLES = [*SECTIONS.items(), *(("algorithm", table) for table in ALGORITHMS.values())]
OTHER_NAMES, WITHOUT_ONE, OTHER_TABLES = map(other_names, ("keys", "notes", "tables"))
KEYS = {f"{section}.{name}" for section, table in TABLES for name in keys_of(table)}


def test_they_lead_to_keys_that_there_are() -> None:
    assert set(OTHER_NAMES.values()) <= KEYS


def test_none_is_a_key_or_a_table_itself() -> None:
    """Such a name would be refused, where it should be taken.

    Two are both, in different tables: `batch_size` of other algorithms, and `max_steps`, which is one of [evaluation].
    """
    others = (OTHER_NAMES.keys() | WITHOUT_ONE.keys()) - {"batch_size", "max_steps"}
    assert not others & {key.partition(".")[2] for key in KEYS}
    assert not others & SECTIONS.keys()
    assert not OTHER_NAMES.keys() & WITHOUT_ONE.keys()


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("lr", "hive calls it `algorithm.learning_rate`"),
        ("gamma", "hive calls it `algorithm.discount`"),
        ("ent_coef", "hive calls it `algorithm.entropy_weight`"),
        ("n_steps", "hive calls it `collection.rollout`"),
        ("n_envs", "hive calls it `collection.envs`"),
        ("total_timesteps", "hive calls it `run.steps`"),
        ("learning_rate", "did you mean `algorithm.learning_rate`?"),
        ("features_extractor_class", "hive calls it `network.extractor`"),
        ("net_arch", "hive calls it `network.middleware`; its `vf` or `qf` is `network.value_middleware`"),
        ("critic_middleware", "hive calls it `network.value_middleware`"),
        ("batch_size", "`algorithm.minibatches`"),
        ("buffer_size", "hive calls it `algorithm.replay_capacity`"),
        ("train_freq", "`algorithm.updates_per_step`"),
        ("utd_ratio", "hive calls it `algorithm.updates_per_step`"),
        ("learning_starts", "did you mean `algorithm.learning_starts`?"),
    ],
)
def test_a_bare_name_of_a_newcomer(name: str, note: str) -> None:
    with pytest.raises(ConfigError, match=rf"--set {name}=8: unknown key; .*{re.escape(note)}"):
        load_config("a.toml", [f"{name}=8"], text='[env]\nid = "CartPole-v1"\n')
    assert note in note_on(name)


def test_keys_are_known_by_their_full_names() -> None:
    assert all(map(is_key, KEYS))
    assert not any(map(is_key, ("learning_rate", "run.learning_rate", "algorithm.lr", "", "run.")))


@pytest.mark.parametrize("place", ["[algorithm]\ngamma = 0.9", "[run]\ngamma = 0.9", "gamma = 0.9", "[gamma]\nx = 1"])
def test_the_error_says_the_name_wherever_it_stands(place: str) -> None:
    with pytest.raises(ConfigError, match=r"hive calls it `algorithm\.discount`"):
        load_config("a.toml", text=f'{place}\n[env]\nid = "CartPole-v1"\n')


def test_a_key_of_replay_algorithms_is_explained_for_the_others() -> None:
    with pytest.raises(ConfigError, match=r"`batch_size` belongs to .*dqn.*; hive divides a round .* PPO's `algorithm"):
        load_config("a.toml", ["algorithm.batch_size=64"], text='[env]\nid = "CartPole-v1"\n')


def test_an_override_says_it_too() -> None:
    with pytest.raises(ConfigError, match=r"hive calls it `collection\.rollout`"):
        load_config("a.toml", ["collection.n_steps=5"], text='[env]\nid = "CartPole-v1"\n')


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("[policy]\nnet_arch = [64]", "hive calls it [network]; `net_arch` is `network.middleware`"),
        ("[ppo]\nbatch_size = 64\ngae_lambda = 1", "hive calls it [algorithm]; `gae_lambda` is `algorithm.gae_lambda`"),
        ("[policy_kwargs]\nsize = 3", "hive calls it [network]"),
        (
            "[model]\nactivation_fn = 1\nlr = 2",
            "`activation_fn` is `network.activation`; `lr` is `algorithm.learning_rate`",
        ),
        ("[PPO]\nclip_coef = 0.2", "hive calls it [algorithm]; `clip_coef` is `algorithm.clip_range`"),
        ("[replay-buffer]\nbuffer_size = 9", "hive calls it [algorithm]; `buffer_size` is `algorithm.replay_capacity`"),
        ("[Environment]\nx = 1", "hive calls it [env]"),
        ("[mystery]\ngamma = 0.9", "`gamma` is `algorithm.discount`"),
        ("[colection]\nx = 1", "did you mean `collection`?"),
    ],
)
def test_a_table_of_another_trainer(text: str, note: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("x.toml", text=f"{text}\n[env]\nid = 'CartPole-v1'\n")
    assert note in str(caught.value)
    assert "unknown table" in str(caught.value)


def test_the_tables_of_others_are_not_ours() -> None:
    assert not OTHER_TABLES.keys() & SECTIONS.keys()
    assert {*OTHER_TABLES.values()} <= SECTIONS.keys()


@pytest.mark.parametrize(
    ("scheme", "note"),
    [
        ("PPO", "did you mean `ppo`?"),
        ("DD_PPO", "did you mean `dd-ppo`?"),
        ("QR_DQN", "did you mean `qr-dqn`?"),
    ],
)
def test_a_scheme_with_capitals(scheme: str, note: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("x.toml", [f"run.scheme={scheme}"], text="env.id = 'CartPole-v1'\n")
    assert str(caught.value).endswith(note)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[run]\nsteps = 3", False),  # the error has a line that would add env.id
        ("[policy]\nx = 1", False),
        ("[xyzzy]\nx = 1\n[env]\nid = 'a'", True),
        ("[run]\nxyzzy = 1\n[env]\nid = 'a'", True),
        ("steps: 3", True),
        ("[run]\nsteps = 0\n[env]\nid = 'a'", False),
        ("[run]\nstep = 1\n[env]\nid = 'a'", False),
        ("[gradients]\ndevice = 'gpu'\n[env]\nid = 'a'", False),
    ],
)
def test_an_example_is_offered_to_whoever_has_not_seen_a_config(text: str, shown: bool) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("x.toml", text=text)
    assert ("`hive init CartPole-v1` writes a config that works" in caught.value.hint) is shown


ENV = "env.id = 'CartPole-v1'\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gradients.decentralised", "gradients.decentralized"),
        ("algorithm.adam_optimizer_beta1", "algorithm.adam_beta1"),
        ("algorithm.rms_prop_optimizer_decay", "algorithm.rmsprop_decay"),
    ],
)
def test_an_earlier_spelling_of_a_key_is_an_error_that_names_the_key(old: str, new: str) -> None:
    with pytest.raises(ConfigError, match=f"hive calls it `{re.escape(new)}`"):
        load_config("x.toml", text=f"{ENV}{old} = 1\n")


def test_a_key_without_a_name_makes_no_other_key_wrong() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("x.toml", text=f'{ENV}[algorithm]\ndiscount = 0.9\n"" = 1\n')
    assert "too" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "note"),
    [
        ("algorithm.learning_rate='linear'", '`algorithm.learning_rate_schedule = "linear"`'),
        ("env.name='CartPole-v1'", "hive calls it `env.id`"),
        ("env.size=3", "[env.options]"),
    ],
)
def test_a_key_in_the_wrong_place_has_a_way_out(key: str, note: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(note)):
        load_config("a.toml", [key], text='[env]\nid = "CartPole-v1"\n')


OWNERS: dict[str, Any] = {
    "hive": hive,
    "policy": hive.Policy,
    "result": hive.Result,
    "event": hive.RoundEvent,
    "callback": hive.Callback,
}


@pytest.mark.parametrize("table", OWNERS)
def test_names_of_python_are_answered_where_hive_does_not_have_them(table: str) -> None:
    owner = OWNERS[table]
    names = {name: way for name, way in other_names(table).items() if not name.startswith("__")}  # those are calls
    assert names
    assert not names.keys() & {*dir(owner), *getattr(owner, "__dataclass_fields__", ())}
    for name, way in names.items():
        with pytest.raises((ImportError, AttributeError)) as caught:
            getattr(owner if table == "hive" else owner.__new__(owner), name)
        assert caught.value.__notes__ == [f"hint: {way}"], name


def test_algorithms_are_answered_and_other_names_are_not() -> None:
    with pytest.raises(ImportError) as caught:
        from hive import PPO  # noqa: F401
    assert 'hive.train("ppo"' in caught.value.__notes__[0]
    assert not hasattr(hive, "nothing_of_this_name")
    policy = hive.Policy.__new__(hive.Policy)
    assert not hasattr(policy, "nothing_of_this_name")
    assert copy.copy(policy).__dict__ == {}
    with pytest.raises(TypeError) as wrong:
        policy(None, deterministic=True)
    assert "noise=" in wrong.value.__notes__[0]


WAYS = [way for table in ("hive", "policy", "result", "event", "callback") for way in other_names(table).values()]


@pytest.mark.parametrize("way", [way for way in WAYS if "hive.train(" in way], ids=str)
def test_the_keys_of_the_ways_in_python_are_accepted(way: str) -> None:
    """The calls of `hive.train` that hints show have keywords each of which is one key."""
    call = re.sub(r"\{.*\}", "", way.partition("hive.train(")[2].partition(")")[0])
    keywords = set(re.findall(r"(\w+)=(?=[^,])", call))
    for keyword in keywords - {"env"}:
        assert len(homes_of(keyword)) == 1, keyword


@pytest.mark.parametrize(
    ("act", "way"),
    [
        (lambda: hive.Policy("run"), "hive.load"),  # type: ignore[call-arg, arg-type]
        (lambda: hive.Config(), "hive.train"),  # type: ignore[call-arg]
        (lambda: hive.Trainer(env="CartPole-v1"), "hive.train"),  # type: ignore[call-arg]
        (lambda: hive.Result("cart-1"), "hive.Result.open"),  # type: ignore[call-arg]
        (lambda: hive.Result.__new__(hive.Result)[0], "result.mean_return_100"),  # type: ignore[index]
        (lambda: list(hive.Policy.__new__(hive.Policy)), "action = policy(observation)"),  # type: ignore[call-overload]
        (lambda: hive.evaluate("run", n_eval_episodes=5), "`episodes`"),  # type: ignore[call-arg]
        (lambda: hive.load("run", device="cuda"), "CPU"),  # type: ignore[call-arg]
    ],
)
def test_calls_of_another_form_are_answered_by_hive_s_way(act: Callable[[], object], way: str) -> None:
    with pytest.raises(TypeError) as raised:
        act()
    assert way in "".join(raised.value.__notes__)


def test_a_trainer_of_a_name_is_answered() -> None:
    with pytest.raises(UsageError, match="takes a hive") as raised:
        hive.Trainer("ppo")  # type: ignore[arg-type]
    assert "hive.train" in raised.value.hint


def test_an_error_inside_of_a_call_gets_no_hint() -> None:
    with pytest.raises(TypeError) as raised:
        hive.load(3)  # type: ignore[arg-type]
    assert not getattr(raised.value, "__notes__", [])
