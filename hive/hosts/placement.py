"""Have other hosts run some of the collectors and evaluators of the built-in trainer's topology."""

from __future__ import annotations

from pathlib import Path

from hive.hosts.head import HostActor, HostLink, RemoteCollector, RemoteEvaluator
from hive.hosts.launcher import Launcher
from hive.hosts.ray_launcher import RayCluster
from hive.runtime import Handle, Topology
from hive.runtime.run.hosts_status import HOST
from hive.training import Blueprint


def connect_hosts(t: Topology, blueprint: Blueprint, directory: Path) -> None:
    """Put a process for each host into the topology, and its actors into that process. directory: that of the run."""
    config, nobody = blueprint.config, range(0)
    hosts: dict[str, Handle] = {}
    for name in config.hosts.cores:
        collectors, evaluators = config.placement.get(name, nobody), config.evaluator_placement.get(name, nobody)
        if not collectors and not evaluators:
            continue
        process, link = f"{HOST}{name}", HostLink(name, blueprint, collectors, evaluators, directory)
        actor = type("HostActor", (HostActor,), {"role": process, "numbered": False})  # one class per name
        host = t.add(actor, group=process, link=link)
        if collectors:
            t.substitute(t["collectors"], collectors, RemoteCollector, process=process, link=link)
            t.connect(t["learner"].behaviour, host.behaviour)
        if evaluators:
            t.substitute(t["evaluator"], evaluators, RemoteEvaluator, process=process, link=link)
        hosts[name] = host.handle()
    if hosts and config.hosts.launcher == "ray":
        wanted = {name: int(config.hosts.cores[name]) for name in hosts}
        cluster = RayCluster(directory.name, config.hosts.unprotected_ray)
        silence_s, handles = config.hosts.silence_s, [*hosts.values()]
        t.add(Launcher, cluster=cluster, wanted=wanted, hosts=handles, run=directory.name, silence_s=silence_s)
