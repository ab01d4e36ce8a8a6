"""`scripts/chaos --ends N`: end whole runs at random moments, N of each form, and check what is kept and what is left.

    up          `hive up FILE`
    script      `hive.train(FILE)`
    quiet       `hive.train(FILE, quiet=True)`
    two, three  `hive resume RUN`, as often in one moment
    namespaces  `hive up FILE` in a pid namespace, and beside it `hive resume RUN` in another one, as in two containers

A trial sends SIGTERM, SIGINT or SIGKILL to the command alone, as `kill` and `timeout` do, or to all processes, as Slurm
and docker do, waits for the end, and resumes what is left to a few steps more. These promises are judged:

    ended         within a limit, with an exit code of the signal; a run whose command alone was killed lives on
    kept          the resumed run begins at or after the last step that was said to be saved
    one writer    never two supervisors; of several resumes one begins, and the others name it
    nothing left  no process, socket, segment, temporary file or lock, once the resumed run has ended
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.harness import say
from benchmarks.programs import BenchError, hive_command, set_words

from chaotic.leaks import descendants
from chaotic.promises import listed
from chaotic.sandbox import END_S, START_S, Sandbox, segments_of
from hive.records import RunDirectory
from hive.records.documents import parse_object
from hive.records.owner import owner_of

FORMS = ("up", "script", "quiet", "two", "three", "namespaces")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
RESUMES = {"two": 2, "three": 3}  # form -> `hive resume` in one moment
APART = ("unshare", "--pid", "--fork", "--mount-proc")
NAME = "ends"
SETS = (f"run.name={NAME}", "run.stop_at_return=1e12", "checkpoint.every={steps=4000}", "collection.envs=2")
ENDLESS, MORE = 10**12, 2000  # environment steps: of a run that is ended, and more of one that is resumed
TRAINING_S = 3.0  # half of the moments lie within so long after the beginning of training, half of them before
APART_S = 0.2  # maximum seconds between the first and the last of several resumes
LOOK_S = 0.03
EXITS_S = 1.0  # seconds in which the process of a supervisor that has let its run go may still exit
SHOWN = 400  # last characters of an output in a message
SAVED = re.compile(r"(?:saved|checkpoint \d+) at ([\d,]+) steps")
BEGINS = re.compile(r"continues \S+ at ([\d,]+)")
CODES = {signal.SIGTERM: {75, 143, -15}, signal.SIGINT: {0, 130, -2}, signal.SIGKILL: {-9, 137}}
BY_SCRIPT = {signal.SIGTERM: {143, -15}, signal.SIGINT: {130, -2, 1}, signal.SIGKILL: {-9, 137}}
SCRIPT = "import sys, hive\nhive.train(sys.argv[1], sets=sys.argv[2:], quiet={quiet})\n"


@dataclass
class Ending:
    """One trial. moment_s: seconds to the signal from the start of the command, or from where the run trains.

    saved: steps said to be saved.
    """

    form: str
    seed: int
    signal: str
    everywhere: bool
    trains: bool
    moment_s: float
    codes: list[int | None] = field(default_factory=list)
    saved: int = 0
    resumed_at: int | None = None
    broken: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)


class Commands:
    """The commands of one trial, each with a file for its output, and how long there was a second supervisor."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.started: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.second_s = 0.0  # seconds for which there was a second supervisor
        self.segments: set[int] = set()

    def start(self, *words: object, apart: bool = False) -> subprocess.Popen[bytes]:
        path = self.sandbox.folder / f"out-{len(self.started)}"
        command = [*(APART if apart else ()), *map(str, words)]
        with path.open("wb") as out:
            process = subprocess.Popen(
                command,
                env=self.sandbox.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.sandbox.folder,
                start_new_session=True,
            )
        self.started.append((process, path))
        return process

    def text(self, process: subprocess.Popen[bytes]) -> str:
        return next(path for started, path in self.started if started is process).read_text(errors="replace")

    def texts(self) -> list[str]:
        return [path.read_text(errors="replace") for _, path in self.started]

    def supervisors(self) -> list[int]:
        """Return the pids of the supervisors of the sandbox's runs."""
        found = {
            pid for pid, name in self.sandbox.processes().items() if not name.startswith("hive:") and supervises(pid)
        }
        return [pid for pid in found if parent_of(pid) not in found]  # a fork has the command line until it calls exec

    def watch(self, until: float, *processes: subprocess.Popen[bytes]) -> None:
        """Look for a second supervisor until a time, or until these processes have exited."""
        while time.monotonic() < until and (not processes or any(one.poll() is None for one in processes)):
            here = self.supervisors()
            self.second_s += LOOK_S if len(here) > 1 else 0.0
            for pid in here:
                try:
                    self.segments |= segments_of(pid)
                except OSError:
                    pass  # it has exited
            time.sleep(LOOK_S)

    def signal(self, number: signal.Signals, everywhere: bool, *processes: subprocess.Popen[bytes]) -> None:
        """Send a signal to all processes, or to these commands; of one in a namespace to its first process there."""
        pids = list(self.sandbox.processes()) if everywhere else []
        for process in () if everywhere else processes:
            is_apart = process.args[0] == APART[0]  # type: ignore[index]
            pids += (descendants(process.pid)[:1] or [process.pid]) if is_apart else [process.pid]
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def finish(self, *words: object, limit_s: float = START_S) -> tuple[int | None, str]:
        """Run a command; return its exit code (None: it was killed at the limit) and output."""
        process = self.start(*words)
        self.watch(time.monotonic() + limit_s, process)
        if process.poll() is None:
            process.kill()
            return None, self.text(process)
        return process.returncode, self.text(process)


