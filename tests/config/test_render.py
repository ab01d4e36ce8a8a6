from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hive.config import Config, load_config, render, resolved
from hive.config.algorithms import ALGORITHMS
from hive.config.keys import Key, keys_of
from hive.config.refusals import KEYS, OF_BC, REPLAYING
from hive.config.rules import APART, IDLE
from hive.config.schema import SECTIONS
from hive.config.schemes import SCHEMES
from hive.config.values import toml_text
from hive.errors import ConfigError

ENV = '[env]\nid = "CartPole-v1"\n'
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
FREE = st.recursive(
    TEXT | st.booleans() | st.integers(-99, 99) | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
SPECIAL = {
    "run.name": st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,9}", fullmatch=True),
    "run.scheme": st.sampled_from(["a2c", "ppo", "sac", "rainbow", "single", "my.schemes:build"]),
    "run.topology": st.sampled_from(["mine.py", "/a/b.py:f", "my.own", "my.own:topology"]),
    "env.id": TEXT.filter(lambda text: text.isprintable() and text != ""),
    "env.command": st.sampled_from([[], ["./simulator", "--port", "{index + 47000}"]]),
    "env.connect": st.sampled_from(["none", "127.0.0.1:{index + 47000}", "unix:/a/b c-{index}"]),
    "env.options": st.dictionaries(TEXT, FREE, max_size=2),
    "env.reset_options": st.dictionaries(TEXT, FREE, max_size=2),
    "env.wrappers": st.lists(
        st.just("FlattenObservation")
        | st.dictionaries(TEXT, FREE, max_size=2).map(lambda table: {**table, "name": "a:B"}),
        max_size=2,
    ),
    "env.each": st.sampled_from([[], [{"index": 0, "options": {"a": "{index + 3}"}, "reset_options": {}}]]),
    "env.curriculum": st.sampled_from(
        [[], [{"steps": 5, "options": {"a": 1}}, {"return": 2.5, "options": {"b": "c"}}]]
    ),
    "run.callbacks": st.sampled_from([[], ["a:B", {"name": "a:C", "most": 3}]]),
    "evaluation.best_by": st.just("mean_return"),
    "env.processes": st.sampled_from(["0", "3", "each"]),
    "env.action_mask": st.sampled_from(["info", "allowed actions"]),
    "env.vector": st.just("auto"),
    "algorithm.replay_from": st.sampled_from(["", "dqn-1", "a/b.npz"]),
    "env.info": st.sampled_from([[], ["is_success", "two words"]]),
    "gradients.device": st.sampled_from(["auto", "cpu", "cuda", "cuda:3"]),
    "gradients.top_k": st.just(1.0),
    "checkpoint.every": st.sampled_from([{}, {"updates": 7}]),
    "evaluation.every": st.sampled_from([{}, {"updates": 7}]),
    "evaluation.envs": st.just(1),
    "evaluation.videos": st.just(0),
    "evaluation.env": st.sampled_from([{}, {"options": {"a": 1}, "wrappers": ["a:B"]}]),
    "collection.hosts": st.just([]),
    "evaluation.hosts": st.just([]),
    "hosts.cores": st.sampled_from([{}, {"left": 2, "right-1": 16}]),
    "hosts.address": st.just("10.0.0.1"),
    "run.replay_folder": st.just("/a/b c"),
    "run.init_from": st.sampled_from(["cartpole-1", "/a/b c"]),
    "run.update_hook": st.just("my.hooks:watch"),
    "run.setup": st.just("my.hooks:prepare"),
    "network.weights": st.sampled_from([{}, {"": "/a/b c", "body.0": {"file": "x", "prefix": "a.", "skip": ["fc.*"]}}]),
    "network.frozen": st.sampled_from([[], ["encoder.*", "a b"]]),
    "network.critic_parts": st.sampled_from([[], ["state", "arm.joints"]]),
    "algorithm.options": st.just({}),
    "algorithm.updates_per_step": st.sampled_from(["1", "1/4", "20"]),
    "run.accept": st.sampled_from([[], ["return constant", "sink failed"]]),
    "record.sinks": st.sampled_from([["jsonl"], ["tensorboard", "jsonl"]]),
}
NEVER_SET = (
    *("env.action_mask", "env.start_limit_s", "env.connect", "env.reset_limit_s", "env.step_limit_s"),
    *("run.topology", "run.replay_folder", "run.init_from", "run.update_hook", "run.setup", "run.stop_at_return"),
    "run.stop_at_evaluation",
    "collection.helpers",
    *("network.module", "network.extractor", "network.value_middleware", "network.policy_head", "network.value_head"),
)
RULED = {
    *("run.stop_at_evaluation", "run.stop_when_no_better", "run.stop_after_evaluations"),
    *("network.module", "network.policy_head", "network.value_head", "network.initialization", "network.memory"),
    *("network.extractor", "network.extractor_options", "network.value_middleware"),
    *("network.action_distribution", "network.noise_steps", "network.noisy_deviation"),
    *("collection.max_lag", "collection.slots", "collection.ownership", "collection.fraction_workers"),
    *("gradients.max_lag", "gradients.decentralized", "algorithm.name"),
    *("env.command", "env.connect", "collection.helpers"),
    *(f"env.{name}" for name in APART),
    *(row.what for row in (*KEYS, *OF_BC)),
    *(idle.name for idle in IDLE),
    *("network.hidden_gain", "network.policy_gain", "network.value_gain"),  # the uniform weights of ddpg have none
}


