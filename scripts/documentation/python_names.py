"""Pages of the public names, made from tests/public_names.txt (signatures) and the docstrings.

Docstrings are plain text: their paragraphs become paragraphs, and indented ones code.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

LIST = Path(__file__).parents[2] / "tests" / "public_names.txt"
PLACE = re.compile(r"^\[([\w.]+)\]\n(.*?)(?=^\[|\Z)", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(
    r"^(?:(?:async def|class def|class|def|enum|protocol|type|value) )?(\w+).*\n(?: +.*\n)*", re.MULTILINE
)
MEMBER = re.compile(r"^ +(?:async def |class def |def )(\w+)\(", re.MULTILINE)

PLACES = [place for place, _ in PLACE.findall(LIST.read_text())]


def paragraphs(docstring: str) -> str:
    """Return a docstring as Markdown."""
    parts = []
    for part in re.split(r"\n[ ]*\n", inspect.cleandoc(docstring)):
        if part.startswith("    "):
            parts.append(f"```text\n{textwrap.dedent(part)}\n```")
        else:
            words = re.split(r"(`[^`]*`)", part)
            parts.append("".join(w if w.startswith("`") else re.sub(r"([*_<\[\]|#$~])", r"\\\1", w) for w in words))
    return "\n\n".join(parts)


def section_of(place: str, name: str, signature: str) -> str:
    """Return the section of one public name: its signature, its docstring, and those of its methods."""
    value = getattr(importlib.import_module(place), name)
    parts = [f"## {name}", f"```python\n{signature.rstrip()}\n```"]
    if (docstring := own_docstring(value)) is not None:
        parts.append(paragraphs(docstring))
    for member in MEMBER.findall(signature):
        if text := inspect.getdoc(getattr(value, member, None)):
            parts.append(f"**`{member}()`** {paragraphs(text)}")
    return "\n\n".join(parts)


def own_docstring(value: Any) -> str | None:
    """Return the docstring of a class or function; None for a value, whose docstring is that of its class."""
    return value.__doc__ if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value) else None


def python_pages() -> dict[str, str]:
    """Return a page for every package of public names, by its name."""
    pages = {}
    for place, text in PLACE.findall(LIST.read_text()):
        entries = [(found[1], found[0]) for found in ENTRY.finditer(text) if not found[0].startswith("package ")]
        sections = [section_of(place, name, signature) for name, signature in entries]
        pages[place] = f"# {place}\n\n" + "\n\n".join(sections) + "\n"
    return pages
