"""`hive ps`: lists the processes of a run, what each is doing, and how it spends its time; or its environments."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from hive.cli.parts.arguments import add_json, add_run
from hive.cli.parts.listing import in_seconds, status_of, trained
from hive.errors import RecordError
from hive.gpus import Gpu, gpus_here
from hive.launch.select_run import chosen_run, live_here
from hive.printable import printable
from hive.records import (
    RunDirectory,
    Summary,
    run_state,
)
from hive.records.documents import json_text
from hive.records.environments import (
    EnvironmentRow,
    median_step_s,
    read_environments,
    without_processes,
    worst_step_s,
)
from hive.records.return_text import return_text
from hive.records.run_warnings import RunWarning, logged_warnings, shown
from hive.records.standings import PolicyStanding, standings
from hive.records.summary import rounds_in, rounds_text
from hive.runtime.run.control import OtherProtocol
from hive.table import table_text

COLLECTOR = "collector"  # begins the names of the actors that may have helpers

HEAD_NAME = "head"  # hive.config.schema.HEAD, without the import of all keys

PS_KEYS = (
    *("run", "name", "host", "pid", "state", "restarts", "cpu_percent", "memory_bytes", "activity", "since_s"),
    *("busy", "wait_in", "wait_out", "version", "lag", "phases", "counters", "environments"),
    *("warnings", "gpus", "policies", "rounds"),
)  # keys of every row of `ps --json`; null without one. The last four are of the run, and in the first row

COLUMNS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "NAME": lambda row: row["name"],
    "HOST": lambda row: row["host"] or HEAD_NAME,  # left out where no process is on another host
    "PID": lambda row: _number(row["pid"]),
    "STATE": lambda row: row["state"],
    "CPU%": lambda row: _number(row["cpu_percent"]),
    "MEM": lambda row: _bytes(row["memory_bytes"]),
    "ACTIVITY": lambda row: row["activity"] or "–",
    "SINCE": lambda row: in_seconds(row["since_s"]),
    "BUSY": lambda row: _percent(row["busy"]),
    "WAIT-IN": lambda row: _percent(row["wait_in"]),
    "WAIT-OUT": lambda row: _percent(row["wait_out"]),
    "VERSION": lambda row: _number(row["version"]),
    "LAG": lambda row: _number(row["lag"]),
    "RESTARTS": lambda row: _number(row["restarts"]),
}


POLICY_COLUMNS: Mapping[str, Callable[[PolicyStanding], str]] = {
    "POLICY": lambda policy: printable(policy.name),
    "ALGORITHM": lambda policy: policy.algorithm,
    "UPDATES": lambda policy: f"{policy.updates:,}",
    "RETURN": lambda policy: return_text(policy.mean_return),
    "AGENTS": lambda policy: printable(", ".join(policy.agents)),
}


def add_ps(commands: Any) -> None:
    ps = commands.add_parser(
        "ps",
        description="List the processes of a run: what each is doing, and how it spends its time.",
        epilog="example: hive ps cartpole-ppo-1",
    )
    add_run(ps, "all live runs in $HIVE_HOME, else the newest run there")
    ps.add_argument(
        "--envs",
        action="store_true",
        help="list the environments that are stepped by processes of their own: their failures and the times of steps",
    )
    add_json(ps, "one JSON array")
    ps.set_defaults(run=run_ps)


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
        (_print_environments if options.envs else _print_rows)(rows)
    return 0


def _print_head(first: Mapping[str, Any]) -> None:
    """Print the state and the warnings of a run."""
    print(f"{first['run']}  {first['state']}")
    for warning in shown(RunWarning.of(data) for data in first["warnings"] or ()):
        print(f"warning: {warning.line}")


def _print_environments(rows: list[dict[str, Any]]) -> None:
    """Print the environments of a run as a table, below its state and warnings."""
    _print_head(rows[0])
    table = [(row["name"], one) for row in rows for one in _environments(row)]
    if not table:
        print("no environment is stepped by a process of its own, or none has started yet")
        return
    from hive.monitor.environments import ENVIRONMENTS  # loads what views need, which other listings do not

    lines = [[name, *(column.cell(one).text or "–" for column in ENVIRONMENTS)] for name, one in table]
    print(table_text(["NAME", *(column.title for column in ENVIRONMENTS)], lines))


def _environments(row: Mapping[str, Any]) -> list[EnvironmentRow]:
    return [EnvironmentRow(**one) for one in row["environments"] or ()]


def _environment_columns() -> dict[str, Callable[[Mapping[str, Any]], str]]:
    """Return the columns of a table with actors whose environments are stepped by processes."""
    from hive.monitor.environments import failures, running_text, step_text

    def cell(text: Callable[[list[EnvironmentRow]], str]) -> Callable[[Mapping[str, Any]], str]:
        return lambda row: text(environments) if (environments := _environments(row)) else "–"

    return {
        "ENVS": cell(running_text),
        "FAILURES": cell(lambda each: str(failures(each))),
        "MEDIAN": cell(lambda each: step_text(median_step_s(each))),
        "WORST": cell(lambda each: step_text(worst_step_s(each))),
    }


def _print_rows(rows: list[dict[str, Any]]) -> None:
    """Print the processes of a run as a table, below its state and warnings."""
    first = rows[0]
    _print_head(first)
    if rounds := first["rounds"]:
        print(f"rounds: {rounds}")
    hosts = any(row["host"] for row in rows)
    columns = {name: cell for name, cell in COLUMNS.items() if hosts or name != "HOST"}
    if any(row["environments"] for row in rows):
        columns |= _environment_columns()
    print(table_text([*columns], [[cell(row) for cell in columns.values()] for row in rows]))
    if policies := [PolicyStanding(**policy) for policy in first["policies"] or ()]:
        print()
        print(table_text([*POLICY_COLUMNS], [[cell(one) for cell in POLICY_COLUMNS.values()] for one in policies]))
    for number, gpu in enumerate(first["gpus"] or ()):
        print(f"gpu {number}: {Gpu(**gpu)}")


def _ps_rows(run: RunDirectory) -> list[dict[str, Any]]:
    """Return a row for each process of a run, its supervisor first."""
    state = run_state(run)
    return _live_rows(run) if state == "running" else _ended_rows(run, state)


def _live_rows(run: RunDirectory) -> list[dict[str, Any]]:
    status = status_of(run)
    supervisor = {"name": "supervisor", "pid": status["pid"], "state": status["state"]}
    supervisor["warnings"] = status.get("warnings", [])
    supervisor["policies"] = status.get("policies")
    names = trained(run)
    if rounds := rounds_in(actor["counters"] or {} for actor in status["actors"]):
        supervisor["rounds"] = rounds_text(rounds, names["algorithm"] or "")
    if names["device"] not in (None, "cpu"):
        supervisor["gpus"] = [asdict(gpu) for gpu in gpus_here() or ()]
    known = [{"run": run.name, "restarts": 0, **facts} for facts in (supervisor, *status["helpers"], *status["actors"])]
    known = [process for facts in known for process in (facts, *_companions(facts))]
    known = [facts | (_remote_facts(facts) if facts.get("host") else _process_facts(facts["pid"])) for facts in known]
    rows = [{key: facts.get(key) for key in PS_KEYS} | _environments_of(run, facts) for facts in known]
    # A process that is being started has none. A pid of 0, given to `kill`, is the caller's own process group.
    return [row | {"pid": row["pid"] or None} for row in rows]


def _environments_of(run: RunDirectory, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environments of an actor that are stepped by processes of this machine; {} without any."""
    each = () if facts.get("host") else read_environments(run, facts["name"])
    if not facts.get("pid"):
        each = without_processes(each, facts["state"])
    return {"environments": [asdict(one) for one in each]} if each else {}


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
        restarts, warnings = {}, [warning.data for warning in logged_warnings(run)]
    first: dict[str, Any] = {"run": run.name, "name": "supervisor", "state": state, "restarts": 0, "warnings": warnings}
    if policies := standings(run):
        first["policies"] = [policy.data for policy in policies]
    others = ({"run": run.name, "name": name, "state": state, "restarts": n} for name, n in restarts.items())
    return [dict.fromkeys(PS_KEYS) | row | _environments_of(run, row) for row in (first, *others)]


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _bytes(value: int | None) -> str:
    return "–" if value is None else f"{value / 2**20:.0f}M"