def values_of(name: str, key: Key) -> st.SearchStrategy[Any]:
    """Any value that the key takes."""
    if name in SPECIAL:
        return SPECIAL[name]
    limits = key.limits
    if limits.choices:
        return st.sampled_from(limits.choices)
    low = limits.minimum if limits.minimum is not None else limits.above
    high = limits.maximum if limits.maximum is not None else limits.below
    items: st.SearchStrategy[Any] = st.booleans()
    if key.kind is int:
        items = st.integers(int(low or 0), int(high or 2**63 - 1))
    elif key.kind is float:
        items = st.floats(
            low,
            high or 1e300,
            exclude_min=limits.above is not None,
            exclude_max=limits.below is not None,
            allow_infinity=False,
        )
    items = items | st.sampled_from(tuple(limits.words)) if limits.words else items
    return st.lists(items, max_size=3) if key.is_array else items


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """A config with a random part of its keys set to random values."""
    algorithm = draw(st.sampled_from(sorted(ALGORITHMS)))
    lines = []
    for section, table in {**SECTIONS, "algorithm": ALGORITHMS[algorithm]}.items():
        lines += [f"[{section}]"] + [f'name = "{algorithm}"'] * (section == "algorithm")
        for name, key in keys_of(table).items():
            full = f"{section}.{name}"
            if full not in RULED and (full == "env.id" or draw(st.booleans())):
                lines.append(f"{name} = {toml_text(draw(values_of(full, key)))}")
    config = load_config(draw(TEXT), text="\n".join(lines))
    extra = draw(st.integers(0, 3))
    lag = config.collection.max_lag + extra * (config.collection.communication != "synchronous")
    shared = config.collection.workers % max(1, config.gradients.workers) == 0 and algorithm not in REPLAYING
    ownership = "gradient_worker" if shared else "pool"
    overrides = [
        f"collection.max_lag={lag}",
        f"collection.slots={lag + 2 + extra}",
        f"collection.ownership={ownership}",
    ]
    return load_config(draw(TEXT), overrides, text="\n".join(lines))


@settings(max_examples=60, deadline=None)
@given(configs())
def test_what_is_rendered_loads_as_the_same_config(config: Config) -> None:
    text = render(config)
    again = load_config("resolved.toml", text=text)
    assert again == config
    assert again.differences(config) == []
    unset = [name for name in NEVER_SET if config.value(name) is None]
    from_the_file = {entry.name for entry in again.entries() if entry.origin.startswith("resolved.toml:")}
    assert from_the_file == {entry.name for entry in config.entries()} - set(unset)


@settings(max_examples=60, deadline=None)
@given(configs())
def test_the_changed_keys_alone_give_the_same_config(config: Config) -> None:
    text = render(config, changed=True)
    again = load_config("short.toml", text=text)
    assert again == config
    assert render(again, changed=True).count("\n") == text.count("\n")


