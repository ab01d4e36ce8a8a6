"""Collectors on other machines: one run, whose head is the machine of `hive up`, with collectors on several hosts.

    head                                                       host "left", started by `hive join`
      process host-left                                          agent
        HostActor          <── Join, HostStatus, HostLog ───       │ starts
                           ─── Accepted, EndPart ───────────>      v
          │ policy         ─── PolicyBlock ─────────────────>  an ordinary run: supervisor, fork server, and
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

from hive.lazy import lazy_names

# Lazy, because the agent uses the files without torch.
__getattr__, __dir__ = lazy_names(__name__, __file__)
