"""Says which process may write in a run's directory: its owner, one at a time, on any host.

    command     own ── check, make or resume ── hand_over ──> supervisor: adopt, owned ... give_up at its end
                 └─ refused while another one owns it

`run.lock` is locked by its owner, from the first look at the run to its end, and holds who that is as JSON. The lock
is one of the open file (`F_OFD_SETLK`): the kernel frees it when the last process that has the file open is gone, it
can be passed to another process, and it is one lock for all containers of a machine, whatever pids they see.

Where a folder is shared between hosts, a lock may be known to one of them only. So an owner also writes a token of its
own and touches the file every TOUCH_S, and a process of another machine takes it only once it has stood still for
STILL_S of that process's own clock. An owner that was asleep for so long finds another token, and ends before it writes
again (`is_ours`).
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hive.errors import RecordError, UsageError
from hive.records.directory import RunDirectory
from hive.records.documents import failure

TOUCH_S = 10.0  # interval at which an owner shows that it is alive
STILL_S = 60.0  # seconds without a touch after which an owner on another host is gone
SKEW_S = 86_400.0  # clocks of hosts that share files differ by less, so that an older touch need not be watched
ENDING_S = 3.0  # a run whose summary is written needs less to let its lock go
LOOK_S = 0.1  # interval between two looks while waiting
OWNER_BYTES = 4096  # maximum bytes of the file: a few short names
FLOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid
UNSUPPORTED = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # by kernels and file systems without them

_locks: dict[Path, RunLock] = {}  # those that this process holds


@dataclass(frozen=True)
class Owner:
    """The content of run.lock. `boot` is the kernel's, the same for all containers of a machine."""

    token: str
    host: str
    pid: int
    boot: str
    namespace: int  # inode of the pid namespace: `pid` is a number there

    @classmethod
    def me(cls, token: str) -> Owner:
        """Return this process as the owner."""
        return cls(token, socket.gethostname(), os.getpid(), boot_id(), pid_namespace())

    @property
    def text(self) -> str:
        """Who it is, for people: `process 4711`, `process 4711 of another container`, `process 4711 on node-3`."""
        where = "" if self.namespace == pid_namespace() else f" of another container ({self.host})"
        return f"process {self.pid}{where if self.is_here else f' on {self.host}'}"

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine since its last boot."""
        return self.boot == boot_id()

    @property
    def is_reachable(self) -> bool:
        """Whether it is in the same container, too, so that this process sees its pid and its sockets."""
        return self.is_here and self.namespace == pid_namespace()


def boot_id() -> str:
    """Return the number of this boot of this machine; "" if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> int:
    """Return the inode of the namespace in which this process has its pid; 0 if it cannot be read."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


class RunLock:
    """The lock of one run, held by this process: the descriptor of `run.lock` and the token of its owner."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.token = secrets.token_hex(16)
        self._touched = time.monotonic()

    def write_owner(self) -> None:
        """Name this process as the owner. A full disk does not matter: the lock itself needs no space."""
        with suppress(OSError):
            data = json.dumps(dataclasses.asdict(Owner.me(self.token))).encode()
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, data, 0)

    def touch(self) -> None:
        """Show other hosts that the owner is alive; called often."""
        if time.monotonic() - self._touched >= TOUCH_S:
            self._touched = time.monotonic()
            with suppress(OSError):
                os.utime(self.descriptor)

    def is_ours(self) -> bool:
        """Whether nobody else has become the owner. A lock file that was removed is made again."""
        try:
            if os.stat(self.path, follow_symlinks=False).st_ino != os.fstat(self.descriptor).st_ino:
                return False
        except FileNotFoundError:
            return self._made_again()
        except OSError:
            return True  # a share that does not answer says nothing
        owner = _read(self.descriptor)
        return owner is None or owner.token == self.token

    def _made_again(self) -> bool:
        try:
            new = _opened(self.path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        except OSError:
            return True  # without its folder a run ends for that reason
        _lock(new)
        os.close(self.descriptor)
        self.descriptor = new
        self.write_owner()
        return True

    def close(self, *, clear: bool = True) -> None:
        """Let the lock go. clear: name no owner any more; False where another process holds it, too."""
        if clear and self.is_ours():
            with suppress(OSError):
                os.ftruncate(self.descriptor, 0)
                _unlock(self.descriptor)  # user code may have forked processes that have the file open
        os.close(self.descriptor)


def own(run: RunDirectory, report: Callable[[str], object] = lambda text: None) -> None:
    """Make this process the owner of a run. report: is called before it has to wait.

    Raises UsageError if another process is, and RecordError if `run.lock` cannot be written.
    """
    try:
        descriptor = _opened(run.lock_file, os.O_CREAT)
    except OSError as error:
        raise failure("lock", run.lock_file, error) from error
    try:
        _acquire(run, descriptor, report)
    except BaseException:
        os.close(descriptor)
        raise
    lock = RunLock(run.lock_file, descriptor)
    lock.write_owner()
    _locks[run.path] = lock


def adopt(run: RunDirectory, descriptor: int) -> None:
    """Become the owner by the descriptor of a lock that another process took, and passed on."""
    os.set_inheritable(descriptor, False)
    lock = _locks[run.path] = RunLock(run.lock_file, descriptor)
    lock.write_owner()


def owned(run: RunDirectory) -> RunLock:
    """Return the lock of a run that this process owns; it is taken first if nobody owns the run. Raises as `own`."""
    if run.path not in _locks:
        own(run)
    return _locks[run.path]


def descriptor_of(run: RunDirectory) -> int | None:
    """Return the descriptor of the lock to pass on; None if this process does not own the run."""
    lock = _locks.get(run.path)
    return None if lock is None else lock.descriptor


def give_up(run: RunDirectory, *, clear: bool = True) -> None:
    """Let the lock of a run go, if this process has it. clear: False if it was handed over."""
    if (lock := _locks.pop(run.path, None)) is not None:
        lock.close(clear=clear)


@contextmanager
def only_owner(run: RunDirectory) -> Iterator[None]:
    """Own a run inside the context. Raises as `own`."""
    own(run)
    try:
        yield
    finally:
        give_up(run)


def owner_of(run: RunDirectory) -> Owner | None:
    """Return the live owner of a run; None if nobody writes in it. It neither waits nor takes the lock."""
    try:
        descriptor = os.open(run.lock_file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError:
        return _owner_of_another_user(run)
    except OSError:
        return None
    try:
        owner = _read(descriptor)
        if _is_locked(descriptor):
            return owner or Owner("", "", 0, boot_id(), pid_namespace())
        is_still = owner is None or owner.is_here or time.time() - os.fstat(descriptor).st_mtime >= STILL_S
        return None if is_still else owner
    finally:
        os.close(descriptor)


def _owner_of_another_user(run: RunDirectory) -> Owner | None:
    """Return an owner without a name if a file that this user cannot read names one, and was touched lately."""
    facts = os.stat(run.lock_file, follow_symlinks=False)
    is_live = facts.st_size > 0 and time.time() - facts.st_mtime < STILL_S
    return Owner("", "", 0, boot_id(), pid_namespace()) if is_live else None


def token_of(run: RunDirectory) -> str:
    """Return the token of the owner that run.lock names; "" if it names none."""
    try:
        descriptor = os.open(run.lock_file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        owner = _read(descriptor)
    finally:
        os.close(descriptor)
    return "" if owner is None else owner.token


class Ownership:
    """That of the run of this process, for its actors: whether it is still the one that it was at their start."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.token = token_of(run)

    def check(self) -> None:
        """Raise RecordError if another process has become the owner of the run."""
        if self.token and token_of(self.run) not in ("", self.token):
            raise RecordError(f"another process continues {self.run.name}: this one writes no more in it")


def refusal(run: RunDirectory, owner: Owner | None) -> UsageError:
    """Return the error for a process that would write beside the owner of a run."""
    who = f" by {owner.text}" if owner is not None and owner.pid else ""
    inside = "" if owner is None or owner.is_reachable else ", where it runs"
    return UsageError(
        f"{run.name} is running, or is being started or resumed{who}",
        hint=f"inspect it: hive ps {run.name}; end it: hive down {run.name}{inside}",
    )


def _acquire(run: RunDirectory, descriptor: int, report: Callable[[str], object]) -> None:
    """Lock the file, once the owner of an earlier boot or on another host is known to be gone. Raises UsageError."""
    until = time.monotonic() + ENDING_S
    while not _lock(descriptor):
        if time.monotonic() >= until or not run.summary_file.exists():  # it is not at its end
            raise refusal(run, _read(descriptor))
        time.sleep(LOOK_S)
    owner = _read(descriptor)
    if owner is None or owner.is_here or time.time() - os.fstat(descriptor).st_mtime >= SKEW_S:
        return
    report(f"{run.name} was last written by {owner.text}: waiting up to {STILL_S:.0f} s for a sign of life")
    before, until = os.fstat(descriptor).st_mtime_ns, time.monotonic() + STILL_S
    while time.monotonic() < until:
        time.sleep(LOOK_S)
        if os.fstat(descriptor).st_mtime_ns != before:
            raise refusal(run, _read(descriptor) or owner)


def _opened(path: Path, more: int) -> int:
    """Open a lock file, which others cannot even read: a lock for reading would keep the owner out."""
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | more, 0o600)


def _lock(descriptor: int) -> bool:
    """Try to lock an open file. A system without such locks has the token alone."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        return error.errno in UNSUPPORTED
    return True


def _unlock(descriptor: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(FLOCK, fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))


def _is_locked(descriptor: int) -> bool:
    try:
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    except OSError:
        return False
    return bool(struct.unpack(FLOCK, answer)[0] != fcntl.F_UNLCK)


def _read(descriptor: int) -> Owner | None:
    """Return the owner that an open run.lock names; None if it names none, or is damaged."""
    try:
        value = json.loads(os.pread(descriptor, OWNER_BYTES, 0))
        owner = Owner(**value)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    texts = (owner.token, owner.host, owner.boot)
    numbers = (owner.pid, owner.namespace)
    fits = all(type(text) is str for text in texts) and all(type(number) is int for number in numbers)
    return owner if fits else None
