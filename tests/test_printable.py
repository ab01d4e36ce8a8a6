"""Text that a terminal would obey."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from hive.errors import HiveError
from hive.monitor import StatusLine, event_text
from hive.printable import obeyed, printable, printable_lines, printable_output

HOSTILE = "\x1b[2J\x9b1m\x07\r\x00\u202e\ud800\u2028"


def test_printable_text_cannot_move_a_cursor() -> None:
    assert printable("a\x1b[2J\tb\nc\udcff") == "a?[2J b c?"
    assert printable("abcdef", 5) == "ab..."
    assert printable_lines("a\r\nb\x9b") == "a?\nb?"


def test_commands_print_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    with printable_output():
        print(f"a{HOSTILE}b")
        sys.stderr.writelines([HOSTILE, "\n"])
        obeyed(sys.stdout).write("\x1b[K")
    out, err = capsys.readouterr()
    assert (out, err) == ("a?[2J?1m??????b\n\x1b[K", "?[2J?1m??????\n")


def test_output_that_its_encoding_lacks_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(file, "ascii"))
    with printable_output():
        print("–", flush=True)
    assert file.getvalue() == b"?\n"


def test_errors_and_events_are_printable() -> None:
    assert printable_lines(shown := HiveError(HOSTILE, hint=HOSTILE).render()) == shown
    text = event_text({"t": 1e300, "actor": HOSTILE, "text": "died\n12:00:00 supervisor  all is well\x1b[A"})
    assert text.startswith("--:--:-- ?[2J")
    assert "\n    12:00:00 " in text
    assert printable_lines(text) == text


def test_the_status_line_obeys_nothing_that_it_is_told() -> None:
    out = io.StringIO()
    StatusLine(out).say(HOSTILE)
    assert out.getvalue() == "?[2J?1m??????\n"


def test_commands_work_where_stdout_was_closed() -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -P -m hive ls >&-"], stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
