"""Collectors on other machines: one run, whose head is the machine of `hive up`, with collectors on several hosts.

    head                                                       host "left", started by `hive join`
      process host-left                                          agent
        HostActor          <── Join, HostStatus, HostLog ───       │ starts
                           ─── Accepted, End ───────────────>      v
          │ policy         ─── Policy ──────────────────────>  an ordinary run: supervisor, fork server, and
          │                                                      process link:  PolicyImporter, RolloutExporter
        RemoteCollector    <── RolloutSent ─────────────────       │ behaviour   ^ rollouts
          │ rollouts       ─── Taken ───────────────────────>      v             │
          v                                                      collector-2, collector-3, ...
        gradient workers

Inside a host everything is as in a run on one machine: shared memory, futexes, a supervisor that restarts what dies.
The link carries rollouts one way, and the policy the other way once per version. In the head's topology each remote
collector keeps its place, name, number, slots and account. Only its class is another one, `RemoteCollector`, which
commits what the host sends. So no consumer of rollouts knows about hosts, and a run whose modes are deterministic gives
the same weights wherever its collectors are.

Everything that travels is numbered, and repeated until the other end says that it has it (`hive.hosts.messages`).

A host that is silent for `hosts.silence_s` is lost. Its process on the head ends then, which is an exit like any other:
its actors have `Left`, its slots are repaired, and the successor waits for the host to join again. The collectors there
begin with the first rollout that the head lacks. Each joining has an incarnation, a number that grows; what comes from
an older one is refused and counted.

With `hosts.launcher = "ray"`, the actor `launcher` has a Ray cluster start the agents (hive.hosts.launcher). Nothing
else changes, except that keys are exchanged through Ray instead of files.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["HostFacts", "connect_hosts", "host_facts", "part_of", "resumed_elsewhere"]

# Imported at the first use of a name: the agent uses the files without torch.
_HOMES = {
    "HostFacts": "hive.hosts.files",
    "connect_hosts": "hive.hosts.placement",
    "host_facts": "hive.hosts.files",
    "part_of": "hive.hosts.part",
    "resumed_elsewhere": "hive.hosts.files",
}

if TYPE_CHECKING:
    from hive.hosts.files import HostFacts, host_facts, resumed_elsewhere
    from hive.hosts.part import part_of
    from hive.hosts.placement import connect_hosts
else:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        raise AttributeError(f"module `hive.hosts` has no attribute `{name}`")
