"""The status line of a run in the foreground: redrawn in place by rich on a terminal, plain lines elsewhere.

▐ 184,320/500,000 steps 37% │ 71,204/s │ return 131.6 │ lag 1 │ dropped 0 │ bound by learner │ left 4.3 s │ ? keys

The rate covers the last ten seconds; a run older than that also shows the rate of the last minute. A narrow terminal
shows the most important parts only. Keys are shown only where they are read. Programs read JSON: with `--json`,
`SnapshotLines` writes a Snapshot to stdout every few seconds and at the end, one a line. Several runs have a table in
place of the line (hive.cli.parts.seed_table). rich is imported only where there is a terminal.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from hive.monitor.bound_by import NOTHING_YET
from hive.monitor.drawing import duration
from hive.monitor.history import WINDOWS
from hive.monitor.snapshot import Snapshot, as_data
from hive.printable import obeyed, printable, printable_lines
from hive.records.documents import json_text
from hive.records.return_text import return_text
from hive.records.standings import returns_text

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

FIRST_PLAIN_S = 5.0  # seconds of updates before the first of these lines, so that its rate is not that of the start
PLAIN_EVERY_S = 30.0  # seconds between lines where stderr is not a terminal: shows progress, keeps a log readable
DATA_EVERY_S = 5.0  # seconds between snapshots for programs: enough points for a curve of a short run
BETWEEN = " │ "
KEYS = ("d detach  w monitor", "? keys")


class StatusLine:
    """Draws snapshots to `out` (default: stderr); `say` prints other lines above the status line.

    `live=False` prints plain lines to a terminal too. Set `keys` while keys are read, to show them.
    """

    def __init__(self, out: TextIO | None = None, *, live: bool = True) -> None:
        self.out = obeyed(out or sys.stderr)
        self.live = live and self.out.isatty()
        self.keys = False
        self.shown: Live | None = None  # the line, while it is on the terminal
        self.next_s: float | None = None  # time of the next plain line, once there are updates

    def say(self, line: str) -> None:
        """Print a line that is not redrawn."""
        line = printable_lines(line)
        if self.shown is None:
            self._write(f"{line}\n")
            return
        from rich.text import Text

        self.shown.console.print(Text(line), soft_wrap=True)

    def draw(self, snapshot: Snapshot) -> None:
        rate = snapshot.steps_per_s or 0.0
        minute = snapshot.rates.get("env_steps", {}).get(WINDOWS[1])
        if self.live:
            width = self.size[0] - 1
            self._show(_colored(live_text(snapshot, rate, width, minute=minute, keys=self.keys)))
        elif snapshot.updates:
            now = time.monotonic()
            if self.next_s is None:
                self.next_s = now + FIRST_PLAIN_S
            if now >= self.next_s:
                self.next_s = now + PLAIN_EVERY_S
                self.say(plain_text(snapshot, rate))

    def draw_lines(self, lines: Sequence[str]) -> None:
        """Replace the lines on the terminal by these, each cut to its width."""
        from rich.text import Text

        self._show(Text("\n".join(map(printable, lines)), no_wrap=True, overflow="crop"))

    @property
    def size(self) -> tuple[int, int]:
        """The columns and rows of the terminal."""
        return tuple(self._started().console.size)  # type: ignore[return-value]

    def _show(self, text: Text) -> None:
        self._started().update(text, refresh=True)

    def _started(self) -> Live:
        """Return the line on the terminal. It is drawn when it is updated, and by no thread of its own."""
        if self.shown is None:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self.out, force_terminal=True, highlight=False, markup=False, emoji=False)
            self.shown = Live(
                console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self.shown.start()
        return self.shown

    def erase(self) -> None:
        """Remove the line from the terminal."""
        if self.shown is not None:
            self.shown.stop()
            self.shown = None

    def _write(self, text: str) -> None:
        """Write and flush. If stdout has no reader left, continue on stderr: in `hive up | tee`, Ctrl-C ends both."""
        try:
            self.out.write(text)
            self.out.flush()
        except BrokenPipeError:
            if self.out is not obeyed(sys.stdout):
                raise
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())  # receives what is still buffered, which Python flushes at exit
            os.close(null)
            self.out = obeyed(sys.stderr)
            self._write(text)


class SnapshotLines:
    """Writes snapshots as lines of JSON to `out` (default: stdout)."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self.printed_s = float("-inf")

    def draw(self, snapshot: Snapshot, *, last: bool = False) -> None:
        if last or time.monotonic() - self.printed_s >= DATA_EVERY_S:
            self.printed_s = time.monotonic()
            self.out.write(json_text(as_data(snapshot)) + "\n")
            self.out.flush()


