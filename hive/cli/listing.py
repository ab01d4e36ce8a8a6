"""Commands that list runs, processes and logs: `ls`, `ps`, `logs`. `--json` prints one document with stable keys."""

from __future__ import annotations

import argparse
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

from hive.cli.arguments import add_json, add_run
from hive.cli.select_run import chosen_run, live_here, live_runs, say_default
from hive.cli.suggest import did_you_mean, listed
from hive.errors import HiveError, RecordError, UsageError
from hive.gpus import Gpu, gpus_here
from hive.records import (
    RunDirectory,
    Summary,
    best_facts,
    earlier_wall_s,
    find_runs,
    home_folder,
    last_training_line,
    merge_logs,
    read_jsonl,
    read_run_facts,
    run_state,
)
from hive.records.documents import json_text
from hive.records.return_text import return_text
from hive.records.run_warnings import RunWarning, active, warnings_of
from hive.runtime.run.control import OtherProtocol, open_run
from hive.table import table_text

__all__ = ["add_logs", "add_ls", "add_ps", "run_without_command"]

COLLECTOR = "collector"  # begins the names of the actors that may have helpers
HEAD_NAME = "head"  # hive.config.HEAD, without the import of all keys
FOLLOW_S = 0.2  # interval between two reads of `logs -f`
MOST_LINES = 1_000_000_000  # `hive logs -n`: more than the logs of a run have, and a length that Python allows
FOLLOW_LINES = 1000  # lines per read: more than are logged in one interval

PS_KEYS = (
    *("run", "name", "host", "pid", "state", "restarts", "cpu_percent", "memory_bytes", "activity", "since_s"),
    *("busy", "wait_in", "wait_out", "version", "lag", "phases", "counters", "warnings", "gpus"),
)  # keys of every row of `ps --json`; null without one. The run's warnings and GPUs are in the first row

PS_HEAD = (
    *("NAME", "PID", "STATE", "CPU%", "MEM", "ACTIVITY", "SINCE"),
    *("BUSY", "WAIT-IN", "WAIT-OUT", "VERSION", "LAG", "RESTARTS"),
)


def add_ls(commands: Any) -> None:
    ls = commands.add_parser(
        "ls",
        description="List the runs in $HIVE_HOME (default ./runs), oldest first. RETURN is the mean of the last 100 "
        "training episodes, BEST the highest such mean of a run without evaluations, EVALUATION the mean return of the "
        "best evaluation, WALL the seconds of all parts of a run, and STARTED when the last one began.",
        epilog="example: hive ls --json",
    )
    add_json(ls, "one JSON array")
    ls.set_defaults(run=run_ls)


def add_ps(commands: Any) -> None:
    ps = commands.add_parser(
        "ps",
        description="List the processes of a run: what each is doing, and how it spends its time.",
        epilog="example: hive ps cartpole-ppo-1",
    )
    add_run(ps, "all live runs in $HIVE_HOME, else the newest run there")
    add_json(ps, "one JSON array")
    ps.set_defaults(run=run_ps)


def add_logs(commands: Any) -> None:
    logs = commands.add_parser(
        "logs",
        description="Show the logs of a run's actors, merged by time.",
        epilog="example: hive logs cartpole-ppo-1 learner-0 -n 20",
    )
    add_run(logs)
    logs.add_argument("actors", nargs="*", metavar="ACTOR", help="only these actors (default: all)")
    logs.add_argument("-n", "--tail", type=_count, default=100, metavar="N", help="show the last N lines (default 100)")
    logs.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="also show new lines until the run ends; Ctrl-C does not stop the run",
    )
    add_json(logs, "one JSON array of lines")
    logs.set_defaults(run=run_logs)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected a number of lines from 0 on, got `{text}`")
    digits = text.lstrip("0")
    return int(digits or 0) if len(digits) < len(str(MOST_LINES)) else MOST_LINES


