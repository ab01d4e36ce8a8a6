"""Views on a run. They read; leaving one never stops a run.

snapshot, rows       the one document that every view draws, and its rows
history, series      what a view remembers: shares and rates; curves of metrics
bound_by             the sentence that says what a run waits for
look, replay         where snapshots come from: a live run's supervisor; an ended run's files
processes, tail      what /proc says; files that grow
drawing, chart       spans of text, bars and tables; curves in braille
house, actors_screen, learning, logbook    the four screens, drawn as text
desk, keys           what is before a person who looks, and what each key does to it
terminal             the terminal UI, which alone imports textual
line                 the status line of a run in the foreground

What only the monitor needs is imported by its own name when it is opened: `hive ls` and `hive up` shall answer at once.
"""

from __future__ import annotations

from hive.monitor.bound_by import bound_by
from hive.monitor.history import History, Rates
from hive.monitor.line import StatusLine, event_text
from hive.monitor.rows import ActorRow, BoardRow, ChannelRow
from hive.monitor.snapshot import Extras, Snapshot, as_data, snapshot_of

__all__ = [
    "ActorRow",
    "BoardRow",
    "ChannelRow",
    "Extras",
    "History",
    "Rates",
    "Snapshot",
    "StatusLine",
    "as_data",
    "bound_by",
    "event_text",
    "snapshot_of",
]
