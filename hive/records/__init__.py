"""Records: what a run leaves on disk, and how it is read again.

directory, runs      where things lie; finding a run and saying how it is
atomic, documents    files and folders that are there whole or not at all; JSON
weights              a checkpoint's content: safetensors and JSON
jsonl, sinks         growing files of lines; where metrics go
logs, crash          text for people
summary              how a run ended

`hive.records.weights` is imported by its own name: it alone needs NumPy, and `hive ls` shall answer at
once.
"""

from __future__ import annotations

from hive.records.atomic import (
    FILES,
    Files,
    atomic_folder,
    check_folder,
    remove_unfinished,
    write_bytes,
    write_json,
)
from hive.records.crash import write_crash
from hive.records.directory import RunDirectory, home_folder
from hive.records.documents import JSON, read_document
from hive.records.jsonl import JsonlWriter, read_jsonl, tail_jsonl
from hive.records.logs import close_log, merge_logs, open_log
from hive.records.runs import (
    RunFacts,
    find_runs,
    is_alive,
    process_start_time,
    read_run_facts,
    resolve_run,
    run_state,
    write_run_facts,
)
from hive.records.sinks import JsonlSink, MetricsRecord, Sink, SinkSet, TensorBoardSink
from hive.records.summary import Summary

__all__ = [
    "FILES",
    "JSON",
    "Files",
    "JsonlSink",
    "JsonlWriter",
    "MetricsRecord",
    "RunDirectory",
    "RunFacts",
    "Sink",
    "SinkSet",
    "Summary",
    "TensorBoardSink",
    "atomic_folder",
    "check_folder",
    "close_log",
    "find_runs",
    "home_folder",
    "is_alive",
    "merge_logs",
    "open_log",
    "process_start_time",
    "read_document",
    "read_jsonl",
    "read_run_facts",
    "remove_unfinished",
    "resolve_run",
    "run_state",
    "tail_jsonl",
    "write_bytes",
    "write_crash",
    "write_json",
    "write_run_facts",
]
