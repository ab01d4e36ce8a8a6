"""Marks on disk that tell the next incarnation of an evaluator that its predecessor exited while it drew.

A renderer may crash its process, which no `except` can catch. An evaluator would then be restarted, record the next
evaluation and crash again. So it writes a mark before it draws, and removes it afterwards.

    videos/
      .drawing-0    evaluator 0 is recording: the turn, whether a picture has been drawn, recordings lost in a row
      .off          why nothing is recorded any more, for all evaluators of the run

A mark that is still there when an incarnation starts is that of a predecessor that crashed or was killed. The first
incarnations of a run that starts or resumes remove all marks, because the cause may be gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hive.errors import RecordError
from hive.records.atomic import write_json
from hive.records.documents import failure, read_object

DRAWING = ".drawing-"
OFF = ".off"


@dataclass(frozen=True)
class Lost:
    """A recording during which the evaluator exited. drawn: whether a picture had been drawn. times: lost in a row."""

    turn: int
    drawn: bool
    times: int


class DrawingMarks:
    """The marks of evaluator `index` in the folder of videos. Methods raise RecordError for files that they cannot
    write or remove."""

    def __init__(self, folder: Path, index: int) -> None:
        self.folder = folder
        self.file = folder / f"{DRAWING}{index}"
        self.off_file = folder / OFF
        self.times = 0  # recordings that predecessors lost in a row

    @property
    def off(self) -> bool:
        """Whether any evaluator of the run has turned recording off."""
        return self.off_file.exists()

    def forget(self) -> None:
        """Remove the marks of an earlier start of the run."""
        for file in (self.file, self.off_file):
            _remove(file)

    def take_lost(self) -> Lost | None:
        """Return the recording that the previous incarnation did not finish, if any, and remove its mark.

        A mark that cannot be read counts as one without a picture.
        """
        if not self.file.exists():
            return None
        try:
            value = read_object(self.file)
        except RecordError:
            value = {}
        _remove(self.file)
        turn, times = value.get("turn"), value.get("lost")
        self.times = (times if isinstance(times, int) else 0) + 1
        return Lost(turn if isinstance(turn, int) else 0, value.get("drawn") is True, self.times)

    def begin(self, turn: int, *, drawn: bool) -> None:
        """Mark that this evaluator is recording an evaluation, and whether it has drawn a picture."""
        write_json(self.file, {"turn": turn, "drawn": drawn, "lost": self.times})

    def end(self, *, complete: bool) -> None:
        """Remove the mark. complete: whether the recording was finished, so that the renderer works."""
        if complete:
            self.times = 0
        _remove(self.file)

    def turn_off(self, cause: str) -> None:
        """Turn recording off for all evaluators."""
        write_json(self.off_file, {"cause": cause})


def marks_in(folder: Path) -> list[Path]:
    """Return the marks in a folder of videos."""
    return sorted([*folder.glob(f"{DRAWING}*"), *folder.glob(OFF)])


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise failure("remove", file, error) from error