class Trials:
    """Trials with one config. `start_s`: seconds that a calm run takes to its first steps."""

    def __init__(self, config: Path, sets: Sequence[str]) -> None:
        self.config = config
        self.sets = [*SETS, *sets]
        self.template = Sandbox()
        begun = time.monotonic()
        directory = self.template.up(config, [*self.sets, f"run.steps={ENDLESS}"])
        self.start_s = time.monotonic() - begun
        self.template.down(directory, now=False)
        self.directory = directory

    def run(self, form: str, seed: int) -> Ending:
        draw = random.Random(f"{form} {seed}")
        number, everywhere = draw.choice(SIGNALS), draw.random() < 0.5
        trains = draw.random() < 0.5
        moment_s = draw.uniform(0.0, TRAINING_S if trains else self.start_s)
        ending = Ending(form, seed, number.name, everywhere, trains, moment_s)
        sandbox, shm = Sandbox(), in_shared_memory()
        commands = Commands(sandbox)
        run = RunDirectory(sandbox.home / f"{NAME}-1")
        try:
            self._end(ending, commands, run, number, draw)
            self._resume(ending, commands, run)
            self._judge_left(ending, commands, run, shm)
        finally:
            ending.output = commands.texts() if ending.broken else []
            sandbox.close()
        return ending

    def _end(
        self, ending: Ending, commands: Commands, run: RunDirectory, number: signal.Signals, draw: random.Random
    ) -> None:
        """Start the form, send the signal, and wait for the end."""
        begun = time.monotonic()
        processes = self._start(ending.form, commands, run, draw)
        while ending.trains and begun_in(run) <= self.runs_before(ending) and time.monotonic() < begun + START_S:
            commands.watch(time.monotonic() + LOOK_S)
        begun = time.monotonic() if ending.trains else begun
        commands.watch(begun + ending.moment_s / 2)
        beside = None
        if ending.form == "namespaces":
            beside = commands.start(*hive_command("resume", run.name), apart=True)
        commands.watch(begun + ending.moment_s)
        commands.signal(number, ending.everywhere, *processes)
        commands.watch(time.monotonic() + END_S, *processes)
        if beside is not None:  # it was refused, or came when the first one had ended, and continues the run
            limit = time.monotonic() + START_S
            while beside.poll() is None and not commands.supervisors() and time.monotonic() < limit:
                commands.watch(time.monotonic() + LOOK_S)
            commands.signal(signal.SIGINT, False, beside)
            commands.watch(time.monotonic() + END_S, beside)
        ending.codes = [process.poll() for process in processes]
        if None in ending.codes:
            ending.broken.append(f"a command did not end within {END_S:.0f} s")
            commands.sandbox.kill_all()
        self._judge_codes(ending, commands, processes, beside, number)
        if number is signal.SIGKILL and not ending.everywhere:
            self._end_of_survivor(ending, commands, run)
        if commands.second_s > EXITS_S:
            ending.broken.append(f"two supervisors of one run for {commands.second_s:.1f} s")

    def _start(
        self, form: str, commands: Commands, run: RunDirectory, draw: random.Random
    ) -> list[subprocess.Popen[bytes]]:
        sets = [*self.sets, f"run.steps={ENDLESS}"]
        if form in RESUMES:
            shutil.copytree(self.directory.path, run.path)
            found = []
            for _ in range(RESUMES[form]):
                found.append(commands.start(*hive_command("resume", run.name)))
                time.sleep(draw.choice((0.0, draw.uniform(0.0, APART_S))))
            return found
        if form in ("script", "quiet"):
            script = commands.sandbox.folder / "script.py"
            script.write_text(SCRIPT.format(quiet=form == "quiet"))
            return [commands.start(sys.executable, script, self.config, *sets)]
        return [commands.start(*hive_command("up", self.config, *set_words(sets)), apart=form == "namespaces")]

    def runs_before(self, ending: Ending) -> int:
        """Return how often the run of a trial had begun before it."""
        return begun_in(self.directory) if ending.form in RESUMES else 0

    def _judge_codes(
        self,
        ending: Ending,
        commands: Commands,
        processes: Sequence[subprocess.Popen[bytes]],
        beside: subprocess.Popen[bytes] | None,
        number: signal.Signals,
    ) -> None:
        legal = (BY_SCRIPT if ending.form in ("script", "quiet") else CODES)[number]
        legal = legal | {1} if ending.form == "namespaces" else legal  # of an unshare whose child was killed
        refused = [one for one in processes if one.returncode == 2]
        others = [one.returncode for one in processes if one not in refused]
        if strange := [code for code in others if code is not None and code not in legal]:
            ending.broken.append(f"exit codes {strange}")
        if ending.form in RESUMES and not others:
            ending.broken.append("none of the resumes began")
        if beside is not None and beside.returncode not in (2, *CODES[signal.SIGINT], *legal):
            ending.broken.append(f"the resume in another container ended with {beside.returncode}")
        for one in (*refused, *([beside] if beside is not None and beside.returncode == 2 else [])):
            if ending.form not in (*RESUMES, "namespaces") or not re.search(rf"{NAME}-1|no run", commands.text(one)):
                ending.broken.append("a command was refused for another reason")
        traces = [text for text in commands.texts() if "Traceback" in text and not came_early(text)]
        if traces and ending.form not in ("script", "quiet"):
            ending.broken.append(f"a traceback: {traces[0][-SHOWN:]}")

    def _end_of_survivor(self, ending: Ending, commands: Commands, run: RunDirectory) -> None:
        """End a run whose command was killed alone, if it lives on, as it does where a terminal is closed."""
        limit, text = time.monotonic() + START_S, ""
        while commands.sandbox.processes() and time.monotonic() < limit:
            commands.watch(time.monotonic() + 1.0)
            if commands.supervisors() and run.run_file.exists():
                text = commands.finish(*hive_command("down", run.name))[1]
        if left := commands.sandbox.processes():
            ending.broken.append(f"`hive down` does not end the surviving run: {left} {text[-SHOWN:]}")

    def _resume(self, ending: Ending, commands: Commands, run: RunDirectory) -> None:
        """Resume the run, and check that it continues at or after the last saved step."""
        if ending.form in ("up", "script", "quiet", "namespaces") and not run.path.exists():
            return  # ended before it was made
        ending.saved = max(saved_in(run), *(said_in(text) for text in commands.texts()))
        steps = ending.saved + MORE
        code, text = commands.finish(*hive_command("resume", run.name, *set_words([f"run.steps={steps}"])))
        if code == 2 and not ending.saved and not run.run_file.exists():
            run_is_gone(ending, commands, run)
            return
        if code != 0:
            ending.broken.append(f"the resume ended with {code}: {text[-SHOWN:]}")
            return
        found = BEGINS.search(text)
        ending.resumed_at = int(found[1].replace(",", "")) if found else 0
        if ending.resumed_at < ending.saved:
            ending.broken.append(f"{ending.saved:,} steps were said to be saved; it continues at {ending.resumed_at:,}")
        if wrong := falls_in(run):
            ending.broken.append(f"metrics.jsonl falls {wrong}")

    def _judge_left(self, ending: Ending, commands: Commands, run: RunDirectory, shm: set[str]) -> None:
        sandbox = commands.sandbox
        left = {kind: items for kind, items in sandbox.left_behind(commands.segments).items() if items}
        files = {path.name for path in sandbox.folder.iterdir()} - {"runs", "script.py", f"hive-{os.getuid()}"}
        files = {name for name in files if not name.startswith("out-")} | (in_shared_memory() - shm)
        files |= {str(path.relative_to(sandbox.home)) for path in sandbox.home.rglob("*") if ".hive-tmp" in path.name}
        if files:
            left["files"] = sorted(files)
        if run.path.exists() and owner_of(run) is not None:
            left["locks"] = [run.name]
        ending.broken += [f"left behind: {kind} {', '.join(items)}" for kind, items in left.items()]

    def close(self) -> None:
        self.template.close()


