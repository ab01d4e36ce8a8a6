"""Runs with collectors and evaluators on other hosts: network namespaces where they are allowed, else loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zmq

from hive.hosts.files import JoinFile
from hive.hosts.messages import PROTOCOL, Attach, Join, Ping
from hive.runtime.wire.links import KeyPair
from hive.runtime.wire.messages import encode

if TYPE_CHECKING:
    from conftest import House

sys.path.insert(0, str(Path(__file__).parent))

from namespaces import Network, network, unavailable
from slow_link import relay_in_thread

pytestmark = pytest.mark.full(reason="several hosts, each with a supervisor of its own")

HOSTS = """
hosts = ["head", "left", "right"]
workers = 3
[hosts]
cores = {{ left = 1, right = 1 }}
address = "{address}"
silence_s = {silence}
[supervision]
restarts = 50
"""
SILENCE_S = 5.0


def hosts(address: str = "127.0.0.1", silence: float = 20.0) -> str:
    return HOSTS.format(address=address, silence=silence)


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    if reason := unavailable():
        pytest.skip(reason)
    with network() as made:
        yield made


class Hosts:
    """A run with two hosts, of which each joins from its own namespace, or all from this machine."""

    def __init__(self, house: House, net: Network | None, config: Path, *words: str) -> None:
        self.house, self.net = house, net
        done = house.hive("up", config, "-d", *words, inside=net.inside("head") if net else ())
        assert done.returncode == 0, done.stderr
        self.run = done.stdout.strip()
        self.folder = house.home / self.run / "hosts"
        self.agents: dict[str, subprocess.Popen[str]] = {}

    def join(self, host: str, file: Path | None = None) -> None:
        inside = self.net.inside(host) if self.net else ()
        self.agents[host] = self.house.start("join", file or self.folder / f"{host}.join", "--wait", 60, inside=inside)

    def steps(self) -> int:
        return int(self.house.ps(self.run)["learner-0"]["counters"].get("env_steps", 0))

    def joined(self) -> int:
        """How often a host has joined."""
        return sum(event["kind"] == "joined" for event in self.house.events(self.run))

    def goes_on(self) -> None:
        begun = self.steps()
        self.house.until(lambda: self.steps() > begun + 5_000)

    def processes(self, host: str) -> list[int]:
        """All processes of a host: its agent, and those of its part, whose folder has the name of the host."""
        mine = {self.agents[host].pid}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                line = (entry / "stat").read_text()
            except OSError:
                continue
            parent, session = map(int, line.rpartition(")")[2].split()[1:4:2])
            named = f"hive-host-{host}-".encode() in text and str(self.house.home).encode() in text
            if named or {parent, session} & mine:
                mine.add(int(entry.name))
        return sorted(mine)

    def signal(self, host: str, number: int) -> None:
        for _ in range(2):  # children that were forked meanwhile
            for pid in self.processes(host):
                with_pid = Path(f"/proc/{pid}")
                if with_pid.exists():
                    os.kill(pid, number)

    def finish(self) -> dict[str, Any]:
        down = self.house.hive("down", self.run, inside=self.net.inside("head") if self.net else ())
        assert down.returncode == 0, down.stderr
        self.all_left()
        return self.house.ended(self.run)

    def all_left(self) -> None:
        """The run has ended, and all hosts with it."""
        for agent in self.agents.values():
            _, err = agent.communicate(timeout=self.house.limit_s)
            assert agent.returncode == 0, err
        assert not list(self.house.folder.glob("hive-host-*")), "a part left its folder"
        self.house.until(lambda: not self.house.processes())


def test_hosts_give_the_weights_of_one_machine(house: House) -> None:
    """Two runs with two hosts, and one without any, with the same lag."""
    seen = set()
    for name, more in (("a", hosts()), ("b", hosts()), ("one", "workers = 3\n")):
        config = house.config(
            f'[run]\nscheme = "a2c"\nname = "{name}"\nsteps = 40_000\n[env]\nid = "CartPole-v1"\n'
            f"[collection]\nenvs = 8\nrollout = 16\n{more}",
            f"{name}.toml",
        )
        run = Hosts(house, None, config)
        for host in ("left", "right") if name != "one" else ():
            run.join(host)
        house.until(lambda name=name: (house.home / f"{name}-1" / "summary.json").exists())  # type: ignore[misc]
        run.all_left()
        summary = house.ended(run.run)
        assert summary["exact"] is True
        seen.add(summary["weights_sha256"])
    assert len(seen) == 1


def test_hosts_with_addresses_of_their_own_reach_the_goal(house: House, net: Network) -> None:
    config = house.cartpole(2_000_000, "stop_at_return = 150", hosts(net.address("head")))
    run = Hosts(house, net, config)
    assert JoinFile.read(run.folder / "left.join").address.startswith(f"tcp://{net.address('head')}:")
    run.join("left")
    run.join("right")
    house.until(lambda: (house.home / run.run / "summary.json").exists(), 120.0)
    summary = house.ended(run.run)
    assert summary["stop_reason"].startswith("mean return"), summary["stop_reason"]
    run.all_left()


def test_a_host_that_is_killed_stopped_or_cut_off_comes_back(house: House, net: Network) -> None:
    run = Hosts(house, net, house.cartpole(more=hosts(net.address("head"), SILENCE_S)))
    run.join("left")
    run.join("right")
    house.until_steps(run.run, 5_000)

    run.signal("left", signal.SIGKILL)  # the whole host, as when its power fails
    run.agents.pop("left").wait()
    run.join("left")
    house.until(lambda: run.joined() == 3)
    run.goes_on()

    net.cut("right")  # shorter than the limit: nothing is lost
    time.sleep(SILENCE_S / 2)
    net.mend("right")
    run.goes_on()
    assert house.ps(run.run)["host-right"]["restarts"] == 0

    net.cut("right")  # longer: the host is lost, and joins again
    house.until(lambda: house.ps(run.run)["host-right"]["restarts"] == 1)
    net.mend("right")
    run.goes_on()

    run.signal("left", signal.SIGSTOP)
    house.until(lambda: house.ps(run.run)["host-left"]["restarts"] >= 2)
    run.signal("left", signal.SIGCONT)
    run.goes_on()

    summary = run.finish()
    assert summary["exact"] is False
    assert run.joined() >= 5


def test_a_slow_and_lossy_link_only_costs_time(house: House) -> None:
    run = Hosts(house, None, house.cartpole(more=hosts()))
    join = JoinFile.read(run.folder / "left.join")
    with relay_in_thread(int(join.address.rpartition(":")[2]), delay_s=0.01, loss=0.01) as link:
        run.join("left", relayed(run, link, join))
        run.join("right")
        house.until_steps(run.run, 3_000)
        link.call(link.relay.break_off)  # what was on its way is lost
        run.goes_on()
        house.until(lambda: house.ps(run.run)["host-left"]["counters"]["round_trip_ms"] >= 20)
        assert house.ps(run.run)["host-left"]["restarts"] == 0
        run.finish()


def relayed(run: Hosts, link: Any, join: JoinFile) -> Path:
    """A join file of left that leads through a relay."""
    path = run.folder / "relayed.join"
    document = json.loads((run.folder / "left.join").read_text())
    path.write_text(json.dumps(document | {"address": f"tcp://127.0.0.1:{link.relay.port}"}))
    return path


def test_netem_delays_and_loses_packets(house: House, net: Network) -> None:
    if reason := net.disturb("left", "delay", "20ms", "loss", "1%"):
        pytest.skip(reason)
    run = Hosts(house, net, house.cartpole(more=hosts(net.address("head"))))
    run.join("left")
    run.join("right")
    house.until_steps(run.run, 3_000)
    assert house.ps(run.run)["host-left"]["counters"]["round_trip_ms"] >= 20
    run.finish()
    net.restore("left")


def test_every_process_of_a_link_can_be_killed(house: House) -> None:
    run = Hosts(house, None, house.cartpole(more=hosts()))
    run.join("left")
    run.join("right")
    house.until_steps(run.run, 5_000)
    os.kill(house.ps(run.run)["host-left"]["pid"], signal.SIGKILL)  # on the head
    run.goes_on()
    for name in ("left/link", "collector-1", "left/supervisor"):  # on the host
        seen: dict[str, Any] = {}

        def there(name: str = name, seen: dict[str, Any] = seen) -> bool:
            seen.update(house.ps(run.run).get(name, {}))
            return seen.get("host") == "left" and seen["pid"] > 0  # 0: it is being started

        house.until(there)
        os.kill(seen["pid"], signal.SIGKILL)
        run.goes_on()
    joined = run.joined()
    run.agents["left"].kill()  # its part notices
    run.agents.pop("left").wait()
    run.join("left")
    house.until(lambda: run.joined() > joined)
    run.goes_on()
    run.finish()


def test_strangers_are_refused_counted_and_logged(house: House) -> None:
    run = Hosts(house, None, house.cartpole(more=hosts()))
    run.join("left")
    run.join("right")
    house.until_steps(run.run, 3_000)
    join = JoinFile.read(run.folder / "left.join")
    wrong, context = KeyPair.new(), zmq.Context()
    try:
        assert not _answered(context, join, None)  # without keys
        assert not _answered(context, join, wrong)
        with socket.create_connection(("127.0.0.1", int(join.address.rpartition(":")[2]))) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
        house.until(lambda: house.ps(run.run)["host-left"]["counters"]["refused"] >= 3)
        # With the key, but nonsense after the handshake, or in the name of an earlier incarnation.
        line = _client(context, join, join.keys)
        line.send_multipart([b"\xc1", b"x" * 100])
        line.send_multipart(encode(Join(PROTOCOL + 1, "0.0", 0, "m", 1, 1)))
        assert b"protocol" in b"".join(line.recv_multipart())
        for message in (Ping(7, 0, 0, 0), Attach(7, "")):
            line.send_multipart(encode(message))
        house.until(lambda: house.ps(run.run)["host-left"]["counters"]["late"] >= 2)
        line.close(linger=0)
    finally:
        context.destroy(linger=0)
    kinds = {event["kind"] for event in house.events(run.run)}
    assert {"bad message", "late", "refused"} <= kinds
    run.goes_on()
    run.finish()


def _client(context: zmq.Context[Any], join: JoinFile, keys: KeyPair | None) -> zmq.Socket[bytes]:
    line: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    if keys is not None:
        line.curve_serverkey = join.head.encode()
        line.curve_publickey, line.curve_secretkey = keys.public.encode(), keys.secret.encode()
    line.connect(join.address)
    return line


def _answered(context: zmq.Context[Any], join: JoinFile, keys: KeyPair | None) -> bool:
    line = _client(context, join, keys)
    line.send_multipart(encode(Join(PROTOCOL, "0.0", 0, "stranger", 1, 1)))
    answered = bool(line.poll(1000))
    line.close(linger=0)
    return answered


def test_a_killed_head_is_resumed_exactly_with_its_hosts(house: House) -> None:
    text = "[checkpoint]\nevery = { updates = 40 }\n"
    plain = house.hive("up", house.cartpole(100_000, more=f"workers = 3\n{text}"), "--name", "plain")
    assert plain.returncode == 0, plain.stderr
    config = house.cartpole(100_000, more=f"{hosts()}{text}")
    run = Hosts(house, None, config)
    run.join("left")
    run.join("right")
    house.until(lambda: len(list((house.home / run.run / "checkpoints").glob("0*/DONE"))) >= 1)
    os.kill(house.ps(run.run)["supervisor"]["pid"], signal.SIGKILL)
    for name in ("left", "right"):
        agent = run.agents.pop(name)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(house.limit_s) == 0
    done = house.start("resume", run.run, "--exact")
    house.until(lambda: "running" in [row["state"] for row in _rows(house, run.run)])
    run.join("left")
    run.join("right")
    out, err = done.communicate(timeout=house.limit_s)
    assert done.returncode == 0, (out, err)
    run.all_left()
    assert house.summary(run.run)["weights_sha256"] == house.summary("plain-1")["weights_sha256"]


def _rows(house: House, run: str) -> list[dict[str, Any]]:
    try:
        return [*house.ps(run).values()]
    except Exception:
        return []


def test_evaluations_are_made_on_other_hosts(house: House) -> None:
    text = '[evaluation]\nevery = { updates = 40 }\nepisodes = 2\nworkers = 2\nhosts = ["left", "right"]\n'
    run = Hosts(house, None, house.cartpole(60_000, more=f"{hosts()}{text}"))
    run.join("left")
    run.join("right")
    house.until(lambda: (house.home / run.run / "summary.json").exists(), 120.0)
    run.all_left()
    house.ended(run.run)
    lines = (house.home / run.run / "evaluations.jsonl").read_text().splitlines()
    assert lines
    assert [json.loads(line)["turn"] % 40 for line in lines] == [0] * len(lines)
    assert list((house.home / run.run / "best").iterdir())
