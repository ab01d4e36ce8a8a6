"""No command believes a file: every value in a run directory may be of any type, and any text may hold controls."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from random_damage import damage, in_child

import hive
from hive.cli import main
from hive.errors import HiveError, RecordError
from hive.launch.resuming import prepare
from hive.launch.starting import raise_failure
from hive.records import JsonlWriter, RunDirectory, replace_best, write_checkpoint, write_crash
from hive.records.owner import give_up
from hive.schemes.trainer import resumed_from

if TYPE_CHECKING:
    from conftest import Place

HOSTILE = "\x1b[2J\x9b\n\r\u202e\ud800"
VALUES: tuple[Any, ...] = (None, True, -1, 1e308, 10**30, float("nan"), "1e400", HOSTILE, [HOSTILE], {"a": HOSTILE})
OF_EACH_KIND = (None, 1e308, HOSTILE)
SOME = [value if value in OF_EACH_KIND else pytest.param(value, marks=pytest.mark.rotates) for value in VALUES]
VIEWS = (("ls",), ("ps", "cart-1"), ("monitor", "--once", "cart-1"), ("history", "cart-1"))
METRICS = {"t": 1.0, "steps": 1, "updates": 1, "seconds": 1.0, "episodes": 1.0, "return/mean_100": 1.0}
EVENT = {"t": 1.0, "kind": "warning", "warning": "w", "steps": 1, "cause": "c", "text": "t", "actor": "learner-0"}


def text_of(document: dict[str, Any]) -> str:
    return json.dumps(document).replace('"1e400"', "1e400") + "\n"


def see(place: Place) -> None:
    """Give every view, which must end without a traceback or a control character."""
    for words in VIEWS:
        done = place.hive(*words)
        assert done.code in (0, 1, 2)
        assert all(line.isprintable() for line in (done.out + done.err).split("\n"))


@pytest.mark.rotates
@pytest.mark.parametrize("value", SOME, ids=ascii)
def test_views_of_a_summary_with_a_hostile_value(place: Place, value: Any) -> None:
    directory = place.ended("cart")
    assert place.hive("ps", "cart-1").code == 0
    whole = json.loads(directory.summary_file.read_text())
    for key in ("state", "env_steps", "mean_return_100", "started", "wall_s"):
        directory.summary_file.write_text(text_of(whole | {key: value}))
        see(place)
    for nested in ({"channels": {"c": {"produced": value}}}, {"warnings": [{"kind": value}]}):
        directory.summary_file.write_text(text_of(whole | nested))
        see(place)


@pytest.mark.rotates
@pytest.mark.parametrize("value", SOME, ids=ascii)
def test_views_of_lines_with_a_hostile_value(place: Place, value: Any) -> None:
    directory = place.lost("cart")
    for key in METRICS:
        directory.metrics_file.write_text(text_of(METRICS) + text_of(METRICS | {key: value}))
        see(place)
    for key in EVENT:
        directory.events_file.write_text(text_of(EVENT | {key: value}))
        see(place)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(path))  # a socket's path has 107 bytes


def _text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(8 << 30)


MAKERS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "pipe": os.mkfifo,
    "folder": lambda path: path.mkdir(),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "socket": _socket,
    "bytes": lambda path: path.write_bytes(bytes(range(256)) * 9),
    "empty": _text(""),
    "list": _text("[]\n"),
    "map": _text("{}\n"),
    "deep": _text("[" * 900 + "]" * 900 + "\n"),
    "deeper": _text('{"a":' * 100_000),
    "keys": _text(json.dumps({HOSTILE: HOSTILE}) + "\n"),
    "number": _text("9" * 5000 + "\n"),
    "outside": lambda path: path.symlink_to(Path(os.environ["HIVE_HOME"]).parent / "outside" / path.name),
    "sparse": _sparse,
}
PLACES = (
    *("config.toml", "resolved.toml", "run.json", "resume.json", "failure.json", "summary.json", ".reserve"),
    *(
        "metrics.jsonl",
        "events.jsonl",
        "evaluations.jsonl",
        "episodes.jsonl",
        "log/learner-0.log",
        "log/learner-0.out",
        "log/supervisor.log",
    ),
    *("policies.json", "policies", "policies/b", "policies/b/checkpoints", "policies/b/metrics.jsonl", "run.lock"),
    *("spaces.json", "environments", "videos", "tuning.json", "session.py", "ahead-1", "ahead-1/from.json"),
    *("crash/learner-0-1.txt", "checkpoints/000100", "checkpoints/000100/DONE", "checkpoints/000100/state.json"),
    *("best", "best/000090/state.json", "best/000090/weights.safetensors", "not-finite", "crash", "checkpoints", "log"),
)
COMMANDS = (
    *(*VIEWS, ("ls", "--json"), ("ps", "--json", "cart-1"), ("monitor", "--json", "cart-1"), ("logs", "cart-1")),
    *(("doctor", "cart-1"), ("down", "cart-1"), ("eval", "cart-1", "--episodes", "1"), ("stack", "cart-1")),
    *(("compare", "cart-1"), ("plot", "cart-1", "-o", "p.svg"), ("export", "cart-1"), ("save", "cart-1")),
    *(("save", "cart-1", "--replay", "m.npz"), ("prune", "cart-1", "--keep", "1", "--ahead", "--yes"), ("prune",)),
)


def whole_run(place: Place, ended: bool) -> RunDirectory:
    """Return an ended or a lost run with every kind of file."""
    directory = place.ended("cart", state="stopped") if ended else place.lost("cart")
    directory.config_file.write_text("")
    for path, line in ((directory.metrics_file, METRICS), (directory.events_file, EVENT)):
        writer = JsonlWriter(path)
        writer.write(line)
        writer.close()
    for name in ("learner-0.log", "supervisor.log", "learner-0.out"):
        (directory.logs / name).write_text("2026-11-21 01:12:37.221 learner-0 WARN slow\n")
    write_crash(directory, "learner-0", error="it failed")
    weights = {"weights": np.zeros(4, np.float32)}
    write_checkpoint(directory.checkpoints, 100, tensors=weights, parts={}, state={"scheduled": True, "env_steps": 10})
    replace_best(directory.best, 90, tensors=weights, state={"mean_return": 1.0})
    rows = [{"name": name, "agents": [name], "algorithm": "ppo", "folder": f"policies/{name}"} for name in "ab"]
    directory.policies_file.write_text(json.dumps({"policies": [{**rows[0], "folder": ""}, rows[1]]}))
    other = RunDirectory.of_policy(directory.policies / "b")
    write_checkpoint(other.checkpoints, 100, tensors=weights, parts={}, state={"scheduled": True, "env_steps": 10})
    other.metrics_file.write_text(text_of(METRICS))
    (directory.path / "ahead-1/log").mkdir(parents=True)
    (directory.path / "ahead-1/from.json").write_text('{"update": 1, "updates": 1}')
    (directory.path / "ahead-1/CUT").touch()
    return directory


def tree(folder: Path) -> dict[Path, object]:
    """Return what is in a folder. Files of gigabytes count by their size."""
    found: dict[Path, object] = {}
    for path in folder.rglob("*"):
        facts = path.lstat()
        small = stat.S_ISREG(facts.st_mode) and facts.st_size < 1 << 20
        found[path] = path.read_bytes() if small else (facts.st_mode, facts.st_size if path.is_file() else 0)
    return found


def resume(directory: RunDirectory) -> None:
    """Prepare to resume, which succeeds or raises one of hive's errors and changes nothing."""
    before = tree(directory.path)
    try:
        give_up(prepare("cart-1", exact=False))
        resumed_from(directory.path)
    except HiveError:
        after = tree(directory.path)
        assert {path: after[path] for path in after if path != directory.lock_file} == {
            path: before[path] for path in before if path != directory.lock_file
        }


