"""Read-only views on a run. Leaving a view never stops the run.

snapshot, rows       the document that every view draws, and its rows
live, replay         make it from a live run's status, or from an ended run's files
history, series      shares and rates computed from successive documents; curves of metrics
groups               rows of a group as one: means, main phases, missing actors
bound_by             the sentence that names what limits a run's speed
poller               a snapshot a second, from whichever of the two the run has
processes, tail      readers of /proc and of files that grow
drawing, chart       spans of text, bars and tables; curves in braille
overview_screen, actors_screen, learning, log_view    the four screens, drawn as text
view_model           the state of the terminal UI
actions, keys        the type of an action; the table of actions and their keys
terminal             the terminal UI, the only module that imports textual
line                 the status line of a run in the foreground

Modules that only the monitor needs are not imported here, so that `hive ls` and `hive up` start fast.
"""

from __future__ import annotations

from hive.monitor.bound_by import bound_by
from hive.monitor.history import History, Rates
from hive.monitor.line import StatusLine, event_text
from hive.monitor.live import snapshot_of
from hive.monitor.rows import ActorRow, BoardRow, ChannelRow
from hive.monitor.snapshot import Extras, Snapshot, as_data

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
