from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hive.config import Config, load_config, render
from hive.config.algorithms import ALGORITHMS
from hive.config.keys import keys_of
from hive.config.schema import SECTIONS
from hive.config.schemes import SCHEMES
from hive.errors import ConfigError

ENV = '[env]\nid = "CartPole-v1"\n'

SCHEME_NAMES = ", ".join(f'"{name}"' for name in SCHEMES)
ALGORITHM_NAMES = ", ".join(f'"{name}"' for name in ALGORITHMS)

BAD = """\
# Four mistakes.
[run]
scheme = "a2c"
seed = 1

[env]

[collection]
evns = 8
rollout = 0

[gradients]
workers = 1

device = "cuda1"
"""

BAD_ERROR = """\
error: 4 problems in `bad.toml`

bad.toml:6: env.id: missing key
     6 | [env]
       |  ^^^ add `id = "CartPole-v1"`

bad.toml:9: collection.evns: unknown key
     9 | evns = 8
       | ^^^^ did you mean `envs`?

bad.toml:10: collection.rollout: expected an integer >= 1, got 0
    10 | rollout = 0
       |           ^

bad.toml:15: gradients.device: expected "cpu", "cuda", "cuda:1" or "auto", got "cuda1"
    15 | device = "cuda1"
       |          ^^^^^^^"""


def load(text: str = ENV, *overrides: str) -> Config:
    return load_config("run.toml", overrides, text=text)


def problems(text: str, *overrides: str) -> list[str]:
    """The problems of a bad config, each with its lines."""
    with pytest.raises(ConfigError) as raised:
        load(text, *overrides)
    assert raised.value.exit_code == 2
    header, *found = str(raised.value).split("\n\n")
    assert re.match(rf"{len(found)} problems? in ", header)
    return found


def test_a_memory_that_cannot_be_used_is_refused() -> None:
    for algorithm in ("nstep-q", "pqn", "dqn", "c51", "qr-dqn"):
        text = problems(ENV, f"run.scheme={algorithm}", "network.memory=lstm")[0]
        assert re.search(rf'network\.memory=\S*: got "lstm", but .*{algorithm}.* has no recurrent version', text)
        load(ENV, f"run.scheme={algorithm}", "network.memory=none")
    load(ENV, "network.memory=none", "network.memory_size=64")  # to compare, only one key must change


def test_noise_in_the_weights_is_for_action_values() -> None:
    for scheme in ("dqn", "c51", "qr-dqn", "nstep-q", "pqn"):
        assert load(ENV, f"run.scheme={scheme}", "network.noisy_deviation=0.5").network.noisy_deviation == 0.5
    for scheme in ("a2c", "ppo", "impala"):
        (text,) = problems(ENV, f"run.scheme={scheme}", "network.noisy_deviation=0.5")
        assert f'algorithm.name = "{scheme}"' in text
        assert "compares probabilities of actions, which this noise changes" in text


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("network.middleware=[]", "leaves no layer for its noise"),
        ("network.module=mine:Own", "has no known layer for its noise"),
        ("network.policy_head=mine:Own", "does not compute its noise"),
        ("network.action_deviation=output", "does not apply to it: its deviations are always parameters"),
    ],
)
def test_gsde_needs_the_layer_before_its_head(override: str, text: str) -> None:
    gsde = "network.action_distribution=gsde"
    assert load(ENV, gsde, "network.noise_steps=4").network.noise_steps == 4
    (found,) = problems(ENV, gsde, override)
    assert f'"gsde", but {override.partition("=")[0]} = ' in found
    assert text in found


def test_only_gsde_keeps_its_noise() -> None:
    text = 'got 4, but network.action_distribution = "gaussian" (default) draws its noise in every step'
    assert text in problems(ENV, "network.noise_steps=4")[0]


NOT_USUAL = {
    "extractor": "mine:First",
    "value_middleware": [8],
    "memory": "gru",
    "initialization": "uniform",
    "hidden_gain": 0.5,
    "policy_gain": 0.5,
    "value_gain": 0.5,
    "action_deviation": "output",
    "initial_deviation": 0.5,
}


