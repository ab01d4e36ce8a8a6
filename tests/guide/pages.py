"""README and the pages of the guide, and their code blocks."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "examples" / "guide"
PAGES = [ROOT / "README.md", *sorted(GUIDE.glob("*.md"))]
DECISIONS = sorted((GUIDE / "decisions").glob("*.md"))
LINKED = [*PAGES, *DECISIONS, *(ROOT / name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"))]
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in PAGES}

BLOCK = re.compile(r"^( *)```([\w{}-]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A code block. output: the block without a language that follows it, with nothing between them; else None."""

    page: str
    line: int
    language: str
    text: str
    output: str | None = None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page in order; outputs belong to the blocks above them."""
    text, found = TEXTS[page], list(BLOCK.finditer(TEXTS[page]))
    blocks = []
    for match, after in itertools.zip_longest(found, found[1:]):
        is_output = after is not None and not after[2] and not text[match.end() : after.start()].strip()
        line = text.count("\n", 0, match.start()) + 1
        blocks.append(Block(page, line, match[2], match[3], after[3] if after and is_output else None))
    return blocks


BLOCKS = [block for page in TEXTS for block in blocks_of(page)]
