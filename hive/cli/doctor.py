"""`hive doctor`: finds problems with this machine or with one run, and suggests solutions.

    ok      torch        2.7.1
    warn    descriptors  a process may have 1,024; a run of 100 actors needs about 900
    bad     sockets      /tmp/hive-1000 is not a private folder of yours - remove it, or: chmod 700 /tmp/hive-1000

The exit code is 1 if a finding is `bad`, otherwise 0.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from hive.cli.parts.arguments import add_json, add_run
from hive.cli.parts.machine_checks import BAD, machine_findings
from hive.cli.parts.run_checks import run_findings
from hive.launch.select_run import named_run
from hive.records.documents import json_text
from hive.table import table_text


def add_doctor(commands: Any) -> None:
    doctor = commands.add_parser(
        "doctor",
        description="Find problems with this machine and the installation, or with one run, and suggest solutions. "
        "The exit code is 1 if a finding is bad.",
        epilog="example: hive doctor cartpole-ppo-1",
    )
    add_run(doctor, "this machine instead of a run")
    add_json(doctor, "one JSON array of findings")
    doctor.set_defaults(run=run_doctor)


def run_doctor(options: argparse.Namespace) -> int:
    name = options.run_name
    findings = [*(machine_findings() if name is None else run_findings(named_run(name)))]
    if options.json:
        print(json_text([asdict(finding) for finding in findings], indent=2))
    else:
        rows = [(f.level, f.subject, f"{f.text} - {f.hint}" if f.hint else f.text) for f in findings]
        print(table_text(("", "", ""), rows))
    return int(any(finding.level == BAD for finding in findings))
