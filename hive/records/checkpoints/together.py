"""Selects the checkpoints from which the policies of a run are resumed together.

All policies of a run are saved at the same rounds, the resume barriers. An exact resume begins at the newest one that
every policy has. Any other resume takes the newest state of each: one that is some rounds older than the others has
lost these rounds, as after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hive.records.checkpoints.folders import Checkpoint, list_checkpoints, newest_checkpoint
from hive.records.directory import RunDirectory
from hive.records.runs import policies_of

ROUND = "round"  # key of state.json: the first round that a run continues with from there


def others_of(directory: RunDirectory) -> list[RunDirectory]:
    """Return the folders of a run's policies after the first, whose folder is the run's."""
    return [folder for folder in policies_of(directory).values() if folder.path != directory.path]


def chosen_together(
    directory: RunDirectory,
    others: list[RunDirectory],
    exact: bool,
    refused: Callable[[str], object],
    *,
    replay: bool = True,
) -> tuple[Checkpoint | None, dict[RunDirectory, Checkpoint]]:
    """Return the checkpoint of the first policy, None for the beginning of the run, and those of the others.

    refused: is called with the cause for each checkpoint that is damaged. replay: as of `newest_checkpoint`.
    """
    newest = {
        folder: newest_checkpoint(folder.checkpoints, scheduled_only=exact, replay=replay, refused=refused)
        for folder in (directory, *others)
    }
    present = {folder: found for folder, found in newest.items() if found is not None}
    if len(present) < len(newest):
        return None, {}
    if not exact or not others:  # a checkpoint of an earlier hive has no round
        first = present.pop(directory)
        return first, {folder: _of_round(folder, first.state.get(ROUND)) or found for folder, found in present.items()}
    by_round = {folder: _scheduled(folder) for folder in present}
    common = set.intersection(*(set(found) for found in by_round.values()))
    if not common:
        return None, {}
    # Not of the highest number: rounds of another shape may have lower ones.
    last = max(common, key=lambda number: by_round[directory][number].update)
    return by_round.pop(directory)[last], {folder: found[last] for folder, found in by_round.items()}


def why_apart(first: Checkpoint | None, others: Mapping[RunDirectory, Checkpoint]) -> str:
    """Return why the policies do not continue from the same barrier; "" if they do."""
    if first is None:
        return ""
    late = [folder.name for folder, found in others.items() if found.state.get(ROUND) != first.state.get(ROUND)]
    return f"the policies {', '.join(late)} were resumed from another round than the first" if late else ""


def _scheduled(folder: RunDirectory) -> dict[int, Checkpoint]:
    """Return the intact scheduled checkpoints of a policy, by round."""
    found = list_checkpoints(folder.checkpoints, verify=True)
    return {int(one.state[ROUND]): one for one in found if one.scheduled and ROUND in one.state}


def _of_round(folder: RunDirectory, number: object) -> Checkpoint | None:
    """Return the newest intact checkpoint of a policy at this round."""
    fitting = [one for one in list_checkpoints(folder.checkpoints, verify=True) if one.state.get(ROUND) == number]
    return fitting[-1] if fitting else None