@pytest.mark.full(reason="4,400 commands take a minute", rotates=True)
@pytest.mark.parametrize(("number", "maker"), list(enumerate(MAKERS)), ids=MAKERS)
def test_commands_with_every_file_replaced(place: Place, number: int, maker: str) -> None:
    """Each file is replaced by each thing, and each command meets each of both. Every fourth run is a lost one."""
    shutil.move(whole_run(place, ended=True).path, outside := place.folder / "outside")
    (outside / ".x.hive-tmp").mkdir()
    before = tree(outside)
    for at, name in enumerate(PLACES, start=number):
        ended = at % 4 > 0
        directory = whole_run(place, ended)
        path = directory.path / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        MAKERS[maker](path)
        for words in COMMANDS[at % 3 :: 3]:
            done = place.hive(*words)
            assert done.code in (0, 1, 2), (name, words)
            assert all(line.isprintable() for line in (done.out + done.err).split("\n")), (name, words)
        with contextlib.suppress(HiveError):
            hive.load(directory.path)
        resume(directory)
        shutil.rmtree(directory.path)
        assert tree(outside) == before, name


# Runs with real weights, replay memory and policies, each of some steps.
TRAINED = {
    "ppo": "run.steps = 600\ncollection = { envs = 2, rollout = 64 }\ncheckpoint.every = { steps = 200 }\n"
    "evaluation = { every = { steps = 200 }, episodes = 2 }\nrecord.sinks = ['jsonl', 'episodes', 'csv']\n",
    "dqn": 'run.steps = 400\nrun.scheme = "dqn"\nalgorithm.learning_starts = 100\ncheckpoint.replay = true\n',
}
IMPORTING = ("monitor", "eval", "plot", "export", "record", "compare", "config")
SHOWN = 3000  # characters of the output of a fault
RANDOM_COMMANDS = (
    *(
        *COMMANDS,
        ("prune", "--yes"),
        ("config", "../runs/cart-1/resolved.toml"),
        ("export", "cart-1", "-o", "p.npz"),
    ),
    *(("eval", "cart-1", "--episodes", "1", "--which", "best"), ("up", "--resume", "cart-1", "--inline")),
    *(("record", "cart-1", "--episodes", "1", "-o", "r.npz"), ("resume", "cart-1", "--inline", "-s", "run.steps=700")),
)