def run_is_gone(ending: Ending, commands: Commands, run: RunDirectory) -> None:
    """Remove a run that never began, as `hive prune` does."""
    code, text = commands.finish(*hive_command("prune", "--yes"))
    if code != 0 or run.path.exists():
        ending.broken.append(f"`hive prune` leaves a run that never began, code {code}: {text[-SHOWN:]}")


def came_early(text: str) -> bool:
    """Whether a traceback is that of Ctrl-C while Python still imported the package, before any command of hive."""
    return text.rstrip().endswith("KeyboardInterrupt") and "hive/cli/__init__.py" not in text


def supervises(pid: int) -> bool:
    """Whether the command line of a process is that of a supervisor."""
    try:
        return b"hive.runtime.run" in Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"/", b".")
    except OSError:
        return False


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def said_in(text: str) -> int:
    """Return the most steps that an output said to be saved."""
    return max((int(steps.replace(",", "")) for steps in SAVED.findall(text)), default=0)


def saved_in(run: RunDirectory) -> int:
    """Return the most steps that the event log said to be saved."""
    if not run.events_file.exists():
        return 0
    events = [parse_object(line) for line in run.events_file.read_bytes().splitlines()]
    return max((said_in(str(event["text"])) for event in events if event and event["kind"] == "saved"), default=0)