@pytest.mark.parametrize(
    ("custom", "ignored"),
    [
        ("module", tuple(NOT_USUAL)),
        ("policy_head", ("policy_gain", "action_deviation", "initial_deviation")),
        ("value_head", ("value_gain",)),
    ],
)
def test_settings_that_custom_code_ignores_are_refused(custom: str, ignored: tuple[str, ...]) -> None:
    usual = load().network
    for key, value in NOT_USUAL.items():
        overrides = [f"network.{custom}=mine:Own", f"network.{key}={value}"]
        if key in ignored:
            text = rf"network\.{key}=\S*: got .*, but network\.{custom} = .* ignores it"
            assert re.search(text, problems(ENV, *overrides)[0])
            same = getattr(usual, key)
            load(ENV, overrides[0], *([] if same is None else [f"network.{key}={same}"]))
        else:
            load(ENV, *overrides)


def test_the_value_has_layers_of_its_own_where_it_has_a_network() -> None:
    own = "network.value_middleware=[256, 8]"
    shared = "network.separate_networks=false"
    for scheme in ("ppo", "a2c", "a3c", "impala", "rapid", "dd-ppo", "single"):
        assert load(ENV, f"run.scheme={scheme}", own).network.value_middleware == (256, 8)
        (text,) = problems(ENV, f"run.scheme={scheme}", own, shared)
        assert "network.separate_networks = false (--set) lets policy and value share these layers" in text
    for scheme in ("sac", "td3", "ddpg"):  # whose critics are separate networks anyway
        assert load(ENV, f"run.scheme={scheme}", own, shared).network.value_middleware == (256, 8)
    for scheme in ("dqn", "apex", "c51", "qr-dqn", "nstep-q", "pqn"):
        (text,) = problems(ENV, f"run.scheme={scheme}", own)
        assert "has no network beside that of its action values: network.middleware has its widths" in text


def test_options_belong_to_an_extractor() -> None:
    options = "network.extractor_options.width=8"
    assert load(ENV, "network.extractor=mine:First", options).network.extractor_options == {"width": 8}
    (text,) = problems(ENV, options)
    assert "there is no network.extractor to take them" in text


@pytest.mark.parametrize("gain", ["hidden_gain", "policy_gain", "value_gain"])
def test_uniform_weights_have_no_gains(gain: str) -> None:
    (problem,) = problems(ENV, f"network.{gain}=0.5", "network.initialization=uniform")
    assert f'network.{gain}=0.5: got 0.5, but network.initialization = "uniform" (--set) has no gains' in problem


def test_all_problems_at_once_each_with_its_line() -> None:
    with pytest.raises(ConfigError) as raised:
        load_config("bad.toml", text=BAD)
    assert raised.value.render() == BAD_ERROR


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cart pole.toml"
    file.write_text(f"{ENV}[algorithm]\nlearning_rate = 1\n[network]\nmiddleware = [32, 16]\n")
    config = load_config(file)
    assert config.env.id == "CartPole-v1"
    assert config.algorithm.learning_rate == 1.0
    assert type(config.algorithm.learning_rate) is float
    assert config.network.middleware == (32, 16)
    assert config.origin("network.middleware") == f"{file}:6"
    assert config.origin("network.activation") == "default"


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no such file: `nothing\.toml`"):
        load_config("nothing.toml")


def test_a_path_cannot_break_an_origin() -> None:
    assert load_config("a\nb.toml", text=ENV).origin("env.id") == "a b.toml:2"


def test_overrides_win() -> None:
    config = load(f"{ENV}[run]\nseed = 1\n", "run.seed=2", "run.seed = 3", "env.id=ALE/Pong-v5")
    assert (config.run.seed, config.env.id) == (3, "ALE/Pong-v5")
    assert config.origin("run.seed") == config.origin("env.id") == "--set"


