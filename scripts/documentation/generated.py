"""The generated pages of the guide: `FILES` maps their names to what makes them.

They lie in examples/guide, so that they can be read there as well; `scripts/docs --write` writes them again, and a test
compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from documentation.commands import commands_page
from documentation.config_keys import keys_page
from documentation.figures import figures_page
from documentation.warning_names import warnings_page

GUIDE = Path(__file__).parents[2] / "examples" / "guide"
ROW = re.compile(r"^\| \[([^\]]*)\]\(([^)]+\.md)\) \| (.*) \|$", re.MULTILINE)
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def plain(text: str) -> str:
    """Return text without its links."""
    return LINK.sub(r"\1", text)


def llms() -> str:
    """Return llms.txt: the pages of the guide, with what they are about (https://llmstxt.org)."""
    index = (GUIDE / "README.md").read_text()
    about = plain(index.split("\n\n")[1]).replace("\n", " ")
    parts = [
        "# hive",
        f"> {about}",
        "Every page is plain Markdown. llms-full.txt of the site has all of them in one file.",
    ]
    for title, text in SECTION.findall(index):
        rows = [f"- [{name}]({page}): {plain(subject)}" for name, page, subject in ROW.findall(text)]
        parts += [f"## {title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def llms_full() -> str:
    """Return all pages of the guide in the order of its index."""
    index = (GUIDE / "README.md").read_text()
    names = ["README.md", *(page for _, page, _ in ROW.findall(index))]
    return "\n\n".join((GUIDE / name).read_text() for name in names)


FILES: Mapping[str, Callable[[], str]] = {
    "keys.md": keys_page,
    "commands.md": commands_page,
    "results.md": figures_page,
    "warnings.md": warnings_page,
    "llms.txt": llms,
}
