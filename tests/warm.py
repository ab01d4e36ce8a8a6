"""Warm processes: a test's `hive` is forked from one that has imported torch, which each start would import anew.

    pytest ── warm process: has imported torch, gymnasium and hive; one thread, no child
                └ fork ── middle ── fork ── `hive up ...`      the middle exits, so that pytest adopts it
                                              └ fork ── supervisor
                                                          └ fork ── fork server

`Warm` replaces how `subprocess.Popen` starts `python -P -m hive...` and scripts; nothing else of Popen changes, because
the new process is a child of the caller, as ever. In a process that was forked warm, Popen forks at once, unless it has
threads. A new process gets the environment, folder, descriptors and signals that `exec` would give it, and what `/proc`
shows of it (`environ`, `cmdline`) is overwritten, because hive and the tests look there.

A start is cold if its environment has another value of what Python or a library reads when it begins (STARTUP), or
another hive, and if its test has the fixture `cold`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import io
import json
import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

MODULES = ("hive", "hive.runtime.run", "hive.runtime.process.fork_server")  # programs that are forked
IMPORTED = (
    "hive.cli",
    "hive.runtime.run.execute",
    "hive.runtime.process.fork_server",
    "hive.schemes.trainer",
    "gymnasium",
    "hive.envs.vectors.compiled_vector",
)
ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
# Variables that are read when a process or a library begins, so that a fork cannot follow them; and those that it can,
# that only say where compiled modules are kept, or that cv2 and torch._dynamo set when a test imports them.
FOLLOWED = (
    *("PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"),
    *("LD_LIBRARY_PATH", "TORCHINDUCTOR_CACHE_DIR"),
)
STARTUP = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_", "GLIBC", "OMP_", "MKL_", "OPENBLAS", "NUMEXPR", "ATEN_", "TORCH")
PAD, PAD_BYTES = "HIVE_TESTS_PAD", 96 << 10  # room for the environment of a forked process, as /proc shows it
ARGUMENTS_BYTES = 16 << 10
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37
LENGTH, MOST_HELD = 4, 64  # bytes of a number on the line; descriptors of a job
PARAMETERS = (  # of Popen._execute_child
    *(
        "args",
        "executable",
        "preexec_fn",
        "close_fds",
        "pass_fds",
        "cwd",
        "env",
        "startupinfo",
        "creationflags",
        "shell",
    ),
    *("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite", "restore_signals"),
    *("gid", "gids", "uid", "umask", "start_new_session", "process_group"),
)
LIBC = ctypes.CDLL(None, use_errno=True)


def is_startup(name: str) -> bool:
    return name.startswith(STARTUP) and name not in FOLLOWED


def has_other_hive(env: Mapping[str, str]) -> bool:
    """Whether a process with this environment would import another hive than the one that is tested."""
    folders = [Path(one).resolve() for one in env.get("PYTHONPATH", "").split(os.pathsep) if one]
    return any((one / "hive").is_dir() and one != ROOT for one in folders)


class Warm:
    """Starts programs of hive in warm processes, from its construction to `close`. forked: this process is one."""

    enabled = True

    def __init__(self, *, forked: bool) -> None:
        self.forked = forked
        self.started = STARTED if forked else environment()
        self.line: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()
        self.cold = cold = subprocess.Popen._execute_child  # type: ignore[attr-defined]

        def execute_child(popen: Any, *arguments: Any) -> None:
            if not self.begun(popen, dict(zip(PARAMETERS, arguments, strict=True))):
                cold(popen, *arguments)

        execute_child.__wrapped__ = cold  # type: ignore[attr-defined]
        subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]

    def close(self) -> None:
        subprocess.Popen._execute_child = self.cold  # type: ignore[attr-defined]
        if self.line is not None and self.process is not None:
            self.line.close()
            self.process.wait()

    def begun(self, popen: Any, asked: Mapping[str, Any]) -> bool:
        """Start a program in a warm process; return whether it could be."""
        if not self._fits(asked):
            return False
        given = os.environ if asked["env"] is None else asked["env"]
        env = {os.fsdecode(name): os.fsdecode(value) for name, value in given.items()}
        if any(self.started.get(name) != value for name, value in env.items() if is_startup(name)) or has_other_hive(
            env
        ):
            return False
        job = {
            "args": [os.fsdecode(word) for word in asked["args"]],
            "env": env,
            "cwd": os.fsdecode(asked["cwd"] or os.getcwd()),
            "session": bool(asked["start_new_session"]),
            "fds": [0, 1, 2, *sorted(asked["pass_fds"])],
            "parent": os.getpid(),
            "masked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        }
        ends = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        held = [own if end == -1 else end for own, end in enumerate(ends)] + sorted(asked["pass_fds"])
        popen.pid = self._forked(job, held) if self.forked else self._asked(job, held)
        popen._child_created = True
        popen._close_pipe_fds(*(asked[name] for name in PARAMETERS[10:16]))
        return True

    def _fits(self, asked: Mapping[str, Any]) -> bool:
        args = asked["args"]
        usual = {"executable": None, "preexec_fn": None, "shell": False, "close_fds": True, "uid": None, "umask": -1}
        if not self.enabled or any(asked[name] != value for name, value in usual.items()):
            return False
        if not isinstance(args, list | tuple) or not args or args[0] != sys.executable:
            return False
        program = [os.fspath(word) for word in args[1:]]
        is_module = program[:2] == ["-P", "-m"] and program[2:3] and program[2] in MODULES
        is_script = (
            not self.forked and program[:1] and (program[0].endswith(".py") or Path(program[0]).parent == SCRIPTS)
        )
        return bool(is_module or is_script) and (not self.forked or len(os.listdir("/proc/self/task")) == 1)

    def _forked(self, job: Mapping[str, Any], held: Sequence[int]) -> int:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return os.fork() or run(job, held)

    def _asked(self, job: Mapping[str, Any], held: Sequence[int]) -> int:
        """Have the warm process fork; return the pid of the new process, which this one adopts."""
        with self.lock, adopting():
            line = self.line or self._start()
            text = json.dumps(job).encode()
            socket.send_fds(line, [len(text).to_bytes(LENGTH, "little")], [*held])
            line.sendall(text)
            if len(answer := line.recv(LENGTH, socket.MSG_WAITALL)) < LENGTH:
                raise OSError("the warm process of the tests has ended")
            return int.from_bytes(answer, "little")

    def _start(self) -> socket.socket:
        self.line, theirs = socket.socketpair()
        command = [sys.executable, "-P", __file__, str(theirs.fileno()), "." * ARGUMENTS_BYTES]
        env = {**self.started, PAD: "." * PAD_BYTES}
        with theirs:
            self.process = subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        return self.line


def environment() -> dict[str, str]:
    """Return the environment of the warm process: of this one, with what a supervisor sets for its fork server."""
    from hive import hash_seed
    from hive.runtime.process.spawning import MALLOC, THREADS

    return {**MALLOC, **hash_seed.DEFAULT, **os.environ, **THREADS}


@contextmanager
def adopting() -> Iterator[None]:
    """Let this process adopt orphans of its descendants for a moment."""
    before = ctypes.c_int()
    LIBC.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def run(job: Mapping[str, Any], held: Sequence[int]) -> NoReturn:
    """Become the process that a job describes, in a child that has just been forked, and end as Python ends."""
    code = 1
    try:
        become(job, held)
        if sys.argv[0] == "-m":
            if not hasattr(sys.modules.get(job["args"][3]), "__path__"):  # of a package, its __main__ is run
                sys.modules.pop(job["args"][3], None)  # imported before, of which runpy warns
            runpy.run_module(job["args"][3], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else end.code is not None
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        traceback.print_exception(error)
        if isinstance(error, KeyboardInterrupt):
            code = -signal.SIGINT
    leave(code)


def leave(code: int) -> NoReturn:
    """End as the interpreter does: wait for threads, call the functions of atexit, flush the streams."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except BaseException as error:
        if not isinstance(error, BrokenPipeError):
            traceback.print_exception(error)
        code = code or 120
    finally:
        if code < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code & 0xFF)