def run_ls(options: argparse.Namespace) -> int:
    rows = [_run_row(run) for run in find_runs(home_folder())]
    if options.json:
        print(json_text(rows, indent=2))
        return 0
    if not rows:
        print(f"no run in {home_folder()} yet")
        return 0
    _list_runs(rows)
    return 0


# Column of `ls` -> its cell of a row; those in OPTIONAL are left out where no run has a value.
LS_COLUMNS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "NAME": lambda row: row["name"],
    "ENV": lambda row: row["env"] or "–",
    "ALGORITHM": lambda row: _learner(row),
    "STATE": lambda row: row["state"],
    "STEPS": lambda row: f"{row['env_steps']:,}" if row["env_steps"] is not None else "–",
    "RETURN": lambda row: return_text(row["mean_return_100"]),
    "BEST": lambda row: _best(row, evaluated=False),
    "EVALUATION": lambda row: _best(row, evaluated=True),
    "WALL": lambda row: _seconds(row["wall_s"]),
    "STARTED": lambda row: _date(row["started"]),
    "IN": lambda row: str(Path(row["path"]).parent),
}
OPTIONAL = ("BEST", "EVALUATION")


def _list_runs(rows: Sequence[Mapping[str, Any]], *, where: bool = False) -> None:
    """Print a table of runs; with `where`, include the folder of each."""
    columns = {name: [cell(row) for row in rows] for name, cell in LS_COLUMNS.items() if where or name != "IN"}
    shown = {name: cells for name, cells in columns.items() if name not in OPTIONAL or {*cells} != {"–"}}
    print(table_text(list(shown), list(zip(*shown.values(), strict=True))))


def _learner(row: Mapping[str, Any]) -> str:
    """Return the algorithm of a run, or the custom topology that decides what is trained."""
    topology: str | None = row["topology"]
    return PurePath(topology.partition(":")[0]).name if topology else row["algorithm"] or "–"


def _best(row: Mapping[str, Any], *, evaluated: bool) -> str:
    best = row["best"]
    return return_text(best["mean_return"] if best and (best["by"] == "evaluation") is evaluated else None)


def _date(seconds: float | None) -> str:
    return "–" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _run_row(run: RunDirectory) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": run.name,
        "state": run_state(run),
        "path": str(run.path.resolve()),
        **_trained(run),
        "env_steps": None,
        "mean_return_100": None,
        "best": best_facts(run),
        "wall_s": None,
        "started": None,
    }
    try:
        facts = read_run_facts(run)
        row["started"] = facts.started
        if row["state"] == "running":
            row["wall_s"] = time.time() - facts.started + earlier_wall_s(run)
            from hive.monitor import snapshot_of

            now = snapshot_of(_status(run))
            row |= {"state": now.state, "env_steps": now.env_steps, "mean_return_100": now.mean_return}
        elif row["state"] == "lost":
            last = last_training_line(run)
            row |= {
                "env_steps": last["steps"],
                "mean_return_100": last.get("return/mean_100"),
                "wall_s": last["seconds"],
            }
        else:
            summary = Summary.read(run.summary_file)
            row |= {
                "env_steps": summary.env_steps,
                "mean_return_100": summary.mean_return_100,
                "wall_s": summary.wall_s,
            }
    except (HiveError, LookupError):
        pass  # the run never began, or is ending at this moment: the row keeps the values found so far
    return row


# Key of a row of `ls` -> table and key of the config.
TRAINED = {
    "env": ("env", "id"),
    "algorithm": ("algorithm", "name"),
    "scheme": ("run", "scheme"),
    "topology": ("run", "topology"),
    "device": ("gradients", "device"),
}


def _trained(run: RunDirectory) -> dict[str, str | None]:
    """Return what a run trains, from its resolved config; None for what is not set or cannot be read.

    Only TOML is parsed: loading a config takes ten times as long, and an old one may have keys that no longer exist.
    """
    from hive.config import syntax

    try:
        tables = tomllib.loads(syntax.read(run.resolved_file, run.resolved_file.name).decode())
    except (HiveError, ValueError, RecursionError):
        tables = {}
    found: dict[str, str | None] = {}
    for name, (table, key) in TRAINED.items():
        values = tables.get(table)
        value = values.get(key) if isinstance(values, dict) else None
        found[name] = value if isinstance(value, str) and value else None
    return found


