"""Read-only views on a run. Leaving a view never stops the run.

snapshot, rows       the document that every view draws, and its rows
live, replay         make it from a live run's status, or from an ended run's files
history, series      shares and rates computed from successive documents; curves of metrics
bound_by             the sentence that names what limits a run's speed
poller               a snapshot a second, from whichever of the two the run has
requests             what a view requests of a supervisor, and the notices about it
drawing, chart       spans of text, bars and numbers; curves in braille
environments         environments that processes step, in words
tables               the columns of the tables of groups, channels and actors, and how they fit a width
overview, actor_detail, learning, log_view    the content of the screens, as text
terminal             the terminal UI, the only package that imports textual
line                 the status line of a run in the foreground, by rich

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
