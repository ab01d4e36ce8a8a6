"""Random damage of the files of a run, and a process with bounded memory that watches what commands touch.

A mutation replaces a file by a link, a FIFO or eight sparse GiB, or changes its bytes, or one value of a JSON or
TOML document or of the header of safetensors. Commands follow it in a forked child, which may write below some folders
only, and may map `MEMORY` bytes more than its parent.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MEMORY = 2 << 30  # bytes: several times what any command needs for a small run
HANG_S = 60  # seconds of a child; a damaged run takes milliseconds, evaluated episodes a second
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events of Python -> the positions of paths that are changed.
CHANGES = {
    **dict.fromkeys(("os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.utime", "os.chmod", "os.chown"), (0,)),
    **dict.fromkeys(("os.rename", "os.link"), (0, 1)),
    "os.symlink": (1,),
    "shutil.rmtree": (0,),
    "os.setxattr": (0,),
}
LEAVE = os._exit  # which hive replaces while it calls user code
NUMBERS = (0, -1, 1, 2**31, 2**63, 10**30, 1e308, float("nan"), float("inf"))


def damage(draw: random.Random, run: Path, makers: Sequence[Callable[[Path], object]], values: Sequence[Any]) -> str:
    """Change one file or folder of a run; return what was done."""
    paths = sorted(path for path in run.rglob("*"))
    path = draw.choice([path for path in paths if path.is_file()] if draw.random() < 0.9 else paths)
    if path.is_dir() or draw.random() < 0.25:
        return _replaced(draw, path, makers)
    data = path.read_bytes()
    if path.suffix == ".safetensors" and draw.random() < 0.7:
        data, how = _header_changed(draw, data, values)
    elif path.suffix in (".json", ".jsonl") or path.name == "DONE":
        data, how = (_document_changed if draw.random() < 0.7 else _bytes_changed)(draw, data, values)
    elif path.suffix == ".toml" and draw.random() < 0.6:
        data, how = _line_changed(draw, data, values)
    else:
        data, how = _bytes_changed(draw, data, values)
    path.write_bytes(data)
    return f"{path.relative_to(run)}: {how}"


def _replaced(draw: random.Random, path: Path, makers: Sequence[Callable[[Path], object]]) -> str:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    number = draw.randrange(len(makers))
    makers[number](path)
    return f"{path.name}: replaced by thing {number}"


def _bytes_changed(draw: random.Random, data: bytes, values: Sequence[Any]) -> tuple[bytes, str]:
    changed, at = bytearray(data), draw.randrange(len(data) + 1)
    how = draw.choice(("flipped", "cut", "zeros", "twice", "inserted", "long"))
    if how == "flipped":
        for _ in range(draw.choice((1, 1, 8))):
            if data:
                changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif how == "cut":
        del changed[at:]
    elif how == "zeros":
        changed[at : at + 64] = bytes(len(changed[at : at + 64]))
    elif how == "twice":
        changed[at:at] = data[max(at - 64, 0) : at]
    elif how == "inserted":
        changed[at:at] = draw.randbytes(draw.randint(1, 16))
    else:
        changed += draw.choice((b"\n", b"9", b"[", b"\0")) * 300_000
    return bytes(changed), f"{how} at {at}"


def _document_changed(draw: random.Random, data: bytes, values: Sequence[Any]) -> tuple[bytes, str]:
    """Change one value of one line of a JSON document."""
    lines = data.splitlines()
    whole = not data.startswith(b"{") or len(lines) < 2 or not lines[0].endswith(b"}")
    at = 0 if whole or not lines else draw.randrange(len(lines))
    try:
        document = json.loads(data if whole else lines[at])
    except ValueError:
        return _bytes_changed(draw, data, values)
    how = _value_changed(draw, document, values)
    text = json.dumps(document).encode()
    return (text if whole else b"\n".join([*lines[:at], text, *lines[at + 1 :]])) + b"\n", how


def _value_changed(draw: random.Random, document: Any, values: Sequence[Any]) -> str:
    """Replace, remove or rename a random value of a document in place."""
    places = list(_places(document))
    if not places:
        return "nothing"
    holder, key = draw.choice(places)
    how = draw.random()
    if how < 0.15 and isinstance(holder, dict):
        del holder[key]
        return f"without {key}"
    if how < 0.25 and isinstance(holder, dict):
        holder[draw.choice(("../x", "", "\ud800", "a" * 5000, "__class__"))] = holder.pop(key)
        return f"{key} renamed"
    old = holder[key]
    if isinstance(old, str) and how < 0.6:
        holder[key] = draw.choice(
            (old + "x", "../" + old, "/" + old, old[:-1], "", old * 3000, "/etc/passwd", "builtins:exec")
        )
    elif isinstance(old, (int, float)) and how < 0.7:
        holder[key] = draw.choice((*NUMBERS, -old, old + 1))
    elif isinstance(old, list) and how < 0.6:
        holder[key] = draw.choice((old * 2, old[1:], [*old, *old[:1]] * 1000, [2**40] * 3))
    else:
        holder[key] = draw.choice(values)
    return f"{key} = {ascii(holder[key])[:60]}"


def _places(document: Any) -> Any:
    entries = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(entries) if isinstance(document, (dict, list)) else ():
        yield document, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


def _header_changed(draw: random.Random, data: bytes, values: Sequence[Any]) -> tuple[bytes, str]:
    """Change the header of safetensors: a value, or its size alone."""
    if len(data) < 8 or draw.random() < 0.2:
        size = draw.choice((0, 1, 2**31, 2**63 - 1, 10**7))
        return struct.pack("<Q", size) + data[8:], f"size of header = {size}"
    (size,) = struct.unpack("<Q", data[:8])
    try:
        header = json.loads(data[8 : 8 + size])
    except ValueError:
        return _bytes_changed(draw, data, values)
    how = _value_changed(draw, header, values)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :], f"header: {how}"


def _line_changed(draw: random.Random, data: bytes, values: Sequence[Any]) -> tuple[bytes, str]:
    """Change the value of one line of a TOML file."""
    lines = data.splitlines()
    keys = [number for number, line in enumerate(lines) if b" = " in line]
    if not keys:
        return _bytes_changed(draw, data, values)
    at = draw.choice(keys)
    key = lines[at].partition(b" = ")[0]
    value = draw.choice(
        (b"-1", b"0", b"1e308", b"nan", b"9223372036854775807", b'"../x"', b'"builtins:exec"', b"[]", b"true")
    )
    lines[at] = key + b" = " + value
    return b"\n".join(lines) + b"\n", lines[at].decode(errors="replace")


def watch(allowed: Sequence[Path]) -> None:
    """End this process where Python changes a file that is not below one of these folders."""
    folders = tuple(f"{os.path.realpath(folder)}/" for folder in allowed)

    def check(path: object, event: str) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor, which was opened before
        text = os.fsdecode(path)
        real = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(text))), os.path.basename(text))
        if event == "open":  # follows a link in the last place, too
            real = os.path.realpath(real)
        if not f"{real}/".startswith(folders) and not real.startswith(("/dev/", "/proc/")):
            sys.stderr.write(f"\nOUTSIDE: {event} {text} at {real}\n")
            traceback.print_stack()
            sys.stderr.flush()
            LEAVE(99)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES:
            check(arguments[0], event)
        for position in CHANGES.get(event, ()):
            check(arguments[position], event)

    sys.addaudithook(hook)


def in_child(work: Callable[[], object], allowed: Sequence[Path], output: Path) -> tuple[int, str]:
    """Do work in a forked process, as the module says; return its wait status and output."""
    if (pid := os.fork()) == 0:
        code = 98
        signal.alarm(HANG_S)
        try:
            with output.open("wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            sys.stdout = os.fdopen(1, "w", buffering=1, errors="backslashreplace", closefd=False)
            sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
            faulthandler.register(signal.SIGALRM, file=2, chain=True)  # shows where it hangs
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
            watch(allowed)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            LEAVE(code)
    _, status = os.waitpid(pid, 0)
    return status, output.read_text(errors="replace")
