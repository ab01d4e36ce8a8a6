"""Starting a fork server: it starts before other imports, and exits when its connection closes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hive.runtime.process.fork_server import REPLIES, Build, BuildFailed
from hive.runtime.process.spawning import OUTPUT, THREADS, is_supervisor, modules_to_preload, start_fork_server
from hive.runtime.wire.stream import receive, send

LIMIT_S = 60.0  # time limit for starting Python on a busy machine


def test_a_fork_server_replies_and_exits_when_the_connection_closes(tmp_path: Path) -> None:
    server, line = start_fork_server(tmp_path, ("hive.missing",))
    with line:
        send(line, Build("hive.nowhere:load", "", os.getpid(), str(tmp_path / "sockets"), str(tmp_path)))
        answer = receive(line, REPLIES)
        environment = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")
    assert isinstance(answer, BuildFailed)
    assert "hive.nowhere" in answer.text
    assert {f"{name}=1".encode() for name in THREADS} <= set(environment)
    assert server.wait(LIMIT_S) == 0
    assert (tmp_path / OUTPUT).read_text() == ""


def test_output_before_there_is_a_log_folder_is_kept(tmp_path: Path) -> None:
    server, line = start_fork_server(None, ["this"])  # a module that prints
    with line:
        send(line, Build("hive.nowhere:load", "", os.getpid(), str(tmp_path / "sockets"), str(tmp_path)))
        assert isinstance(receive(line, REPLIES), BuildFailed)
    assert server.wait(LIMIT_S) == 0
    assert "The Zen of Python" in (tmp_path / OUTPUT).read_text()


def test_a_connection_closed_before_the_server_listens_ends_it_too(tmp_path: Path) -> None:
    server, line = start_fork_server(tmp_path)
    line.close()
    assert server.wait(LIMIT_S) == 0


def test_only_runs_of_the_built_in_trainer_preload_its_modules(tmp_path: Path) -> None:
    config = tmp_path / "resolved.toml"
    assert modules_to_preload(config) == ()
    for run, preloads in (
        ('scheme = "ppo"', True),
        ('scheme = "mine:scheme"', False),
        ('scheme = "ppo"\ntopology = "mine.py"', False),
        ('# topology is not set\nscheme = "ppo"  # topology = "mine.py"', True),
    ):
        config.write_text(f"[run]\n{run}\n")
        assert bool(modules_to_preload(config)) == preloads, run


def test_only_the_standard_library_is_imported_before_the_fork_server_starts() -> None:
    program = "import sys, hive.runtime.process.spawning; print(*{m.partition('.')[0] for m in sys.modules})"
    run = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    names = {name for name in run.stdout.split() if not name.startswith("_")}
    assert names - sys.stdlib_module_names <= {"hive"} | _of_this_installation()


def _of_this_installation() -> set[str]:
    """Return the modules that any Python loads at its start here: editable installs have hooks."""
    run = subprocess.run(
        [sys.executable, "-P", "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True
    )
    return {name.partition(".")[0] for name in run.stdout.split()}


def test_a_supervisor_is_known_by_its_command_line() -> None:
    waits = ["sh", "-c", "echo; read line", "hive.runtime.run"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()  # /proc may lack the command line for a moment after Popen returns
        assert is_supervisor(process.pid)
        process.communicate(b"\n")
    assert not is_supervisor(os.getpid())
    assert not is_supervisor(process.pid)
