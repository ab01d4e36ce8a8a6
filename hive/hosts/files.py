"""The files of a run with hosts.

    <run>/hosts/left.join      what `hive join` needs on the host: address, keys. For its reader only
    <run>/hosts/left.keys      the head's side of the same link. For the head only
    <run>/hosts/left.json      the host's last status, which views read

and of a host's own run, a folder that its agent makes and removes:

    <folder>/host.json         its part of the run

A key pair belongs to one run and host. Whoever has the file `left.join` can take the place of the host `left` in this
run, and nothing else. Files with keys are readable by their owner only.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hive.errors import RecordError
from hive.records import Checkpoint, RunDirectory, write_bytes
from hive.records.directory import REPLAY_FOLDER
from hive.records.documents import JSON, json_text, read_document
from hive.runtime.run.hosts_status import STATUS_FOLDER
from hive.runtime.wire.links import KEY_LENGTH, KeyPair

FACTS_FILE = "host.json"


@dataclass(frozen=True)
class JoinFile:
    """What a host needs to join a run."""

    run: str
    host: str
    address: str  # of the head: "tcp://10.0.0.1:40123"
    head: str  # the head's public key
    public: str  # the host's keys
    secret: str
    silence_s: float

    @property
    def keys(self) -> KeyPair:
        return KeyPair(self.public, self.secret)

    @classmethod
    def read(cls, path: Path) -> JoinFile:
        """Read a file. Raises RecordError."""
        read = read_document(path, cls)
        for name in ("head", "public", "secret"):
            if len(getattr(read, name)) != KEY_LENGTH or not getattr(read, name).isascii():
                raise RecordError(f"`{name}` of {path} is not a key", hint="copy the file again from the head")
        if not read.address.startswith("tcp://"):
            raise RecordError(f"`address` of {path} does not begin with tcp://", hint="copy the file from the head")
        return read


@dataclass(frozen=True)
class HeadKeys:
    """The head's side of a link: its own keys, the public key of the host, and the port, 0 before it was bound."""

    public: str
    secret: str
    host_public: str
    host_secret: str
    port: int = 0

    @property
    def own(self) -> KeyPair:
        return KeyPair(self.public, self.secret)


@dataclass(frozen=True)
class HostFacts:
    """The part of a run that runs on a host.

    collectors, evaluators: [first, count] of those there. first: the first rollout of each that the head lacks. resume:
    `update`, `state` and `replay` of the checkpoint that the run was resumed from; {} without one.
    """

    run: str
    host: str
    incarnation: int
    address: str
    head: str
    public: str
    secret: str
    silence_s: float
    agent: int  # pid of the agent
    agent_start: int  # its start, which tells it from a later process with the same pid
    collectors: list[int]
    evaluators: list[int]
    first: list[int]
    resume: dict[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> KeyPair:
        return KeyPair(self.public, self.secret)

    def write(self, directory: Path) -> None:
        """Write the facts into the folder of the host's own run, readable by its owner only."""
        _write_private(directory / FACTS_FILE, dataclasses.asdict(self))


def host_facts(directory: Path) -> HostFacts | None:
    """Return the facts of a host's own run; None for any other run directory. Raises RecordError."""
    path = directory / FACTS_FILE
    return read_document(path, HostFacts) if path.exists() else None


def resumed_elsewhere(directory: Path, facts: HostFacts) -> Checkpoint | None:
    """Return the checkpoint that the head was resumed from, without its parts, which only the learner reads."""
    if not facts.resume:
        return None
    folder = directory / "resumed"
    (folder / REPLAY_FOLDER if facts.resume.get("replay") else folder).mkdir(parents=True, exist_ok=True)
    update, state = facts.resume["update"], facts.resume["state"]
    assert isinstance(update, int)
    assert isinstance(state, dict)
    return Checkpoint(folder, update, state)


def hosts_folder(directory: RunDirectory) -> Path:
    """Return the folder of the files of a run's hosts, and make it if there is none. Raises RecordError."""
    folder = directory.path / STATUS_FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def keys_of(directory: RunDirectory, host: str) -> HeadKeys:
    """Return the keys of a host's link, and make them if there are none. Raises RecordError."""
    path = hosts_folder(directory) / f"{host}.keys"
    if path.exists():
        return read_document(path, HeadKeys)
    own, theirs = KeyPair.new(), KeyPair.new()
    keys = HeadKeys(own.public, own.secret, theirs.public, theirs.secret)
    _write_private(path, dataclasses.asdict(keys))
    return keys


def write_join_file(directory: RunDirectory, host: str, keys: HeadKeys, address: str, silence_s: float) -> Path:
    """Write the file for `hive join`, and the port into the keys, so that a resumed run listens there again."""
    port = int(address.rpartition(":")[2])
    folder = hosts_folder(directory)
    if port != keys.port:
        _write_private(folder / f"{host}.keys", dataclasses.asdict(dataclasses.replace(keys, port=port)))
    join = JoinFile(directory.name, host, address, keys.public, keys.host_public, keys.host_secret, silence_s)
    path = folder / f"{host}.join"
    _write_private(path, dataclasses.asdict(join))
    return path


def _write_private(path: Path, document: dict[str, JSON]) -> None:
    before = os.umask(0o077)  # from its first byte on, also as a temporary file
    try:
        write_bytes(path, json_text(document, indent=2).encode() + b"\n")
    finally:
        os.umask(before)
