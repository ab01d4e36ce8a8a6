from __future__ import annotations

import os
from pathlib import Path

from hive.records.sinks.new_videos import NewVideos


def make(folder: Path, name: str, age: int) -> Path:
    path = folder / name
    path.write_bytes(b"video")
    os.utime(path, ns=(age, age))
    return path


def test_each_video_is_taken_once_also_by_later_incarnations(tmp_path: Path) -> None:
    folder = tmp_path / "videos"
    videos = NewVideos(folder)
    assert videos.take() == []
    folder.mkdir()
    newer, older = make(folder, "a.mp4", 2000), make(folder, "b.gif", 1000)
    make(folder, ".c.mp4.hive-tmp", 1)
    make(folder, "notes.txt", 1)
    os.utime(folder, ns=(10, 10))
    assert videos.take() == [older, newer]
    os.utime(folder, ns=(20, 20))
    assert videos.take() == []
    last = make(folder, "d.webm", 3000)
    assert NewVideos(folder).take() == [last]
    assert NewVideos(folder).take() == []
