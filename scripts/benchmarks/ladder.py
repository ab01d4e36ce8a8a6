"""The ladder: a CSV file with one row per setting and peer for every change that was measured (`--ladder FILE`).

    date, commit, change, setting, placement, hive_steps_per_s, peer, peer_steps_per_s, ratio, least, most

placement: the fastest of hive's. peer: with the faster number of torch's threads; empty where none was measured, as
are its rate and the ratio. Rates are medians. ratio: the median of the ratios of each repetition, with the least and
the greatest of them; without a peer, least and most are those of hive's rate.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.programs import BenchError
from benchmarks.report import Pair

__all__ = ["COLUMNS", "append_rows", "check_ladder", "rows_of"]

COLUMNS = (
    *("date", "commit", "change", "setting", "placement", "hive_steps_per_s"),
    *("peer", "peer_steps_per_s", "ratio", "least", "most"),
)


def rows_of(pairs: Sequence[Pair], change: str, machine: Mapping[str, object]) -> list[dict[str, str]]:
    """Return a row for each pair. machine: date and commit, from `machine_facts`."""
    return [_row(pair, change, machine) for pair in pairs]


def _row(pair: Pair, change: str, machine: Mapping[str, object]) -> dict[str, str]:
    row = {
        "date": str(machine["date"]).partition(" ")[0],
        "commit": str(machine["commit"] or ""),
        "change": change,
        "setting": pair.setting.name,
        "placement": pair.placement,
        "hive_steps_per_s": f"{pair.hive.median:.0f}",
    }
    if pair.theirs is None or pair.ratio is None:
        return row | {"least": f"{pair.hive.least:.0f}", "most": f"{pair.hive.most:.0f}"}
    return row | {
        "peer": pair.peer or "",
        "peer_steps_per_s": f"{pair.theirs.median:.0f}",
        "ratio": f"{pair.ratio.median:.2f}",
        "least": f"{pair.ratio.least:.2f}",
        "most": f"{pair.ratio.most:.2f}",
    }


def check_ladder(path: Path) -> None:
    """Raise BenchError if rows cannot be appended: before the measurements, which take long."""
    if not path.parent.is_dir():
        raise BenchError(f"the folder of `{path}` does not exist")
    if path.exists():
        with path.open(newline="") as file:
            head = next(csv.reader(file), [])
        if tuple(head) != COLUMNS:
            raise BenchError(f"`{path}` is not a ladder: its columns are not {', '.join(COLUMNS)}")


def append_rows(path: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Append rows, after the names of the columns in a new file. Raises BenchError."""
    check_ladder(path)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(rows)
