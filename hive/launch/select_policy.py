"""Selects the policy that a command applies to, of a run whose environment has several agents."""

from __future__ import annotations

import sys

from hive.printable import printable
from hive.records import RunDirectory, policies_of, policy_directory


def chosen_policy(run: RunDirectory, name: str | None) -> tuple[str, RunDirectory]:
    """Return the name and the folder of a policy, of which a run with one agent has none: "" and its own folder.

    name: as given; None: the first, which is printed if there are others. Raises UsageError for an unknown one.
    """
    if name is not None:
        return name, policy_directory(run, name)
    found = policies_of(run)
    if not found:
        return "", run
    first, *others = found
    if others:
        also = ", ".join(printable(other) for other in others)
        print(f"note: the policy {printable(first)} of {run.name}; it also has {also} (--policy)", file=sys.stderr)
    return first, found[first]