def _status(run: RunDirectory) -> dict[str, Any]:
    client = open_run(run)
    try:
        return client.status()
    finally:
        client.close()


def run_without_command(parser: argparse.ArgumentParser) -> int:
    """Run `hive` without a command: list the live runs of this user, or print the help if there are none."""
    live = live_runs()
    if not live:
        parser.print_help()
        return 0
    home = home_folder().resolve()
    _list_runs([_run_row(run) for run in live], where=any(run.path.parent != home for run in live))
    print("hint: `hive ps RUN` lists the processes of one, `hive monitor RUN` shows a live view", file=sys.stderr)
    return 0


def run_ps(options: argparse.Namespace) -> int:
    live = live_here() if options.run_name is None else []
    runs = live if len(live) > 1 else [chosen_run(options.run_name)]
    tables = []
    for run in runs:
        try:
            tables.append(_ps_rows(run))
        except OtherProtocol as error:
            if len(runs) == 1:
                raise
            print(error.render(), file=sys.stderr)  # the other runs are still listed
    if options.json:
        print(json_text([row for rows in tables for row in rows], indent=2))
        return 0
    for rows in tables:
        print(f"{rows[0]['run']}  {rows[0]['state']}")
        for warning in active(RunWarning.of(data) for data in rows[0]["warnings"] or ()):
            print(f"warning: {warning.line}")
        hosts = any(row["host"] for row in rows)
        head = PS_HEAD if not hosts else (PS_HEAD[0], "HOST", *PS_HEAD[1:])
        print(table_text(head, [_ps_cells(row, hosts=hosts) for row in rows]))
        for number, gpu in enumerate(rows[0]["gpus"] or ()):
            print(f"gpu {number}: {Gpu(**gpu)}")
    return 0


def _ps_rows(run: RunDirectory) -> list[dict[str, Any]]:
    """Return a row for each process of a run, its supervisor first."""
    state = run_state(run)
    return _live_rows(run) if state == "running" else _ended_rows(run, state)


def _ps_cells(row: Mapping[str, Any], *, hosts: bool) -> tuple[str, ...]:
    return (
        row["name"],
        *([row["host"] or HEAD_NAME] if hosts else []),
        _number(row["pid"]),
        row["state"],
        _number(row["cpu_percent"]),
        _bytes(row["memory_bytes"]),
        row["activity"] or "–",
        _seconds(row["since_s"]),
        _percent(row["busy"]),
        _percent(row["wait_in"]),
        _percent(row["wait_out"]),
        _number(row["version"]),
        _number(row["lag"]),
        _number(row["restarts"]),
    )


def _live_rows(run: RunDirectory) -> list[dict[str, Any]]:
    status = _status(run)
    supervisor = {"name": "supervisor", "pid": status["pid"], "state": status["state"]}
    supervisor["warnings"] = status.get("warnings", [])
    if _trained(run)["device"] not in (None, "cpu"):
        supervisor["gpus"] = [asdict(gpu) for gpu in gpus_here() or ()]
    known = [{"run": run.name, "restarts": 0, **facts} for facts in (supervisor, *status["helpers"], *status["actors"])]
    known = [one for facts in known for one in (facts, *_companions(facts))]
    known = [facts | (_remote_facts(facts) if facts.get("host") else _process_facts(facts["pid"])) for facts in known]
    rows = [{key: facts.get(key) for key in PS_KEYS} for facts in known]
    # A process that is being started has none; as 0 it would name whoever passes it to `kill`.
    return [row | {"pid": row["pid"] or None} for row in rows]