def test_an_override_may_bring_what_the_file_lacks() -> None:
    assert load("", "env.id=CartPole-v1").env.id == "CartPole-v1"


def test_overrides_reach_into_options() -> None:
    text = f"{ENV}options = {{ a = 1, b = {{ c = 2 }} }}\n"
    config = load(text, "env.options.b.d=[3]", "env.options.e=x", "env.options.a.z=true")
    assert config.env.options == {"a": {"z": True}, "b": {"c": 2, "d": [3]}, "e": "x"}
    assert load(text, "env.options={f = 1}").env.options == {"f": 1}
    assert load(ENV, "env.options.a.b=1").env.options == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("collection.evns=4", "unknown key; did you mean `collection.envs`?"),
        ("collection.envs=0", "expected an integer >= 1, got 0"),
        ("collection.envs=1O", 'expected an integer >= 1, got "1O"'),
        ("collection.envs.x=1", "expected an integer >= 1, got a table"),
        ("collection=1", "expected a table, got 1"),
        ("colection.envs=1", "unknown table; did you mean `collection`?"),
        ("envs=1", "unknown key; did you mean `collection.envs` or `evaluation.envs`?"),
        (
            "run.scheme=sngle",
            f'expected {SCHEME_NAMES} or "package.module:function", got "sngle"; did you mean `single`?',
        ),
        ("run.scheme=[]", f'expected {SCHEME_NAMES} or "package.module:function", got an array'),
        (
            "algorithm.name=pp",
            f'expected {ALGORITHM_NAMES} or "package.module:Class", got "pp"; did you mean `ppo`?',
        ),
        (
            "algorithm.name=[]",
            f'expected {ALGORITHM_NAMES} or "package.module:Class", got an array',
        ),
        ("algorithm.rho_clip=0.1", "unknown key; `rho_clip` belongs to impala"),
        ("algorithm.rho_clip.x=0.1", "unknown key; `rho_clip` belongs to impala"),
        ("run.epochs=2", "unknown key; did you mean `algorithm.epochs`?"),
        ("run.discount=1", "unknown key; did you mean `algorithm.discount`?"),
        ("collection.envs", "expected KEY=VALUE, for example collection.envs=16"),
        ("=4", "expected KEY=VALUE, for example collection.envs=16"),
        ("a..b=4", "expected KEY=VALUE, for example collection.envs=16"),
        ("env.id=\udcff", "control characters, or not UTF-8"),
        ("env.id=a\nb", "control characters, or not UTF-8"),
        (
            "env.options.x=nan",
            "expected a table of strings, finite numbers, booleans, arrays and tables, got nan (not finite)",
        ),
    ],
)
def test_bad_overrides(override: str, problem: str) -> None:
    shown = override.replace("\n", " ").replace("\udcff", "?")
    assert problems(ENV, override) == [f"--set {shown}: {problem}"]


