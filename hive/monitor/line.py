"""The status line of a run in the foreground: redrawn in place on a terminal, plain lines elsewhere.

▐ 184,320/500,000 steps 37% │ 71,204/s │ return 131.6 │ lag 1 │ dropped 0 │ left 00:04 │ d detach
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from hive.monitor.history import Rates
from hive.monitor.snapshot import Snapshot

__all__ = ["StatusLine", "event_text"]

PLAIN_EVERY_S = 5.0  # between lines where nothing can be redrawn: enough to see life, few enough to read a log
ERASE = "\r\x1b[2K"


class StatusLine:
    """Draws snapshots to `out`; other lines go above it through `say`."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = out or sys.stderr
        self.live = self.out.isatty()
        self.rates = Rates()
        self.text = ""
        self.printed_s = float("-inf")

    def say(self, line: str) -> None:
        """A line that stays."""
        self.out.write(f"{ERASE}{line}\n{self.text}" if self.live else f"{line}\n")
        self.out.flush()

    def draw(self, snapshot: Snapshot) -> None:
        # Of training time: a line that is drawn since the first moment needs no other clock.
        self.rates.see(snapshot.train_s, {"env_steps": snapshot.env_steps})
        rate = self.rates.rate("env_steps") or 0.0
        if self.live:
            width = shutil.get_terminal_size().columns
            self.text = live_text(snapshot, rate)[: width - 1]
            self.out.write(f"{ERASE}{self.text}")
            self.out.flush()
        elif time.monotonic() - self.printed_s >= PLAIN_EVERY_S and snapshot.updates:
            self.printed_s = time.monotonic()
            self.say(plain_text(snapshot, rate))

    def erase(self) -> None:
        """Takes the line away, for good."""
        if self.live and self.text:
            self.out.write(ERASE)
            self.out.flush()
        self.text = ""


def live_text(snapshot: Snapshot, rate: float) -> str:
    done = snapshot.env_steps / snapshot.goal_steps
    parts = [
        f"▐ {snapshot.env_steps:,}/{snapshot.goal_steps:,} steps {done:.0%}",
        f"{rate:,.0f}/s",
        f"return {_return(snapshot)}",
        f"lag {snapshot.lag}",
        f"dropped {snapshot.dropped:,}",
    ]
    if snapshot.restarts:
        parts.append(f"restarts {snapshot.restarts}")
    if snapshot.state == "running":
        left = max(snapshot.goal_steps - snapshot.env_steps, 0)
        parts += [f"left {_clock(left / rate)}" if rate else "left –", "d detach"]
    else:
        parts.append(snapshot.state)
    return " │ ".join(parts)


def plain_text(snapshot: Snapshot, rate: float) -> str:
    return (
        f"state={snapshot.state} steps={snapshot.env_steps} steps_per_s={rate:.0f} updates={snapshot.updates} "
        f"return={_return(snapshot)} lag={snapshot.lag} dropped={snapshot.dropped} restarts={snapshot.restarts}"
    )


def _return(snapshot: Snapshot) -> str:
    return "–" if snapshot.mean_return is None else f"{snapshot.mean_return:.1f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def event_text(event: Mapping[str, Any]) -> str:
    """One line of the diary as a person reads it: time, who, what."""
    clock = time.strftime("%H:%M:%S", time.localtime(event.get("t", 0)))
    return f"{clock} {event.get('actor', 'supervisor'):<18} {event.get('text', '')}"
