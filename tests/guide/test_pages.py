"""README and the guide: links lead somewhere, the index has every page, and named files and keys exist."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from pages import BLOCK, BLOCKS, DECISIONS, GUIDE, LINKED, ROOT, TEXTS

from hive.config.other_names import is_key, other_names

WORDS = range(600, 901)  # length of README: one screen and a half
MOST_LINES = 13  # README's program, with its imports
TWELVE = 12  # lines of the first program of actors.md, as its first paragraph says

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def test_the_pages_on_actors_have_a_program_in_each_part() -> None:
    for name in ("actors", "topologies"):
        text = BLOCK.sub(r"```\2", TEXTS[f"examples/guide/{name}.md"])
        parts = text.split("\n## ")[1:]
        assert [part.partition("\n")[0] for part in parts if "```python" not in part] == []
    first = next(block for block in BLOCKS if block.page.endswith("/actors.md"))
    assert len(first.text.splitlines()) <= TWELVE


def test_readme_is_one_screen_and_a_half() -> None:
    assert len(TEXTS["README.md"].split()) in WORDS
    first = next(block for block in BLOCKS if block.page == "README.md" and block.language == "python")
    assert len(first.text.splitlines()) <= MOST_LINES


@functools.cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", path.read_text()), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("path", LINKED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_its_links_lead_somewhere(path: Path) -> None:
    for link in LINK.findall(BLOCK.sub("", path.read_text())):
        place, _, anchor = link.partition("#")
        if "://" not in place:
            target = (path.parent / place).resolve() if place else path
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("name", TEXTS)
def test_the_files_it_names_exist(name: str) -> None:
    for file in re.findall(r"`((?:tests|native|examples|scripts)/[\w/.]+)`", TEXTS[name]):
        assert (ROOT / file).exists(), file


@pytest.mark.parametrize("folder", [GUIDE, GUIDE / "decisions"], ids=lambda path: path.name)
def test_the_index_lists_every_page_once(folder: Path) -> None:
    listed = re.findall(r"^\| \[[^\]]*\]\(([^)]+)\)", (folder / "README.md").read_text(), re.MULTILINE)
    pages = {path.name for path in folder.glob("*.md")} - {"README.md"}
    assert sorted(listed) == sorted({*pages, *(["decisions/README.md"] if folder == GUIDE else [])})
    assert DECISIONS


def test_names_of_other_trainers_are_those_of_the_hints() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", TEXTS["examples/guide/from-sb3.md"], re.MULTILINE)
    assert len(rows) >= 20
    assert [row for row in rows if other_names("keys").get(row[0], row[1]) != row[1]] == []
    assert [row for row in rows if not is_key(row[1])] == []
