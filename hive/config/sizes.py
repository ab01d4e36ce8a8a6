"""Sizes of memory as texts: "2 GiB"."""

from __future__ import annotations

import re

SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]i?)?B")
NO_LIMIT = "none"


def is_size(text: str) -> bool:
    """Whether a text is a size above 0, or "none"."""
    return text == NO_LIMIT or (SIZE.fullmatch(text) is not None and bytes_of(text) > 0)


def bytes_of(text: str) -> int:
    """Return the bytes of a size; 0 for "none"."""
    found = SIZE.fullmatch(text)
    if found is None:
        return 0
    number, unit = found.groups()
    base = 1024 if unit and unit.endswith("i") else 1000
    return int(float(number) * base ** (" KMGT".index(unit[0]) if unit else 0))
