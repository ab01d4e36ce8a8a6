"""The output of the processes of a run, which is bounded, and the warning of what was dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from hive.records.run_warnings import OUTPUT_DROPPED
from hive.runtime.process.output import CHECK_S, FLOOD_S, OUTPUT_BYTES, BoundedOutput


class OutputWatch:
    """Bounds the output files in `logs`. warn: logs a warning, from its kind, cause and advice."""

    def __init__(self, logs: Path, warn: Callable[[str, str, str], None]) -> None:
        self.logs = logs
        self.warn = warn
        self.output = BoundedOutput(logs)
        self.warned: dict[str, int] = {}  # process -> bytes that the last warning named

    def check(self) -> None:
        """Bound the output for the last time, and warn of what was dropped since the last warning."""
        self.output.look()
        if self.output.dropped != self.warned:
            self._warn()

    async def watch(self) -> None:
        """Bound the output of the processes; warn when the first of it is dropped from a process."""
        while True:
            flooded = self.output.look()
            if self.output.dropped.keys() != self.warned.keys():
                self._warn()
            await asyncio.sleep(FLOOD_S if flooded else CHECK_S)

    def _warn(self) -> None:
        """Warn of the output that was dropped so far."""
        self.warned = dict(self.output.dropped)
        each = [f"{count:,} bytes of `{process}`" for process, count in sorted(self.warned.items())]
        limit = f"of more than {OUTPUT_BYTES:,} bytes a file the oldest output is dropped: {', '.join(each)}"
        self.warn(OUTPUT_DROPPED, limit, f"print less in the environment; {self.logs} has what was kept")
