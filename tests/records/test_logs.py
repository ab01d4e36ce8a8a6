from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path

import pytest

from hive.errors import RecordError
from hive.records import logs
from hive.records.logs import FOLD_S, close_log, merge_logs, open_log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[logging.Logger]:
    logger = open_log(tmp_path / "collector-3.log", "collector-3")
    yield logger
    close_log(logger)


def texts(path: Path) -> list[str]:
    """The lines without their times."""
    return [line[24:] for line in path.read_text().splitlines()]


def say(logger: logging.Logger, text: str, at: float) -> None:
    """Logs a warning at `at` seconds since 1970."""
    record = logger.makeRecord(logger.name, logging.WARNING, "", 0, text, (), None)
    record.created = at
    logger.handle(record)


def test_format(log: logging.Logger, tmp_path: Path) -> None:
    log.warning("env %d took %.1f s", 12, 1.94)
    log.info("fine")
    log.debug("not shown")
    lines = (tmp_path / "collector-3.log").read_text().splitlines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} collector-3 WARN env 12 took 1\.9 s", lines[0])
    assert texts(tmp_path / "collector-3.log")[1:] == ["collector-3 INFO fine"]


def test_a_removed_file_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    logger = open_log(tmp_path / "log" / "a.log", "a")
    logger.info("one")
    (tmp_path / "log").rename(tmp_path / "elsewhere")
    logger.info("lost")
    (tmp_path / "log").mkdir()
    logger.info("two")
    logger.info("three")
    close_log(logger)
    assert texts(tmp_path / "log" / "a.log") == ["a INFO two", "a INFO three"]


def test_it_goes_nowhere_else(log: logging.Logger) -> None:
    heard: list[logging.LogRecord] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record)

    listener = Listener()
    logging.getLogger().addHandler(listener)
    log.warning("only in the file")
    logging.getLogger("another").warning("heard")
    logging.getLogger().removeHandler(listener)
    assert [record.name for record in heard] == ["another"]


def test_handlers_of_others_stay(tmp_path: Path) -> None:
    logger = open_log(tmp_path / "a.log", "actor-1")
    other = logging.NullHandler()
    logger.addHandler(other)
    close_log(open_log(tmp_path / "b.log", "actor-1"))
    assert other in logger.handlers
    logger.removeHandler(other)


def test_opened_again_it_writes_to_the_new_file(tmp_path: Path) -> None:
    open_log(tmp_path / "a.log", "actor-0").info("first")
    logger = open_log(tmp_path / "b.log", "actor-0", "DEBUG")
    logger.debug("second")
    close_log(logger)
    assert texts(tmp_path / "a.log") == ["actor-0 INFO first"]
    assert texts(tmp_path / "b.log") == ["actor-0 DEBUG second"]
    with pytest.raises(RecordError, match="cannot open"):
        open_log(tmp_path / "none" / "c.log", "actor-0")


def test_repeats_fold(log: logging.Logger, tmp_path: Path) -> None:
    path = tmp_path / "collector-3.log"
    for _ in range(4):
        log.warning("slow %s", "100%")
    assert texts(path) == ["collector-3 WARN slow 100%"]
    log.error("slow 100%")  # another level makes it another message
    log.warning("slow 100%")
    log.warning("slow 100%")
    close_log(log)
    assert texts(path) == [
        "collector-3 WARN slow 100%",
        "collector-3 WARN slow 100% [x3]",
        "collector-3 ERROR slow 100%",
        "collector-3 WARN slow 100%",
        "collector-3 WARN slow 100% [x1]",
    ]


def test_a_storm_is_told_every_ten_seconds(log: logging.Logger, tmp_path: Path) -> None:
    for tenth in range(251):
        say(log, "slow", 1000 + tenth / 10)
    assert FOLD_S == 10
    assert [text.rpartition("slow")[2] for text in texts(tmp_path / "collector-3.log")] == [
        "",
        " [x100]",
        " [x100]",
    ]
    close_log(log)
    assert texts(tmp_path / "collector-3.log")[-1].endswith("slow [x50]")