def _companions(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the facts of an actor's companions on this machine: the helpers of a collector."""
    if facts.get("host") or not facts["pid"] or not facts["name"].startswith(COLLECTOR):
        return []
    from hive.runtime.process.stacks import companions  # loads asyncio, which other listings do not need

    of = {"run": facts["run"], "restarts": 0}
    return [
        {**of, "name": f"{facts['name']}/{name}", "pid": pid, "state": facts["state"]}
        for pid, name in companions(facts["pid"]).items()
    ]


def _remote_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same of a process on another host, which reports them."""
    cpu = facts.get("cpu")
    return {"cpu_percent": None if cpu is None else round(100 * cpu), "memory_bytes": facts.get("memory_bytes")}


def _process_facts(pid: int) -> dict[str, Any]:
    import psutil

    try:
        process = psutil.Process(pid)
        age = max(time.time() - process.create_time(), 1e-3)
        used = process.cpu_times()
        return {"cpu_percent": round(100 * (used.user + used.system) / age), "memory_bytes": process.memory_info().rss}
    except psutil.Error:
        return {}


def _ended_rows(run: RunDirectory, state: str) -> list[dict[str, Any]]:
    try:
        summary = Summary.read(run.summary_file)
        restarts, warnings = summary.restarts, summary.warnings
    except RecordError:
        restarts, warnings = {}, [warning.data for warning in warnings_of(read_jsonl(run.events_file)).values()]
    first = {"run": run.name, "name": "supervisor", "state": state, "restarts": 0, "warnings": warnings}
    others = ({"run": run.name, "name": name, "state": state, "restarts": n} for name, n in restarts.items())
    return [dict.fromkeys(PS_KEYS) | row for row in (first, *others)]


def run_logs(options: argparse.Namespace) -> int:
    run = chosen_run(options.run_name)
    say_default(options.run_name, run)
    _check_logs(run, options.actors)
    lines = _lines(run, options.actors, max(options.tail, FOLLOW_LINES))
    shown = lines[max(len(lines) - options.tail, 0) :]
    if options.json:
        print(json_text(shown, indent=2))
        return 0
    for line in shown:
        print(line, flush=options.follow)
    while options.follow:
        alive = run_state(run) == "running"  # must be read before the lines, or the last lines could be missed
        seen = Counter(map(_unpadded, lines))
        lines = _lines(run, options.actors, FOLLOW_LINES)
        for line in lines:
            if seen[_unpadded(line)] > 0:
                seen[_unpadded(line)] -= 1
            else:
                print(line, flush=True)
        if not alive:
            break
        time.sleep(FOLLOW_S)
    _report_output(run, options.actors)
    return 0


def _report_output(run: RunDirectory, actors: Sequence[str]) -> None:
    """Name the files with printed output of environments and libraries, which is in no log because it has no times."""
    # The supervisor is left out because it executes no code of users.
    users = [path for path in sorted(run.logs.glob("*.out")) if path.stem != "supervisor"]
    printed = [path for path in users if not actors or path.stem in actors]
    if names := [str(path) for path in printed if path.is_file() and path.stat().st_size]:
        print(f"printed output is in: {listed(names)}", file=sys.stderr)


def _check_logs(run: RunDirectory, actors: Sequence[str]) -> None:
    """Raise UsageError for an actor without a log. Every actor has one from its start."""
    from hive.config.values import SHOWN_LENGTH
    from hive.printable import printable

    known = sorted(path.stem for path in run.logs.glob("*.log"))
    for actor in actors:
        if actor not in known:
            none = "" if known else ", and no other logs"
            raise UsageError(
                f"{run.name} has no log of `{printable(actor, SHOWN_LENGTH)}`{did_you_mean(actor, known)}{none}",
                hint=f"its logs are: {listed(known)}" if known else "",
            )


def _lines(run: RunDirectory, actors: Sequence[str], tail: int) -> list[str]:
    return list(merge_logs(sorted(run.logs.glob("*.log")), tail=tail, actors=actors))


def _unpadded(line: str) -> tuple[str, str]:
    """Split a line into actor and text, without the padding, which grows when an actor with a longer name logs."""
    actor, _, text = line.partition(" | ")
    return actor.rstrip(), text


# --- text


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _bytes(value: int | None) -> str:
    return "–" if value is None else f"{value / 2**20:.0f}M"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"
