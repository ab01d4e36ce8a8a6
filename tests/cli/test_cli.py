from __future__ import annotations

import argparse
import contextlib
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hive import __version__
from hive.cli import ls, parser
from hive.errors import (
    ActorFailed,
    ConfigError,
    EnvironmentMissing,
    HiveError,
    PlatformError,
    RecordError,
    TopologyError,
    UsageError,
)
from hive.launch.suggest import OTHER_COMMANDS, REMOVING

if TYPE_CHECKING:
    from conftest import Place


def subparsers() -> dict[str, argparse.ArgumentParser]:
    (commands,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    return commands.choices  # type: ignore[return-value]


COMMANDS = tuple(subparsers())


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Makes `hive ls` end with this."""

    def run(options: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(ls, "run_ls", run)


# --- help


def test_without_a_command_the_help_is_printed(place: Place) -> None:
    done = place.hive()
    assert (done.code, done.err) == (0, "")
    assert done.out == place.hive("--help").out
    assert done.out.startswith("usage: hive ")
    assert tuple(re.findall(r"^  (\w+) {2,}\S", done.out.partition("\noptions:")[0], re.MULTILINE)) == COMMANDS
    assert {"up", "down", "ls", "ps", "logs", "init", "config", "check"} <= {*COMMANDS}


def test_the_help_groups_commands_by_purpose(place: Place) -> None:
    blocks = [block.splitlines() for block in place.hive("--help").out.split("\n\n")]
    groups = {block[0]: {line.split()[0] for line in block[1:]} for block in blocks if block[0].endswith(":")}
    assert list(groups) == ["train:", "watch and control:", "results:", "machine:", "options:", "examples:"]
    assert groups["results:"] == {"eval", "play", "record", "compare", "plot", "export"}
    assert {"init", "check", "up", "resume"} <= groups["train:"]
    assert {"doctor", "prune"} <= groups["machine:"]
    assert all(len(line) <= 80 for block in blocks for line in block)


def test_the_version(place: Place) -> None:
    done = place.hive("--version")
    assert (done.code, done.out, done.err) == (0, f"hive {__version__}\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_description_and_an_example(place: Place, command: str) -> None:
    done = place.hive(command, "--help")
    assert (done.code, done.err) == (0, "")
    sub = subparsers()[command]
    assert sub.description is not None
    assert sub.description.endswith(".")
    assert " ".join(sub.description.split()) in " ".join(done.out.split())
    assert all(action.help for action in sub._actions)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_is_understood(command: str) -> None:
    epilog = subparsers()[command].epilog
    assert epilog is not None
    example, program, *words = shlex.split(epilog.splitlines()[-1])
    assert (example, program) == ("example:", "hive")
    assert parser().parse_args(words).command == command


def test_the_examples_of_all_are_understood() -> None:
    epilog = parser().epilog
    assert epilog is not None
    lines = [re.split(r" {3,}", line.strip())[0] for line in epilog.splitlines()[1:]]
    words = [shlex.split(command)[1:] for line in lines for command in line.split(";")]
    assert [parser().parse_args(each).command for each in words] == ["init", "up", "up", "ps"]


# --- mistakes


@pytest.mark.parametrize(("given", "meant"), [("pss", "ps"), ("dwon", "down"), ("chekc", "check"), ("log", "logs")])
def test_a_misspelled_command_gets_a_suggestion(place: Place, given: str, meant: str) -> None:
    done = place.hive(given)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"error: no command `{given}`; did you mean `{meant}`?\n"
    assert place.hive("xyzzy").err == "error: no command `xyzzy`\n\nhint: `hive --help` lists the commands\n"


@pytest.mark.parametrize(
    ("given", "meant"),
    [("stop", "hive down"), ("status", "hive ps"), ("train", "hive up"), ("rm", "a run is a folder: `rm -r ")],
)
def test_a_command_of_other_tools_is_translated(place: Place, given: str, meant: str) -> None:
    done = place.hive(given, "cart-1")
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith(f"error: no command `{given}`; ")
    assert meant in line


def test_the_translations_of_commands_exist() -> None:
    assert not OTHER_COMMANDS.keys() & {*COMMANDS}
    assert not {*REMOVING} & {*COMMANDS, *OTHER_COMMANDS}
    for meant in OTHER_COMMANDS.values():
        command, *options = meant.split()
        if command in COMMANDS:
            usage = subparsers()[command].format_help()
            assert all(option in usage for option in options if option.startswith("--")), meant
        else:
            assert command in parser().format_help()


def test_an_unknown_command_without_a_close_name(place: Place) -> None:
    done = place.hive("xyzzy", "--json")
    assert done.code == 2
    assert done.err == "error: no command `xyzzy`\n\nhint: `hive --help` lists the commands\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["config"], "the following arguments are required: config"),
        (["init", "CartPole-v1", "-o"], "argument -o/--output: expected one argument"),
        (["up", "a.toml", "--seed", "x"], "argument --seed: invalid int value: 'x'"),
        (["down", "--set"], "unrecognized arguments: --set"),
        (["logs", "-n", "many"], "argument -n/--tail: expected a number of lines from 0 on, got `many`"),
        (["logs", "-n", "-5"], "argument -n/--tail: expected a number of lines from 0 on, got `-5`"),
    ],
)
def test_a_wrong_option_is_one_line_and_a_hint(place: Place, words: list[str], error: str) -> None:
    done = place.hive(*words)
    assert (done.code, done.out) == (2, "")
    first, empty, hint = done.err.splitlines()
    assert (first, empty) == (f"error: {error}", "")
    assert re.fullmatch(r"hint: `hive( \w+)? --help` shows its usage", hint)


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--lr", "hive calls it `algorithm.learning_rate`"),
        ("--steps", "`run.steps`?"),
        ("--n-envs", "`collection.envs`"),
    ],
)
def test_an_option_that_is_a_key_is_translated(place: Place, option: str, name: str) -> None:
    done = place.hive("up", place.config(), option, "4")
    assert (done.code, done.out) == (2, "")
    first, _, hint = done.err.splitlines()
    assert first == f"error: unrecognized arguments: {option} 4"
    assert name in hint
    assert hint.endswith("; keys of the config are given as `--set KEY=VALUE`")


def test_a_key_without_its_option_is_given_it(place: Place) -> None:
    done = place.hive("up", place.config(), "run.seed=4")
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("hint: keys of the config are given as `--set run.seed=4`\n")


# --- how commands end


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HiveError("it broke"), 1),
        (ActorFailed("learner-0 died"), 1),
        (RecordError("cannot read `run.json`"), 1),
        (UsageError("no run matches `x`", hint="say another"), 2),
        (ConfigError("2 problems in `a.toml`", hint="look at it"), 2),
        (TopologyError("a port is not connected"), 2),
        (EnvironmentMissing("no environment `Pong`", hint="install it"), 2),
        (PlatformError("no room", hint="buy some"), 3),
    ],
)
def test_an_error_becomes_text_and_an_exit_code(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: HiveError, code: int
) -> None:
    raising(monkeypatch, error)
    done = place.hive("ls")
    assert (done.code, done.out) == (code, "")
    hint = f"\n\nhint: {error.hint}" if error.hint else ""
    assert done.err == f"error: {error}{hint}\n"


def test_an_error_may_bring_its_own_exit_code(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of another process does."""
    error = HiveError("it broke there")
    error.exit_code = 3
    raising(monkeypatch, error)
    assert place.hive("ls").code == 3


@pytest.mark.parametrize("code", [0, 1, 130])
def test_the_code_of_a_command_is_that_of_the_process(place: Place, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(ls, "run_ls", lambda options: code)
    done = place.hive("ls")
    assert (done.code, done.out, done.err) == (code, "", "")


def test_an_interrupt_prints_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, KeyboardInterrupt())
    done = place.hive("ls")
    assert (done.code, done.out, done.err) == (130, "", "")


def test_a_fault_of_ours_is_not_hidden(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, ZeroDivisionError("division by zero"))
    with pytest.raises(ZeroDivisionError):
        place.hive("ls")


def test_other_platforms_are_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        done = place.hive("--help")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("error: hive runs on Linux only, and this platform is darwin\n\nhint: ")


# --- what each command does first


def test_custom_classes_are_found_beside_the_config(place: Place) -> None:
    sys.path[:] = [entry for entry in sys.path if entry != str(place.folder)]
    for _ in range(2):
        place.hive("ls")
        assert sys.path.count(str(place.folder)) == 1
    assert sys.path[-1] == str(place.folder)  # last: it hides nothing that is installed


def test_leftovers_of_killed_runs_are_removed(place: Place) -> None:
    place.hive("ls")
    (root,) = place.folder.glob("hive-*")
    (root / "dead").mkdir()
    (root / "dead" / "owner").write_text(f"{1 << 30} 1")
    (root / "strange").mkdir()
    place.hive("ls")
    assert [path.name for path in root.iterdir()] == ["strange"]


def test_words_come_from_the_command_line(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from hive.cli import main

    seen: list[Any] = []
    monkeypatch.setattr(ls, "run_ls", lambda options: seen.append(options) or 0)
    monkeypatch.setattr(sys, "argv", ["hive", "ls", "--json"])
    with contextlib.suppress(SystemExit):
        main()
    assert [options.json for options in seen] == [True]
