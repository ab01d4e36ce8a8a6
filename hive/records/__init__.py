"""Writes and reads the files of a run.

directory, runs      paths in a run directory; finding a run and its state
atomic, documents    files and folders that appear completely or not at all; JSON
checkpoints          writing, finding and removing checkpoints
weights              arrays and counters of a checkpoint: safetensors and JSON
replay_chunks        rows of a replay memory in a checkpoint
jsonl, sinks         growing files of JSON lines; destinations of metrics (with *_sink, sink_thread, new_videos)
logs, crash          logs and crash reports, for people
nan_dumps            inputs of gradients that were not finite
environments         how the environments of an actor are doing that are stepped by processes
resume_point         the checkpoint that a run is resumed from
summary              the result of a run

`hive.records.checkpoints.weights` and `hive.records.checkpoints.replay_chunks` are not imported here, because they need
NumPy and `hive ls` must be fast. Checkpoints import them when arrays are written or read, not when checkpoints are
listed.
"""

from __future__ import annotations

from hive.records.atomic import (
    FILES,
    Files,
    atomic_folder,
    remove_folder,
    remove_unfinished,
    write_bytes,
    write_json,
)
from hive.records.checkpoints.folders import (
    Checkpoint,
    best_facts,
    best_of,
    best_policy,
    checkpoint_at,
    held,
    keep_until_pruned,
    list_checkpoints,
    newest_checkpoint,
    only_writer,
    replace_best,
    retain,
    write_checkpoint,
    writing_checkpoint,
)
from hive.records.checkpoints.resume_point import earlier_wall_s, read_resume_point, wall_s_so_far, write_resume_point
from hive.records.crash import write_crash
from hive.records.directory import RunDirectory, home_folder
from hive.records.documents import JSON, read_document, read_object
from hive.records.jsonl import JsonlWriter, read_jsonl, read_overview
from hive.records.logs import merge_logs, open_log
from hive.records.nan_dumps import read_nan_dump, write_nan_dump
from hive.records.runs import (
    RunFacts,
    age_s,
    find_runs,
    folder_of_run,
    is_alive,
    last_training_line,
    policies_of,
    policy_directory,
    process_start_time,
    read_run_facts,
    resolve_run,
    run_state,
    write_run_facts,
)
from hive.records.sinks.sinks import Episode, JsonlSink, MetricsRecord, Sink, SinkSet, Video
from hive.records.summary import Summary

__all__ = [
    "FILES",
    "JSON",
    "Checkpoint",
    "Episode",
    "Files",
    "JsonlSink",
    "JsonlWriter",
    "MetricsRecord",
    "RunDirectory",
    "RunFacts",
    "Sink",
    "SinkSet",
    "Summary",
    "Video",
    "age_s",
    "atomic_folder",
    "best_facts",
    "best_of",
    "best_policy",
    "checkpoint_at",
    "earlier_wall_s",
    "find_runs",
    "folder_of_run",
    "held",
    "home_folder",
    "is_alive",
    "keep_until_pruned",
    "last_training_line",
    "list_checkpoints",
    "merge_logs",
    "newest_checkpoint",
    "only_writer",
    "open_log",
    "policies_of",
    "policy_directory",
    "process_start_time",
    "read_document",
    "read_jsonl",
    "read_nan_dump",
    "read_object",
    "read_overview",
    "read_resume_point",
    "read_run_facts",
    "remove_folder",
    "remove_unfinished",
    "replace_best",
    "resolve_run",
    "retain",
    "run_state",
    "wall_s_so_far",
    "write_bytes",
    "write_checkpoint",
    "write_crash",
    "write_json",
    "write_nan_dump",
    "write_resume_point",
    "write_run_facts",
    "writing_checkpoint",
]