def test_a_deep_override_is_refused() -> None:
    (problem,) = problems(ENV, "env.options" + ".a" * 20_000 + "=1")
    assert problem.endswith("got a table")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "seed = 1\n",
            ["run.toml:1: seed: unknown key", "     1 | seed = 1", "       | ^^^^ did you mean `run.seed`?"],
        ),
        (
            "[collectors]\nenvs = 2\nnonsense = 3\n",
            [
                "run.toml:1: collectors: unknown table",
                "     1 | [collectors]",
                "       |  ^^^^^^^^^^ did you mean `collection`?",
            ],
        ),
        (
            "[run]\nworkers = 2\n",
            [
                "run.toml:2: run.workers: unknown key",
                "     2 | workers = 2",
                "       | ^^^^^^^ did you mean `collection.workers` or `gradients.workers` or `evaluation.workers`?",
            ],
        ),
        (
            "[run]\nxyz = 2\n",
            ["run.toml:2: run.xyz: unknown key", "     2 | xyz = 2", "       | ^^^"],
        ),
        (
            "[[run]]\nseed = 2\n",
            ["run.toml:1: run: expected a table, got an array", "     1 | [[run]]", "       |   ^^^"],
        ),
        (
            "run.seed = 1.0\n",
            [
                "run.toml:1: run.seed: expected an integer >= 0, got 1.0",
                "     1 | run.seed = 1.0",
                "       |            ^^^",
            ],
        ),
        (
            "[network]\nmiddleware = [\n  64,\n  true,\n]\n",
            [
                "run.toml:4: network.middleware: expected an array of integers >= 1, got true",
                "     4 |   true,",
                "       |   ^^^^",
            ],
        ),
        (
            "collection = { communication = 'pipelind' }\n",
            [
                "run.toml:1: collection.communication: "
                'expected "synchronous", "pipelined" or "asynchronous", got "pipelind"',
                "     1 | collection = { communication = 'pipelind' }",
                "       |                                ^^^^^^^^^^ did you mean `pipelined`?",
            ],
        ),
        (
            "[gradients]\nworkers = 2000\n",
            [
                'run.toml:2: gradients.workers: expected an integer >= 0 and <= 1024 or "auto", got 2_000',
                "     2 | workers = 2000",
                "       |           ^^^^",
            ],
        ),
        (
            "[algorithm]\nclip_range = 0.1\nname = 'impala'\n",
            [
                "run.toml:2: algorithm.clip_range: unknown key",
                "     2 | clip_range = 0.1",
                "       | ^^^^^^^^^^ `clip_range` belongs to ppo",
            ],
        ),
        (
            "algorithm.normalize_advantages = true\nrun.scheme = 'impala'\n",
            [
                "run.toml:1: algorithm.normalize_advantages: unknown key",
                "     1 | algorithm.normalize_advantages = true",
                "       |           ^^^^^^^^^^^^^^^^^^^^ `normalize_advantages` belongs to a2c and ppo",
            ],
        ),
        (
            "[algorithm]\nclip_rnge = 0.1\nname = 'ppo'\n",
            [
                "run.toml:2: algorithm.clip_rnge: unknown key",
                "     2 | clip_rnge = 0.1",
                "       | ^^^^^^^^^ did you mean `clip_range`?",
            ],
        ),
        (
            "[run]\nname = '''\na\nb'''\n",
            [
                "run.toml:2: run.name: expected at most 64 letters, digits and `.` `_` `-`, "
                'not beginning with `.` or `-`, got "a\\u000ab"',
                "     2 | name = '''",
                "       |        ^^^",
            ],
        ),
    ],
)
def test_problems_of_a_file(text: str, lines: list[str]) -> None:
    assert problems(text, "env.id=x") == ["\n".join(lines)]


def test_a_fault_in_options_is_found_inside() -> None:
    (problem,) = problems(f"{ENV}\n[env.options.deep]\nok = 1\nlist = [1, 2020-01-01]\n")
    assert problem.splitlines()[0].startswith("run.toml:6: env.options.deep.list: expected a table of strings")
    assert problem.splitlines()[1:] == ["     6 | list = [1, 2020-01-01]", "       |            ^^^^^^^^^^"]


def test_a_rule_shows_both_places() -> None:
    text = f'{ENV}[collection]\ncommunication = "synchronous"\nmax_lag = 2\n'
    assert problems(text) == [
        "run.toml:5: collection.max_lag: "
        'got 2, but collection.communication = "synchronous" (run.toml:4) requires 0\n'
        "     5 | max_lag = 2\n"
        "       |           ^\n"
        '     4 | communication = "synchronous"\n'
        "       |                 ^^^^^^^^^^^^^"
    ]