def begun_in(run: RunDirectory) -> int:
    """Return how often a run has begun to train."""
    return run.events_file.read_bytes().count(b'"kind": "running"') if run.events_file.exists() else 0


def falls_in(run: RunDirectory) -> str:
    """Return where steps do not increase from line to line of the metrics; "" if they do everywhere."""
    rows = [parse_object(line) for line in run.metrics_file.read_bytes().splitlines()]
    steps = [row["steps"] for row in rows if row]
    falls = [f"from {a} to {b}" for a, b in pairwise(steps) if b < a]
    return listed(falls) if falls else ""


def in_shared_memory() -> set[str]:
    """Return names of hive in /dev/shm, but for those of its tests."""
    return {name for name in os.listdir("/dev/shm") if "hive" in name and "simulated" not in name}


def ends(config: Path, forms: Sequence[str], count: int, seed: int, sets: Sequence[str]) -> dict[str, Any]:
    """Run `count` trials of each form; return all as data. Raises BenchError."""
    if "namespaces" in forms and subprocess.run([*APART, "true"], capture_output=True).returncode:
        raise BenchError("pid namespaces need root")
    trials, endings = Trials(config, sets), list[Ending]()
    try:
        say(f"a calm run takes {trials.start_s:.1f} s to its start")
        for number in range(seed, seed + count):
            for form in forms:
                endings.append(trials.run(form, number))
                for line in endings[-1].broken:
                    say(f"{form} {number} ({endings[-1].signal} at {endings[-1].moment_s:.2f} s): {line}")
    finally:
        trials.close()
        print(table_of(endings), flush=True)
    broken = [f"{one.form} {one.seed}: {line}" for one in endings for line in one.broken]
    return {"broken": broken, "start_s": trials.start_s, "endings": [asdict(one) for one in endings]}


def table_of(endings: Sequence[Ending]) -> str:
    """Return one line for each form and signal: trials, those that were resumed, and those that broke a promise."""
    lines = []
    kinds = Counter((one.form, one.signal) for one in endings)
    for (form, name), count in sorted(kinds.items()):
        some = [one for one in endings if (one.form, one.signal) == (form, name)]
        resumed, saved = sum(one.resumed_at is not None for one in some), sum(one.saved > 0 for one in some)
        broken = sum(bool(one.broken) for one in some)
        lines.append(f"{form:<12}{name:<9}{count:4} trials {saved:4} saved {resumed:4} resumed {broken:4} broken")
    return "\n".join(lines)