def test_a_key_that_is_given_as_its_usual_default_is_changed_where_the_default_follows_other_keys() -> None:
    text = f'[run]\nscheme = "dqn"\n{ENV}[gradients]\nworkers = 4\n[collection]\nrollout = 5\n'
    given = ["algorithm.batch_size=64", "algorithm.updates_per_step=2/5"]
    short = render(load_config("x.toml", given, text=text), changed=True)
    assert "batch_size" not in short
    assert "updates_per_step" not in short
    given = ["gradients.workers=10", "algorithm.batch_size=64"]
    assert "batch_size = 64" in render(load_config("x.toml", given, text=text), changed=True)


def test_changed_keys_are_those_that_differ_from_their_defaults() -> None:
    text = f'[run]\nscheme = "a2c"\nseed = 1\n{ENV}[collection]\ncommunication = "synchronous"\nmax_lag = 0\nenvs = 9\n'
    config = load_config("x.toml", ["collection.workers=auto", "custom.pupil.level=3"], text=text)
    assert [line.partition(" ")[0] for line in render(config, changed=True).splitlines()] == [
        *("[run]", "scheme", "", "[env]", "id", "", "[collection]", "workers", "envs", "communication"),
        *("", "[custom.pupil]", "level"),
    ]
    assert 'scheme = "a2c"                      # x.toml:2  ' in render(config, changed=True)
    assert render(load_config("x.toml", text=ENV), changed=True).splitlines()[0] == "[env]"


def test_a_config_of_defaults_has_no_changed_key() -> None:
    assert render(load_config("x.toml", ["run.topology=a.py"], text=""), changed=True).count("\n") == 2


def test_every_line_tells_its_origin() -> None:
    text = f'[run]\nscheme = "single"\n{ENV}'
    config = load_config("runs/x.toml", ["run.seed=7"], text=text)
    lines = render(config).splitlines()
    docs = {entry.name: entry.doc for entry in config.entries()}
    assert lines[:20] == [
        "[run]",
        f'name = "cartpole-single"            # default        {docs["run.name"]}',
        f'scheme = "single"                   # runs/x.toml:2  {docs["run.scheme"]}',
        f'carrier = "slots"                   # default        {docs["run.carrier"]}',
        f"seed = 7                            # --set          {docs['run.seed']}",
        f"# topology is not set               # default        {docs['run.topology']}",
        f"# replay_folder is not set          # default        {docs['run.replay_folder']}",
        f"# init_from is not set              # default        {docs['run.init_from']}",
        f"init_statistics = true              # default        {docs['run.init_statistics']}",
        f"# update_hook is not set            # default        {docs['run.update_hook']}",
        f"# setup is not set                  # default        {docs['run.setup']}",
        f"callbacks = []                      # default        {docs['run.callbacks']}",
        f"accept = []                         # default        {docs['run.accept']}",
        f"callback_limit_s = 60.0             # default        {docs['run.callback_limit_s']}",
        f"steps = 500_000                     # default        {docs['run.steps']}",
        f"# stop_at_return is not set         # default        {docs['run.stop_at_return']}",
        f"# stop_at_evaluation is not set     # default        {docs['run.stop_at_evaluation']}",
        f"stop_after_evaluations = 1          # default        {docs['run.stop_after_evaluations']}",
        f"stop_when_no_better = 0             # default        {docs['run.stop_when_no_better']}",
        "",
    ]
    assert f"workers = 0                         # scheme single  {docs['collection.workers']}" in lines


def test_a_line_break_in_the_path_stays_in_its_comment() -> None:
    config = load_config("a\n[run]\nseed = 5 #.toml", text=ENV)
    assert load_config("x.toml", text=render(config)) == config


def test_a_config_that_would_be_too_large_to_be_loaded_again_is_refused() -> None:
    """The file that is given may be short enough."""
    text = '[env]\nid = "x"\noptions = {{x = "{}"}}'
    short, long = (load_config("a.toml", text=text.format("y" * length)) for length in (5, 64_000))
    assert resolved(short).decode() == render(short)
    with pytest.raises(ConfigError, match=r"all its keys and comments has 8\d KiB, more than the 64 KiB") as caught:
        resolved(long)
    assert caught.value.hint == "put long values and lists into a file, and give its path as the value"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_scheme_renders_its_algorithm(scheme: str) -> None:
    config = load_config("run.toml", [f"run.scheme={scheme}"], text=ENV)
    document = tomllib.loads(render(config))
    assert list(document["algorithm"]) == list(keys_of(type(config.algorithm)))
    assert load_config("run.toml", text=render(config)) == config
