"""Shell completion: the command `completion`, and what the scripts that it prints ask for.

    shell: <Tab> ── $COMP_LINE, _ARGCOMPLETE=1 ──> hive: `complete` ── argcomplete ──> candidates on descriptor 8

argcomplete (https://github.com/kislyuk/argcomplete) prints the scripts for bash, zsh and fish, and walks the parser of
the command that is typed. So all commands and options are those of this hive, with nothing to keep up to date, and only
the module of that command is imported. What an argument accepts follows from its `metavar` (COMPLETERS).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from hive.paths import user_path

SHELLS = ("bash", "zsh", "fish")

INSTALL = """install it once:
  bash   echo 'eval "$(hive completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(hive completion zsh)"' >> ~/.zshrc          after the line with compinit
  fish   hive completion fish > ~/.config/fish/completions/hive.fish

A new shell then completes commands, options, files, names of runs and actors, and keys of the config after -s.

example: hive completion bash
"""


def add_completion(commands: Any) -> None:
    completion = commands.add_parser(
        "completion",
        description="Print a script that completes hive's commands, options and their values in a shell.",
        epilog=INSTALL,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell that runs the script")
    completion.set_defaults(run=run_completion)


def run_completion(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["hive"], True, options.shell))
    return 0


def complete(parser: Callable[[str], argparse.ArgumentParser]) -> NoReturn:
    """Print the candidates for the command line in $COMP_LINE and exit, as argcomplete's scripts expect.

    parser: returns the parser in which the given command has its options.
    """
    import argcomplete

    words = os.environ.get("COMP_LINE", "").split()
    known = parser(words[1] if len(words) > 1 else "")
    argcomplete.autocomplete(known, always_complete_options=False, default_completer=_candidates)  # type: ignore[arg-type]
    sys.exit(0)


def _candidates(prefix: str, action: argparse.Action, parser: argparse.ArgumentParser, **options: Any) -> Iterable[str]:
    """Return the candidates for an argument without choices; argcomplete completes commands, options and choices."""
    from argcomplete.completers import FilesCompleter

    key = action.metavar if isinstance(action.metavar, str) else action.dest
    completer = COMPLETERS.get((parser.prog.rpartition(" ")[2], key)) or COMPLETERS.get(key)
    if completer is not None:
        return completer(prefix=prefix, **options)
    if action.type in (Path, user_path):
        found: Iterable[str] = FilesCompleter(["toml"] if key == "config" else [])(prefix)
        return found
    return []


# --- completers: called by argcomplete with `prefix` and `parsed_args`; return the candidates


def _runs(**_: Any) -> list[str]:
    """Return the names of the runs in $HIVE_HOME, newest first, and `latest`."""
    from hive.errors import RecordError
    from hive.records import find_runs, home_folder
    from hive.records.directory import LATEST

    try:
        names = [run.name for run in reversed(find_runs(home_folder()))]
    except RecordError:
        return []
    return [*names, *([LATEST] if names else [])]


def _actors(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Return the actors of the given run, by the names of their logs: the run may have ended."""
    from hive.errors import HiveError
    from hive.launch.select_run import named_run

    if parsed_args.run_name is None:
        return []  # it is the name of a run that is being typed
    try:
        run = named_run(parsed_args.run_name)
    except HiveError:
        return []
    return sorted(path.stem for path in run.logs.glob("*.log"))


def _checkpoints(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Return what `--which` accepts: words, and the updates of the checkpoints of the first given run."""
    given = getattr(parsed_args, "runs", None) or [getattr(parsed_args, "run_name", None)]
    from hive.errors import HiveError
    from hive.launch.select_run import chosen_run

    words = ["latest", "best", *(["all"] if hasattr(parsed_args, "runs") else [])]  # only `hive eval` takes all
    try:
        run = chosen_run(given[0])
    except HiveError:
        return words
    return [*words, *sorted(path.name for path in run.checkpoints.glob("[0-9]*"))]


def _settings(prefix: str, **_: Any) -> Iterable[str]:
    """Return `KEY=`, or `KEY=VALUE` where a key has few values, for the keys of all tables of a config."""
    return _assignments(prefix, _keys())


def _live_settings(prefix: str, **_: Any) -> Iterable[str]:
    """Return the same for the keys of [algorithm], which `hive set` can change."""
    return _assignments(prefix, {name: key for name, key in _keys().items() if name.startswith("algorithm.")})


def _keys() -> Mapping[str, Any]:
    """Return the keys of a config by their full names; those of [algorithm] are of all algorithms."""
    from hive.config.algorithms import ALGORITHMS
    from hive.config.keys import keys_of
    from hive.config.schema import SECTIONS

    tables: list[tuple[str, type]] = [*SECTIONS.items(), *(("algorithm", table) for table in ALGORITHMS.values())]
    return {f"{table}.{name}": key for table, keys in tables for name, key in keys_of(keys).items()}


def _assignments(prefix: str, keys: Mapping[str, Any]) -> list[str]:
    name, given, _ = prefix.partition("=")
    if not given:
        return [f"{key}=" for key in keys]
    if name not in keys:
        return []
    key = keys[name]
    values = ("true", "false") if key.kind is bool else key.limits.choices or ()
    return [f"{name}={value}" for value in values]


def _counts(**_: Any) -> list[str]:
    return ["collection.workers=", "gradients.workers="]


def _environments(**_: Any) -> list[str]:
    from hive.config import tuned_tasks

    return [env_id for env_id in tuned_tasks() if not env_id.startswith("ALE/")]


def _schemes(**_: Any) -> list[str]:
    from hive.config import SCHEMES

    return list(SCHEMES)


def _files(prefix: str, **_: Any) -> list[str]:
    from argcomplete.completers import FilesCompleter

    return list(FilesCompleter(["py"])(prefix))


COMPLETERS: Mapping[str | tuple[str, str], Callable[..., Iterable[str]]] = {
    "RUN": _runs,
    "ACTOR": _actors,
    "KEY=VALUE": _settings,
    ("set", "KEY=VALUE"): _live_settings,
    "KEY=COUNT": _counts,
    "env": _environments,
    "ID": _environments,
    ("init", "NAME"): _schemes,
    "FILE.py[:FUNCTION]": _files,
    "which": _checkpoints,
}
"""metavar of an argument (or its name), or command and metavar -> its completer."""
