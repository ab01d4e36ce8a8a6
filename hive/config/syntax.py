"""From bytes to a TOML document; whatever is wrong with them is one problem with its line.

Apart from its own error, which names line and column, `tomllib` lets two others escape without a place:
RecursionError for hundreds of nested brackets and ValueError for thousands of digits. Their line is the first
such that the file, cut off behind it, raises them too.
"""

from __future__ import annotations

import os
import re
import tomllib
from bisect import bisect_left
from pathlib import Path
from typing import Any

from hive.config.positions import Mark, Positions, mark
from hive.config.problems import HINT, FileSource, Problem, config_error
from hive.config.values import printable
from hive.errors import ConfigError

__all__ = ["parse", "read", "value_of"]

CONFIG_BYTES = 1 << 16  # a thousand lines; a config is a page. Keeps nonsense (a data file) from being parsed

CAUSE_LENGTH = 120  # tomllib repeats keys in its messages, which can be long

LOCATED = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


def read(path: str | os.PathLike[str], name: str) -> bytes:
    """The bytes of the file, one more than CONFIG_BYTES at most; ConfigError where there is none to read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(CONFIG_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"no such file: `{name}`", hint=HINT) from None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ConfigError(f"cannot read `{name}`: {reason}", hint=HINT) from None


def parse(content: bytes, name: str) -> tuple[dict[str, Any], FileSource]:
    """The document in `content`, and the source that locates its values; ConfigError where it is not TOML."""
    if len(content) > CONFIG_BYTES:
        raise ConfigError(f"`{name}` is larger than {CONFIG_BYTES >> 10} KiB", hint=HINT)
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"not UTF-8: byte 0x{content[error.start]:02x}"
        raise config_error(name, [Problem((0, line), f"{name}:{line}", message)]) from None
    try:
        return tomllib.loads(text), FileSource(name, Positions(text))
    except (ValueError, RecursionError) as error:
        place, message = _describe(error, text)
        problem = Problem((0, place.line), f"{name}:{place.line}", message, (place,))
        raise config_error(name, [problem]) from None


def value_of(text: str) -> Any:
    """The TOML value that `text` is; the text itself where it is none, as in `--set env.id=CartPole-v1`."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return document["value"] if len(document) == 1 else text


def _describe(error: Exception, text: str) -> tuple[Mark, str]:
    """The place of a syntax error, and what it is."""
    found = LOCATED.fullmatch(str(error))
    if found is None:
        start = _start_of_line(text, _line_of(text))
        message = "nested too deep" if isinstance(error, RecursionError) else "a number with too many digits"
        return mark(text, start, text.find("\n", start)), message
    cause = printable(found[1][:1].lower() + found[1][1:], CAUSE_LENGTH)
    if found[2] is None:
        start = len(text.rstrip())
        return mark(text, start, start + 1), f"{cause}, at the end of the file"
    start = _start_of_line(text, int(found[2])) + int(found[3]) - 1
    return mark(text, start, start + 1), f"{cause}, column {found[3]}"


def _start_of_line(text: str, line: int) -> int:
    return sum(len(text_line) + 1 for text_line in text.split("\n")[: line - 1])


def _line_of(text: str) -> int:
    """The first line at which parsing fails otherwise than by a TOMLDecodeError."""
    lines = text.split("\n")

    def fails(count: int) -> bool:
        try:
            tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            return False
        except (ValueError, RecursionError):
            return True
        return False

    return bisect_left(range(1, len(lines)), True, key=fails) + 1
