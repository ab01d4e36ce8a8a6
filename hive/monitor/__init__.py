"""Views on a run. They read; leaving one never stops a run."""

from hive.monitor.line import StatusLine, event_text
from hive.monitor.snapshot import ActorRow, Rates, Snapshot, snapshot_of

__all__ = ["ActorRow", "Rates", "Snapshot", "StatusLine", "event_text", "snapshot_of"]