def test_tracebacks_are_kept(log: logging.Logger, tmp_path: Path) -> None:
    for _ in range(2):
        try:
            raise ValueError("inside")
        except ValueError:
            log.exception("failed")
    text = (tmp_path / "collector-3.log").read_text()
    assert text.count("ValueError: inside") == 2
    assert text.count("ERROR failed") == 2


def test_rotation_bounds_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOG_BYTES", 1000)
    logger = open_log(tmp_path / "a.log", "actor-0")
    for i in range(200):
        logger.info("line %d", i)
    close_log(logger)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) == {"a.log", "a.log.1", "a.log.2"}
    assert max(sizes.values()) <= 1000
    merged = list(merge_logs([tmp_path / "a.log"]))
    numbers = [int(line.rpartition(" ")[2]) for line in merged]
    assert numbers == list(range(numbers[0], 200))
    assert list(merge_logs([tmp_path / "a.log"], tail=30)) == merged[-30:]


def test_a_full_disk_costs_lines_only(capsys: pytest.CaptureFixture[str]) -> None:
    logger = open_log(Path("/dev/full"), "actor-0")
    logger.info("lost")
    logger.info("also lost")
    close_log(logger)
    assert capsys.readouterr().err == ""


def test_a_wrong_call_is_told_and_costs_one_line(
    log: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own,) = (handler for handler in log.handlers if isinstance(handler, RotatingFileHandler))
    for text, args in (("%d", ("x",)), ("odd \ud800 text", ())):
        own.handle(log.makeRecord(log.name, logging.INFO, "", 0, text, args, None))
    assert "TypeError" in capsys.readouterr().err
    assert texts(tmp_path / "collector-3.log") == [r"collector-3 INFO odd \ud800 text"]


def write_log(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    day = "2026-11-21 01:12"
    return [
        write_log(
            tmp_path / "learner-0.log",
            f"{day}:37.000 learner-0 INFO first",
            f"{day}:39.000 learner-0 ERROR third",
            "Traceback:",
            "  2026",
            f"{day}:41.000 learner-0 INFO fifth",
        ),
        write_log(
            tmp_path / "collector-3.log",
            f"{day}:38.000 collector-3 WARN second",
            f"{day}:39.000 collector-3 INFO fourth",
        ),
        tmp_path / "evaluator-0.log",
    ]


def test_merge_by_time(two: list[Path]) -> None:
    assert list(merge_logs(two)) == [
        "learner-0   | 2026-11-21 01:12:37.000 INFO first",
        "collector-3 | 2026-11-21 01:12:38.000 WARN second",
        "learner-0   | 2026-11-21 01:12:39.000 ERROR third",
        "learner-0   | Traceback:",
        "learner-0   |   2026",
        "collector-3 | 2026-11-21 01:12:39.000 INFO fourth",
        "learner-0   | 2026-11-21 01:12:41.000 INFO fifth",
    ]


@pytest.mark.parametrize("tail", [0, 1, 2, 3, 4, 7, 100])
def test_tail_of_the_merged(two: list[Path], tail: int) -> None:
    whole = list(merge_logs(two))
    assert list(merge_logs(two, tail=tail)) == whole[len(whole) - min(tail, len(whole)) :]


def test_actors(two: list[Path]) -> None:
    assert list(merge_logs(two, actors=["collector-3"], tail=1)) == [
        "collector-3 | 2026-11-21 01:12:39.000 INFO fourth"
    ]
    assert list(merge_logs(two, actors=["nobody"])) == []


def test_garbage_in_a_log(tmp_path: Path) -> None:
    (tmp_path / "a-0.log").write_bytes(b"\xff\xfe\r\n\x00\n2026-11-21 01:12:37.000 \n")
    assert len(list(merge_logs([tmp_path / "a-0.log"]))) == 3
    (tmp_path / "b-0.log").mkdir()
    with pytest.raises(RecordError, match="is a directory"):
        list(merge_logs([tmp_path / "b-0.log"]))