def test_collectors_are_shared_equally() -> None:
    text = f"{ENV}[gradients]\nworkers = 2\n[collection]\nworkers = 3\nownership = 'gradient_worker'\n"
    assert problems(text) == [
        'run.toml:7: collection.ownership: got "gradient_worker", '
        "but collection.workers = 3 (run.toml:6) is not a multiple of gradients.workers = 2 (run.toml:4)\n"
        "     7 | ownership = 'gradient_worker'\n"
        "       |             ^^^^^^^^^^^^^^^^^\n"
        "     6 | workers = 3\n"
        "       |           ^\n"
        "     4 | workers = 2\n"
        "       |           ^"
    ]
    owned = load(ENV, "collection.ownership=gradient_worker", "gradients.workers=4")
    assert (owned.collection.workers, owned.origin("collection.workers")) == (4, "default")


def test_slots_show_all_that_they_depend_on() -> None:
    text = f"{ENV}[collection]\ncommunication = 'pipelined'\nslots = 3\nmax_lag = 2\n"
    assert problems(text) == [
        'run.toml:5: collection.slots: got 3, but collection.communication = "pipelined" (run.toml:4) '
        "with collection.max_lag = 2 (run.toml:6) requires at least 4\n"
        "     5 | slots = 3\n"
        "       |         ^\n"
        "     4 | communication = 'pipelined'\n"
        "       |                 ^^^^^^^^^^^\n"
        "     6 | max_lag = 2\n"
        "       |           ^"
    ]


def test_an_override_may_choose_the_algorithm_of_a_file() -> None:
    text = f"{ENV}[algorithm]\nname = 'ppo'\nepochs = 2\n"
    assert problems(text, "algorithm.name=impala", "algorithm.rho_clip=0") == [
        "run.toml:5: algorithm.epochs: unknown key\n     5 | epochs = 2\n"
        "       | ^^^^^^ `epochs` belongs to ppo and pqn",
        "--set algorithm.rho_clip=0: expected a number > 0, got 0",
    ]


@pytest.mark.parametrize("choice", ["algorithm.name = 'pp0'", "run.scheme = 'pp0'"])
def test_a_wrong_algorithm_brings_no_other_problem(choice: str) -> None:
    (problem,) = problems(f"{choice}\nalgorithm.epochs = 2\nalgorithm.c_clip = 2\n{ENV}")
    assert problem.endswith("did you mean `ppo`?")
    found = problems(f"{choice}\nalgorithm.epchs = 2\nalgorithm.discount = 2\n{ENV}")
    assert [line.split(": ", 1)[1] for problem in found[1:] for line in problem.splitlines()[:1]] == [
        "algorithm.epchs: unknown key",
        "algorithm.discount: expected a number >= 0 and <= 1, got 2",
    ]


def test_an_unknown_key_in_file_and_override_is_two_problems() -> None:
    assert len(problems(f"{ENV}[run]\nxyz = 2\n", "run.xyz=3")) == 2


def test_a_rule_that_the_default_of_a_scheme_breaks_is_told_where_the_other_key_stands() -> None:
    (problem,) = problems(ENV, "run.scheme=dd-ppo", "gradients.communication=asynchronous")
    assert problem.startswith(
        "--set gradients.communication=asynchronous: gradients.decentralized is true (scheme dd-ppo)"
    )


def test_a_rule_names_a_default_and_an_override() -> None:
    reason = 'got 0, but collection.communication = "pipelined" (default) requires at least 1'
    assert problems(ENV, "run.scheme=a2c", "collection.max_lag=0") == [f"--set collection.max_lag=0: {reason}"]
    assert problems(f"{ENV}[gradients]\nmax_lag = 1\n", "gradients.communication=synchronous") == [
        "run.toml:4: gradients.max_lag: "
        'got 1, but gradients.communication = "synchronous" (--set) requires 0\n'
        "     4 | max_lag = 1\n"
        "       |           ^"
    ]


def test_a_wrong_key_breaks_no_rule() -> None:
    text = f'{ENV}[collection]\ncommunication = "sync"\nmax_lag = 0\nslots = 2\n'
    assert [problem.splitlines()[0] for problem in problems(text)] == [
        'run.toml:4: collection.communication: expected "synchronous", "pipelined" or "asynchronous", got "sync"'
    ]


