"""Build styled text, bars and numbers, without a terminal.

A block of text is a list of lines, a line a list of spans, a span a text and the name of its style. The terminal UI
maps style names to the colors of its theme; `plain` drops them. Every character that hive itself draws is one cell
wide, and `ascii_of` replaces each that is not ASCII. Text from outside (logs, errors, names) is taken as it is.
`printable_line` makes it safe at the end, because a terminal obeys control characters; `plain` and the widgets use it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from hive.printable import printable

Span = tuple[str, str]  # text, style
Spans = list[Span]

PLAIN, BOLD, DIM, TITLE = "", "bold", "dim", "title"
GOOD, WARN, BAD, SECOND, MARKED = "good", "warn", "bad", "second", "marked"

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"
BRAILLE = 0x2800
ASCII = {
    **dict.fromkeys(map(ord, "│┤├▐"), "|"),
    **dict.fromkeys(map(ord, "┌┐└┘"), "+"),
    **dict.fromkeys(map(ord, "─–"), "-"),
    **dict.fromkeys(map(ord, " ▏▎▍"), " "),
    **dict.fromkeys(map(ord, "▌▋▊▉█"), "#"),
    **dict(zip(map(ord, LEVELS), "_..:-=+#", strict=True)),
    **dict(zip(map(ord, "═▒▶·…×↑↓"), "=:>.~x^v", strict=True)),
}


def ascii_of(text: str) -> str:
    """Replace each character that is not ASCII by an ASCII character of the same width."""
    if text.isascii():
        return text
    translated = text.translate(ASCII)
    return "".join(map(_ascii_of_one, translated))


def _ascii_of_one(character: str) -> str:
    if character.isascii():
        return character
    dots = ord(character) - BRAILLE
    if 0 <= dots < 256:
        return " .:*#"[min((dots.bit_count() + 1) // 2, 4)]
    return "?"


def printable_line(line: Spans) -> Spans:
    """Return a line of the same width without characters that a terminal would obey."""
    return [(printable(text), style) for text, style in line]


def plain(lines: Iterable[Spans], *, ascii_only: bool = False) -> str:
    """Return the lines as one text without styles and trailing blanks, for a file or a pipe."""
    texts = ["".join(text for text, _ in printable_line(line)).rstrip() for line in lines]
    return "\n".join(ascii_of(text) if ascii_only else text for text in texts)


def width_of(line: Spans) -> int:
    """Return the width of the line in cells."""
    return sum(len(text) for text, _ in line)


def fitted(line: Spans, width: int) -> Spans:
    """Pad the line to exactly `width` cells, or cut it and end it with `…`."""
    missing = width - width_of(line)
    if missing >= 0:
        return [*line, (" " * missing, PLAIN)] if missing else line
    left, result = width - 1, []
    for text, style in line:
        result.append((text[: max(left, 0)], style))
        left -= len(text)
        if left < 0:
            break
    return [*result, ("…", result[-1][1])] if width > 0 else []


def rule(title: str, width: int) -> Spans:
    """Return a heading that fills the width with a line."""
    text = f"─ {title} "
    return [("─ ", DIM), (f"{title} ", TITLE), ("─" * max(width - len(text), 0), DIM)]


def bar(part: float, width: int) -> str:
    """Draw a share between 0 and 1 as a bar, in eighths of a cell."""
    eighths = round(max(0.0, min(part, 1.0)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (EIGHTHS[rest] if rest else "")).ljust(width)


def level(part: float | None) -> str:
    """Draw a share between 0 and 1 as one cell; None as a blank."""
    return " " if part is None else LEVELS[min(int(max(part, 0.0) * len(LEVELS)), len(LEVELS) - 1)]


# --- numbers


def share(part: float | None) -> str:
    """Return a share as whole percent; "–" for None."""
    return "–" if part is None else f"{100 * part:.0f}%"


def amount(value: float | None) -> str:
    """Return a number in at most seven cells."""
    if value is None:
        return "–"
    for limit, unit in ((1e15, ""), (1e9, "G"), (1e6, "M")):
        if abs(value) >= limit:
            return f"{value:.1e}" if not unit else f"{value / limit:.4g}{unit}"
    if abs(value) >= 10_000:
        return f"{value / 1e3:.4g}k"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}"


def size(value: int | None) -> str:
    """Return a number of bytes in MiB ("M") or GiB ("G")."""
    if value is None:
        return "–"
    return f"{value / 2**30:.1f}G" if value >= 2**30 else f"{value / 2**20:.0f}M"


def duration(seconds: float) -> str:
    """Format seconds with the two greatest units: `0.3 s`, `12 s`, `4 min 10 s`, `18 h 54 min`, `3 d 4 h`."""
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((n for n, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 actor`, `2 actors`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def clock(t: float) -> str:
    """Return the local time of day of `t` (seconds since 1970)."""
    return time.strftime("%H:%M:%S", time.localtime(t))