def become(job: Mapping[str, Any], held: Sequence[int]) -> None:
    """Take what `exec` would give: session, descriptors, signals, folder, environment, arguments, standard streams."""
    atexit._clear()  # type: ignore[attr-defined]
    atexit.register(logging.shutdown)
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if job["session"]:
        os.setsid()
    take_descriptors(held, job["fds"])
    os.chdir(job["cwd"])
    begin, end = os.environ.get("PYTHONPATH", ""), job["env"].get("PYTHONPATH", "")
    old = [one for one in begin.split(os.pathsep) if one]
    rest = [one for one in sys.path if one not in old]
    sys.path[:] = [one for one in end.split(os.pathsep) if one] + rest
    os.environ.clear()
    os.environ.update(job["env"])
    show(job["args"], job["env"])
    sys.orig_argv[:] = job["args"]
    if job["args"][1] == "-P":
        sys.argv[:] = ["-m", *job["args"][4:]]
    else:  # a script, whose folder comes first
        sys.argv[:] = job["args"][1:]
        sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        old_stream = getattr(sys, name)
        errors = "backslashreplace" if number == 2 else old_stream.errors
        raw = old_stream.write_through and mode == "w"  # PYTHONUNBUFFERED
        buffer = open(number, f"{mode}b", buffering=0 if raw else -1, closefd=False)  # noqa: SIM115
        lines = os.isatty(number) or (number == 2 and not raw)
        stream = io.TextIOWrapper(buffer, old_stream.encoding, errors, line_buffering=lines, write_through=raw)
        stream.mode = mode  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if not hasattr(subprocess.Popen._execute_child, "__wrapped__"):
        Warm(forked=True)