def end_of(text: str) -> str:
    """Return the last lines of an output, or those from a change outside of the run."""
    at = max(text.find("OUTSIDE"), text.find("most recent call first"))
    return text[at:][:SHOWN] if at >= 0 else text[-SHOWN:]


def commands() -> None:
    """Give every command, which must end in order; then load and open the run in Python."""
    for words in RANDOM_COMMANDS:
        print(f"\n$ hive {' '.join(words)}")
        try:
            main(list(words))
        except SystemExit as ended:
            if ended.code not in (0, 1, 2):
                raise AssertionError(f"{words}: exit code {ended.code}") from ended
    for act in (hive.load, hive.Result.open, lambda path: hive.evaluate("cart-1", episodes=1)):
        with contextlib.suppress(HiveError):
            act(Path(os.environ["HIVE_HOME"]) / "cart-1")


@pytest.mark.full(reason="each mutation is met by all commands, which takes a second")
@pytest.mark.parametrize("kind", TRAINED)
def test_commands_with_random_damage(
    place: Place, kind: str, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--mutations N`: so many of each run, drawn from `--mutations-seed`."""
    torch.set_num_threads(1)  # so that this process can be forked; it has no sockets either, as it trains nothing
    monkeypatch.setenv("MPLCONFIGDIR", str(place.folder / "matplotlib"))
    config = place.config(TRAINED[kind] + 'run.name = "cart"\n[env]\nid = "CartPole-v1"\n')
    (folder := place.folder / "work").mkdir()
    monkeypatch.chdir(folder)
    subprocess.run([sys.executable, "-P", "-m", "hive", "up", config, "--inline"], check=True, capture_output=True)
    allowed = [place.runs, folder, place.folder / "matplotlib", place.folder / f"hive-{os.getuid()}"]
    for words in RANDOM_COMMANDS:
        if words[0] in IMPORTING and "best" not in words:
            place.hive(*words)  # once here, so that no child has to import what it needs
    whole = place.runs / "cart-1"
    shutil.move(whole, template := place.folder / "template")
    shutil.copytree(template, outside := place.folder / "outside")
    before = tree(outside)
    first, faults = pytestconfig.getoption("mutations_seed"), []
    for seed in range(first, first + pytestconfig.getoption("mutations")):
        shutil.copytree(template, whole, symlinks=True)
        if (lost := random.Random(-seed).random() < 0.3) and (whole / "summary.json").exists():
            (whole / "summary.json").unlink()
        draw = random.Random(seed)
        how = [damage(draw, whole, list(MAKERS.values()), VALUES) for _ in range(draw.choice((1, 1, 2)))]
        os.chdir(folder)  # also that of the run's program, where commands with its environments work
        status, text = in_child(commands, allowed, place.folder / "said")
        if status or "Traceback" in text or tree(outside) != before:
            faults.append(f"{kind} {seed} {'lost ' * lost}{how}: status {status}\n{end_of(text)}")
        shutil.rmtree(place.runs)
        for made in folder.iterdir():
            made.unlink()
    assert not faults, f"{len(faults)} faults\n" + "\n\n".join(faults)


def test_doctor_looks_into_no_link(place: Place) -> None:
    directory = place.ended("cart")
    directory.nan_dumps.symlink_to("/dev/zero")
    done = place.hive("doctor", "cart-1")
    assert done.code == 1
    assert "not-finite` is a link" in done.err
    assert "not finite" not in done.out
    assert "not-finite` is a link" in place.hive("ls").err


@pytest.mark.parametrize("stored", [{}, {"error": "e", "hint": 1, "exit_code": 1, "traceback": ""}, {"error": [1]}])
def test_a_damaged_failure_of_a_start_is_named(place: Place, stored: dict[str, Any]) -> None:
    directory = place.lost("cart")
    directory.failure_file.write_text(text_of(stored))
    with pytest.raises(RecordError, match=r"failure\.json`: `\w+` is"):
        raise_failure(directory, 1, 1)
    done = place.hive("doctor", "cart-1")
    assert done.code == 1
    assert "failure.json`: `" in done.err