def test_problems_of_file_and_overrides_come_together() -> None:
    with pytest.raises(ConfigError) as raised:
        load("[run]\nseed = -1\n", "run.stps=1")
    heads = [line for line in str(raised.value).splitlines() if re.match(r"\S", line)]
    assert heads == [
        "3 problems in `run.toml` and `--set`",
        "run.toml:2: run.seed: expected an integer >= 0, got -1",
        "run.toml:2: env.id: missing key",
        "--set run.stps=1: unknown key; did you mean `run.steps`?",
    ]


def test_a_table_that_is_none_is_one_problem() -> None:
    assert [problem.splitlines()[0] for problem in problems("env = 3\n")] == [
        "run.toml:1: env: expected a table, got 3"
    ]


def test_text_that_is_not_unicode_is_an_error() -> None:
    assert problems("a = '\udcff'\n") == ["run.toml:1: not UTF-8: byte 0xed"]


NAMES = sorted({name for table in (*SECTIONS.values(), *ALGORITHMS.values()) for name in keys_of(table)})
ANY_NAME = st.sampled_from([*SECTIONS, *NAMES, "options", "x"]) | st.text(max_size=3)
ANY_VALUE = st.sampled_from(
    [
        "1",
        "-1",
        "0.5",
        "true",
        "nan",
        "'auto'",
        '"synchronous"',
        '"ppo"',
        "[64, 0]",
        "[[]]",
        "{a = 1}",
        "1979-05-27",
        "0x" + "f" * 40,
    ]
) | st.text(max_size=5)
PAIR = st.tuples(ANY_NAME, ANY_VALUE).map(" = ".join)
LINE = PAIR | ANY_NAME.map("[{}]".format) | ANY_NAME.map("[[env.{}]]".format) | st.text(max_size=8)
TOML_LIKE = st.lists(LINE, max_size=12).map("\n".join)
OVERRIDES = st.lists(
    st.text(max_size=8) | st.tuples(ANY_NAME, ANY_NAME, ANY_VALUE).map("{0[0]}.{0[1]}={0[2]}".format),
    max_size=3,
)


def check_that_it_ends_well(text: str, overrides: list[str]) -> None:
    """Loads; whatever is wrong must be a ConfigError whose problems all start with their place."""
    message = ""
    try:
        load(text, *overrides)
    except ConfigError as error:
        message = str(error)
    for problem in message.split("\n\n")[1:]:
        assert re.match(r"run\.toml:\d+: |--set |\.\.\. and ", problem), problem


@settings(max_examples=150, deadline=None)
@given(TOML_LIKE, OVERRIDES)
@example(ENV, ["run.=1", ".=", "env.id={}", "[run]\nseed=1"])
@example("a" * 60_000, [])
@example("\n".join(f"key_{number} = 1" for number in range(3000)), [])
@example("a = " + "[" * 400 + "]" * 400 + "\n[env]\nid.b = 1", [])
@example("[env]\nid = 'x'\noptions." + "a." * 2000 + "b = 1", [])
def test_text_like_toml_never_breaks_it(text: str, overrides: list[str]) -> None:
    check_that_it_ends_well(text, overrides)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_never_breaks_it(text: str) -> None:
    check_that_it_ends_well(text, [])


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=60))
def test_any_file_never_breaks_it(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError):
        load_config(file)


def test_a_run_of_an_earlier_hive_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """One of the newest has env.rules = 2, which is left out."""
    own = tmp_path / "resolved.toml"
    text = render(load_config("run.toml", text='[env]\nid = "CartPole-v1"\n'))
    own.write_text(text.replace("[env]\n", "[env]\nrules = 2\n"))
    assert not load_config(own).differences(load_config("run.toml", text=text))
    for earlier in (text.replace("[env]\n", "[env]\nrules = 1\n"), re.sub(r"(?m)^init_statistics .*\n", "", text)):
        own.write_text(earlier)
        with pytest.raises(ConfigError, match="is of an earlier hive") as caught:
            load_config(own)
        assert caught.value.hint == "start a new run with the config.toml beside it"
