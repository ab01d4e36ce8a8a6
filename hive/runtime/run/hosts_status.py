"""The status of a run with other hosts: the rows of their actors, as the hosts report them.

The process on the head that talks to a host writes the host's last status document to `hosts/<name>.json` in the run
directory. Here it replaces what the head itself knows of an actor there, which is only that it waits for the host.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hive.errors import HiveError
from hive.records.documents import read_object
from hive.runtime.run.status_document import misfit_of
from hive.runtime.wire.messages import Tree

STATUS_FOLDER = "hosts"  # folder of a run directory
HOST = "host-"  # beginning of the name of the process and the actor on the head that talk to a host
FRESH_S = 5.0  # age at which a host's status is no longer shown; the host sends two a second

# What the host knows of an actor.
TAKEN = (
    *("pid", "activity", "since_s", "busy", "wait_in", "wait_out", "runtime", "phases", "kinds", "version", "lag"),
    *("restarts", "cpu", "memory_bytes"),
)


def host_of(process: str, actor: str) -> str | None:
    """Return the actor that talks to the host of `actor`; None for an actor that runs on the head."""
    return process if process.startswith(HOST) and actor != process else None


def with_hosts(document: dict[str, Tree], folder: Path) -> dict[str, Tree]:
    """Return the status document with the rows of actors on other hosts, whose statuses lie in `folder`."""
    if not folder.is_dir():
        return document
    reports = {path.stem: report for path in folder.glob("*.json") if (report := _report(path))}
    helpers, actors = [*document["helpers"]], []
    known = {actor["name"] for actor in document["actors"]}
    for actor in document["actors"]:
        host = str(actor.get("process", "")).removeprefix(HOST)
        theirs = reports.get(host, {}).get(actor["name"]) if actor["process"] == f"{HOST}{host}" else None
        actors.append(_taken(actor, theirs, host) if theirs else actor)
    for host, report in reports.items():
        rest = {row.get("process", name): row for name, row in report.items() if name not in known}
        helpers += [_helper(f"{host}/{name}", row, host) for name, row in rest.items()]
    return document | {"actors": actors, "helpers": helpers}


def _taken(actor: Mapping[str, Any], theirs: Mapping[str, Any], host: str) -> dict[str, Tree]:
    taken = {key: theirs[key] for key in TAKEN if key in theirs}
    return {**actor, **taken, "process": f"{host}/{theirs['process']}", "host": host}


def _helper(name: str, row: Mapping[str, Any], host: str) -> dict[str, Tree]:
    kept = {key: row[key] for key in ("pid", "state", "cpu", "memory_bytes") if key in row}
    return {"name": name, "host": host, **kept}


def _report(path: Path) -> dict[str, Mapping[str, Any]]:
    """Return the rows of a host's last status by name; {} if there is none, or it is old."""
    with contextlib.suppress(HiveError, OSError):
        if time.time() - path.stat().st_mtime < FRESH_S:
            status = read_object(path)
            if not misfit_of(status):
                supervisor = {"name": "supervisor", "pid": status["pid"], "state": status["state"]}
                facts = status.get("processes", {})
                rows = (supervisor, *status["helpers"], *status["actors"])
                return {row["name"]: {**row, **facts.get(str(row["pid"]), {})} for row in rows}
    return {}
