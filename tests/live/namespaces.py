"""Hosts as network namespaces of this machine, each with an address of its own, on a bridge of their own.

    head 10.77.0.1      left 10.77.0.2      right 10.77.0.3

Nothing of the machine's own network is touched: the bridge lies in the namespace of the head.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["Network", "network", "unavailable"]

NAMES = ("head", "left", "right")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)


def unavailable() -> str:
    """Return why there can be no namespaces here; "" if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"network namespaces need the command {missing[0]} (package iproute2)"
    name = f"hive-try-{os.getpid()}"
    try:
        _run("ip", "netns", "add", name)
        _run("ip", "netns", "delete", name)
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not allowed here: {error.stderr.strip()}"
    return ""


class Network:
    """Three hosts on one bridge."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def namespace(self, host: str) -> str:
        return f"{self.prefix}-{host}"

    def address(self, host: str) -> str:
        return f"10.77.0.{NAMES.index(host) + 1}"

    def inside(self, host: str) -> Sequence[str]:
        """The beginning of a command that runs in the namespace of a host."""
        return ("ip", "netns", "exec", self.namespace(host))

    def run(self, host: str, *command: str) -> None:
        _run(*self.inside(host), *command)

    def make(self) -> None:
        for host in NAMES:
            _run("ip", "netns", "add", self.namespace(host))
            self.run(host, "ip", "link", "set", "lo", "up")
        self.run("head", "ip", "link", "add", "bridge0", "type", "bridge")
        self.run("head", "ip", "link", "set", "bridge0", "up")
        self.run("head", "ip", "address", "add", f"{self.address('head')}/24", "dev", "bridge0")
        for host in NAMES[1:]:
            self.run("head", "ip", "link", "add", f"to-{host}", "type", "veth", "peer", "name", "up0")
            self.run("head", "ip", "link", "set", "up0", "netns", self.namespace(host))
            self.run("head", "ip", "link", "set", f"to-{host}", "master", "bridge0", "up")
            self.run(host, "ip", "address", "add", f"{self.address(host)}/24", "dev", "up0")
            self.run(host, "ip", "link", "set", "up0", "up")

    def remove(self) -> None:
        for host in NAMES:
            subprocess.run(["ip", "netns", "delete", self.namespace(host)], capture_output=True, timeout=30)

    def cut(self, host: str) -> None:
        """Part the link of a host: what is sent is lost, and no end is told."""
        self.run("head", "ip", "link", "set", f"to-{host}", "nomaster")

    def mend(self, host: str) -> None:
        self.run("head", "ip", "link", "set", f"to-{host}", "master", "bridge0")

    def disturb(self, host: str, *netem: str) -> str:
        """Delay and lose what the link of a host carries, in both directions: "delay", "20ms", "loss", "1%".

        Return why this kernel cannot; "" if it can. `restore` ends it.
        """
        try:
            self.run("head", "tc", "qdisc", "replace", "dev", f"to-{host}", "root", "netem", *netem)
            self.run(host, "tc", "qdisc", "replace", "dev", "up0", "root", "netem", *netem)
        except subprocess.CalledProcessError as error:
            return f"this kernel cannot delay a link: {error.stderr.strip().splitlines()[-1]}"
        return ""

    def restore(self, host: str) -> None:
        self.run("head", "tc", "qdisc", "delete", "dev", f"to-{host}", "root")
        self.run(host, "tc", "qdisc", "delete", "dev", "up0", "root")


@contextmanager
def network() -> Iterator[Network]:
    made = Network(f"hive{os.getpid()}")
    try:
        made.make()
        yield made
    finally:
        made.remove()