def take_descriptors(held: Sequence[int], wanted: Sequence[int]) -> None:
    """Give descriptors the numbers that the caller has them under, and close all others."""
    most = max([*held, *wanted]) + 1
    safe = [os.dup2(one, most + place, inheritable=False) for place, one in enumerate(held)]
    for one, number in zip(safe, wanted, strict=True):
        os.dup2(one, number)
    keep = {*wanted}
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) not in keep:
            try:
                os.close(int(entry))
            except OSError:  # the one that listed them
                continue


def show(arguments: Sequence[str], env: Mapping[str, str]) -> None:
    """Overwrite what /proc shows as the arguments and environment of this process."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    for begin, end, texts in (
        (int(fields[45]), int(fields[46]), arguments),
        (int(fields[47]), int(fields[48]), [f"{name}={value}" for name, value in env.items()]),
    ):
        content = b"".join(os.fsencode(text) + b"\0" for text in texts)[: end - begin]
        ctypes.memset(begin, 0, end - begin)
        ctypes.memmove(begin, content, len(content))


STARTED: dict[str, str] = {}  # the environment that the warm process was started with


def serve(line: socket.socket) -> None:
    """Fork a process for each request, until the caller has gone."""
    for name in IMPORTED:
        __import__(name)
    gc.collect()
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would not be forked"
    while True:
        size, held, _, _ = socket.recv_fds(line, LENGTH, MOST_HELD)
        if not size:
            return
        text = line.recv(int.from_bytes(size, "little"), socket.MSG_WAITALL)
        if (middle := os.fork()) == 0:
            fork_again(line, json.loads(text), held)
        os.waitpid(middle, 0)
        for one in held:
            os.close(one)


def fork_again(line: socket.socket, job: Mapping[str, Any], held: Sequence[int]) -> NoReturn:
    """Fork the process of a job and exit, so that the caller adopts it."""
    if os.fork():
        os._exit(0)
    while os.getppid() != job["parent"]:
        os.sched_yield()
    signal.pthread_sigmask(signal.SIG_SETMASK, job["masked"])
    line.sendall(os.getpid().to_bytes(LENGTH, "little"))
    run(job, held)


if __name__ == "__main__":
    sys.modules["warm"] = sys.modules["__main__"]
    os.environ.pop(PAD)
    STARTED.update(os.environ)
    serve(socket.socket(fileno=int(sys.argv[1])))
