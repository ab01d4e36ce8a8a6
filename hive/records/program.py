"""Writes and reads program.json: what users' code sees of the program that started a run.

    argv        its arguments, which modules of environments may read; ["hive"] for a run that `hive up` started
    folder      its working folder
    path        its Python path: the folder of its script, and what it has added
    hash_seed   that of the processes which import users' code (hive.hash_seed)

Arguments may hold secrets, so the file is readable by its owner only, and no command shows, exports or sends it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hive.errors import RecordError
from hive.hash_seed import SEED, VARIABLE, execute_with
from hive.records.directory import RunDirectory
from hive.records.documents import failure, json_text, read_document

COMMAND = ("hive",)  # the arguments of the command `hive` are none of users' code


@dataclass(frozen=True)
class Program:
    """The content of program.json."""

    argv: list[str]
    folder: str
    hash_seed: str = SEED
    path: list[str] = field(default_factory=list)


def write_program(run: RunDirectory, argv: Sequence[str]) -> None:
    """Write what this process, which starts or continues a run, gives to users' code. Raises RecordError."""
    seed = os.environ.get(VARIABLE, SEED)
    path = [] if tuple(argv) == COMMAND else [one for one in sys.path if os.path.isabs(one)]
    program = Program([*argv], os.getcwd(), seed, path)
    data = json_text(dataclasses.asdict(program), indent=1).encode(errors="surrogateescape")
    try:
        run.program_file.unlink(missing_ok=True)
        with open(os.open(run.program_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise failure("write", run.program_file, error) from error


def read_program(run: RunDirectory) -> Program | None:
    """Return what a run's program has given; None for a run without it, and for a damaged file."""
    with contextlib.suppress(RecordError):
        if run.program_file.exists():
            return read_document(run.program_file, Program)
    return None


def enter(run: RunDirectory) -> None:
    """Give users' code in this process the arguments, the folder and the Python path that the run's program had.

    The folder is changed only where it still exists. The command `hive` also takes the hash seed of the run.
    """
    program = read_program(run)
    if program is None:
        return
    execute_with(program.hash_seed)
    sys.argv[:] = program.argv
    with contextlib.suppress(OSError, ValueError):
        if Path(program.folder).is_dir() and not Path(program.folder).samefile("."):
            os.chdir(program.folder)
            program.path.append(program.folder)
    sys.path += [one for one in dict.fromkeys(program.path) if one not in sys.path]  # last: they hide no module
