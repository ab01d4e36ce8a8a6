"""Parses the bytes of a config as TOML; a syntax error becomes one problem with its line.

Besides its own error, which names line and column, `tomllib` raises two others without a position: RecursionError for
hundreds of nested brackets and ValueError for thousands of digits. Their line is found by bisection: it is the first
line such that the file up to and including it raises the error too.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from bisect import bisect_left
from pathlib import Path
from typing import Any

from hive.config.positions import Mark, Positions, mark
from hive.config.problems import HINT, FileSource, Problem, config_error
from hive.config.values import SHOWN_LENGTH
from hive.errors import ConfigError
from hive.printable import printable

CONFIG_BYTES = 1 << 16  # maximum size of a config, about a thousand lines; refuses data files before parsing them

CAUSE_LENGTH = 120  # maximum characters of tomllib's message, which repeats keys of any length

ENVIRONMENT = re.compile(r"[\w./:-]+-v\d+", re.ASCII)  # an id, such as CartPole-v1
# An environment's class and a topology's function, as they usually stand in a Python file.
ENVIRONMENT_CLASS = re.compile(rb"^class (\w+)\(.*Env\b", re.MULTILINE)
TOPOLOGY_FUNCTION = re.compile(rb"^def topology\(", re.MULTILINE)
NOT_IN_WORDS = re.compile(r"[\s,#\]}]")
NUMBER_BEFORE = re.compile(r"[=\[,]\s*[+-]?\d[\w.]*\s*$", re.ASCII)
BOOLEANS = {"True": "true", "yes": "true", "on": "true", "False": "false", "no": "false", "off": "false"}
LOCATED = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


_streams: dict[str, bytes] = {}  # path of a pipe, or of another file that can be read only once -> its content


def read(path: str | os.PathLike[str], name: str) -> bytes:
    """Return the first CONFIG_BYTES + 1 bytes of the file, enough to see that it is too large.

    A pipe, as in `hive check <(...)` or `/dev/stdin`, is read once in this process, and then has the same content.

    Raises ConfigError if the file does not exist, cannot be read or is a Python file.
    """
    if (known_content := _streams.get(os.fspath(path))) is not None:
        return known_content
    try:
        with Path(path).open("rb") as file:
            content = file.read(CONFIG_BYTES + 1)
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                _streams[os.fspath(path)] = content
    except FileNotFoundError:
        known = f"`hive init {name}` writes a config for this environment" if ENVIRONMENT.fullmatch(name) else HINT
        raise ConfigError(f"no such file: `{name}`", hint=known) from None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ConfigError(f"cannot read `{name}`: {reason}", hint=HINT) from None
    if Path(path).suffix == ".py":
        raise ConfigError(f"`{name}` is a Python file; expected a config in TOML", hint=hint_for_python(name, content))
    return content


def hint_for_python(name: str, content: bytes) -> str:
    """Return the commands for the environment and the topology that a Python file seems to define; it is not run."""
    module = ".".join(Path(name).with_suffix("").parts)
    environment = ENVIRONMENT_CLASS.search(content)
    found = environment[1].decode(errors="replace") if environment else "CLASS"
    hints = [f"`hive init {module}:{found}` writes a config for an environment of this file"]
    if TOPOLOGY_FUNCTION.search(content):
        hints.insert(0 if environment is None else 1, f"`hive up --topology {name}` runs its topology")
    return "; ".join(hints)


def parse(content: bytes, name: str) -> tuple[dict[str, Any], FileSource]:
    """Return the TOML document in `content` and the source that locates its values.

    Raises ConfigError if `content` is larger than CONFIG_BYTES, not UTF-8 or not TOML.
    """
    if len(content) > CONFIG_BYTES:
        raise ConfigError(f"`{name}` is larger than {CONFIG_BYTES >> 10} KiB", hint=HINT)
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"not UTF-8: byte 0x{content[error.start]:02x}"
        raise config_error(name, [Problem((0, line), f"{name}:{line}", message, lost=True)]) from None
    try:
        return tomllib.loads(text), FileSource(name, Positions(text))
    except (ValueError, RecursionError) as error:
        place, message = _describe(error, text)
        note = _meant(place, message)
        problem = Problem((0, place.line), f"{name}:{place.line}", message, (place,), note, lost=not note)
        raise config_error(name, [problem]) from None


def value_of(text: str) -> Any:
    """Parse `text` as a TOML value. Text that is not TOML is returned as it is, as in `--set env.id=CartPole-v1`."""
    try:
        document = tomllib.loads(f"value = {text}")
        tomllib.loads(f"value = [{text}]")  # fails if TOML takes the end of the text for a comment
    except (ValueError, RecursionError):
        return text
    return document["value"] if len(document) == 1 else text


def _meant(place: Mark, message: str) -> str:
    """Return how TOML writes what stands at a syntax error; "" if no usual mistake stands there."""
    rest = place.text[place.column :]
    word = NOT_IN_WORDS.split(rest)[0]
    if message.startswith("expected newline") and NUMBER_BEFORE.search(place.text[: place.column]):
        return "numbers are 1_000, 0.5 or 1e-3, and texts stand in quotes"
    if not message.startswith("invalid value"):
        return ""
    if word in BOOLEANS:
        return f"write `{BOOLEANS[word]}`"
    if word in ("None", "null", "nil"):
        return "leave the key out, so that it has its default"
    if re.match(r"[+-]?\.\d", word):
        return f"write `{word.replace('.', '0.', 1)}`"
    if rest.startswith("("):
        return "an array stands in brackets: [64, 64]"
    in_brackets = re.search(r"[\[{]", place.text[: place.column])
    value = word if in_brackets else rest.partition(" #")[0].strip()
    quote = "'" if "\\" in value else '"'  # in double quotes a backslash begins an escape
    return f"texts stand in quotes: {quote}{printable(value, SHOWN_LENGTH)}{quote}" if value[:1].isalpha() else ""


def _describe(error: Exception, text: str) -> tuple[Mark, str]:
    """Return the mark of a syntax error and its description."""
    found = LOCATED.fullmatch(str(error))
    if found is None:
        start = _start_of_line(text, _line_of(text))
        message = "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"
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
    """Return the number of the first line at which parsing fails with an error other than TOMLDecodeError."""
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