def live_text(
    snapshot: Snapshot, rate: float, width: int = sys.maxsize, *, minute: float | None = None, keys: bool = False
) -> str:
    """Return the parts that fit into `width` cells, in their order; parts with the greatest rank are left out first.

    rate, minute: steps per second over ten seconds and over a minute; `minute` is None in the first ten seconds.
    keys: whether keys are read, and so are shown.
    """
    parts = _parts(snapshot, rate, minute)
    parts[0] = (0, f"▐ {parts[0][1]}")
    if keys and snapshot.state == "running":
        parts += [(8, KEYS[0]), (5, KEYS[1])]
    while len(parts) > 1 and len(BETWEEN.join(text for _, text in parts)) > width:
        parts.remove(max(parts))
    return BETWEEN.join(text for _, text in parts)[:width]


def _colored(line: str) -> Text:
    """Return the line with its separators and keys dimmed, and warnings in yellow."""
    from rich.text import Text

    text = Text(printable(line), no_wrap=True, overflow="ellipsis")
    text.highlight_regex(rf"{BETWEEN}|{re.escape(KEYS[0])}|{re.escape(KEYS[1])}", "dim")
    text.highlight_regex(r"warning: [^│]*|restarts \d+|dropped [1-9][\d,]*", "yellow")
    return text


def _parts(snapshot: Snapshot, rate: float, minute: float | None) -> list[tuple[int, str]]:
    """Return (rank, text) of every part, from left to right. Ranks are distinct; rank 0 is never left out."""
    done = snapshot.env_steps / snapshot.goal_steps
    parts = [
        (0, f"{snapshot.env_steps:,}/{snapshot.goal_steps:,} steps {done:.0%}"),
        (3, f"{rate:,.0f}/s"),
        *([] if minute is None else [(11, f"1 min {minute:,.0f}/s")]),
        (2, f"return {returns_text(snapshot.policies) or return_text(snapshot.mean_return)}"),
        *((12 + n, f"{name} {value:.3g}") for n, (name, value) in enumerate(snapshot.info.items())),
        (10, f"lag {snapshot.lag}"),
        (9, f"dropped {snapshot.dropped:,}"),
    ]
    if snapshot.restarts:
        parts.append((6, f"restarts {snapshot.restarts}"))
    if warnings := snapshot.active_warnings:
        more = f" +{len(warnings) - 1}" if len(warnings) > 1 else ""
        parts.append((4, f"warning: {warnings[0].kind}{more}"))
    if snapshot.state != "running":
        return [*parts, (1, snapshot.state)]
    if snapshot.bound_by not in ("", NOTHING_YET):
        parts.append((7, f"bound by {snapshot.bound_by.partition(' (')[0]}"))
    left = max(snapshot.goal_steps - snapshot.env_steps, 0)
    return [*parts, (1, f"left {duration(left / rate)}" if rate else "left –")]


def plain_text(snapshot: Snapshot, rate: float) -> str:
    """Return the line of a file or a pipe: all parts, without keys."""
    return BETWEEN.join(text for _, text in _parts(snapshot, rate, None))


def event_text(event: Mapping[str, Any]) -> str:
    """Format an entry of the event log: local time, actor, text. Further lines of the text are indented."""
    try:
        clock = time.strftime("%H:%M:%S", time.localtime(event.get("t", 0)))
    except (TypeError, ValueError, OverflowError, OSError):
        clock = "--:--:--"  # not a time, in a damaged file
    actor = printable(str(event.get("actor", "supervisor")))
    first, *others = printable_lines(str(event.get("text", ""))).split("\n")
    return "\n".join([f"{clock} {actor:<18} {first}", *(f"    {line}" for line in others)])
