"""The folder of sources that Sphinx reads: the pages of the guide with links as in the site.

    examples/guide/NAME.md             NAME.md; README.md is index.md
    ARCHITECTURE.md and others         architecture.md
    a file that a page names           files/PATH.md, its text as code
    a picture                          files/PATH

The index of the guide determines the menu: each section is a group, and each row of its table a page. Pages of classes
and functions, made from their docstrings, follow the page on public names.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from documentation.generated import llms_full
from documentation.python_names import PLACES, python_pages

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "examples" / "guide"
PROJECT = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
PICTURES = {".png", ".svg"}
LANGUAGES = {".py": "python", ".toml": "toml", ".c": "c", ".h": "c", ".sh": "sh", ".csv": "text", ".md": "text"}

FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")
NAMED_FILE = re.compile(r"(?<!\[)`((?:examples|scripts|tests|native)/[\w./-]+\.(?:py|toml|c|sh))`(?!\])")
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
ROW = re.compile(r"^\| \[[^\]]*\]\(([^)]+)\.md\)", re.MULTILINE)


@dataclass
class Sources:
    """Texts of the site by their names in it; `files`: those that pages name, still to be written."""

    texts: dict[str, str] = field(default_factory=dict)
    pictures: dict[str, Path] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)

    def add(self, path: Path) -> None:
        """Add a page of the repository."""
        name = site_name(path)
        assert name is not None, path
        self.texts[name] = "".join(
            part if part.lstrip(" ").startswith("```") else self.linked(part, path, name)
            for part in parts_of(path.read_text())
        )

    def linked(self, text: str, path: Path, name: str) -> str:
        """Return text with the links of the site, and with links to the files that it names."""
        here = Path(name).parent

        def to(target: str) -> str:
            return os.path.relpath(target, here)

        def link(found: re.Match[str]) -> str:
            place, anchor = found[1], found[2] or ""
            if "://" in place or not place:
                return found[0]
            return f"]({to(self.name_of((path.parent / place).resolve()))}{anchor})"

        def named(found: re.Match[str]) -> str:
            target = ROOT / found[1]
            return f"[{found[0]}]({to(self.name_of(target))})" if target.is_file() else found[0]

        return NAMED_FILE.sub(named, LINK.sub(link, text))

    def name_of(self, target: Path) -> str:
        """Return the name that a file of the repository has in the site."""
        if (name := site_name(target)) is not None:
            return name
        path = target.relative_to(ROOT).as_posix()
        if target.suffix in PICTURES:
            self.pictures[f"files/{path}"] = target
            return f"files/{path}"
        self.files[f"files/{path}.md"] = target
        return f"files/{path}.md"


def site_name(path: Path) -> str | None:
    """Return the name of a page of the repository in the site; None for other files."""
    if path == ROOT / "README.md":
        return "index.md"
    if (name := PROJECT.get(path.name)) and path.parent == ROOT:
        return name
    if path.suffix != ".md" or GUIDE not in path.parents:
        return None
    inside = path.relative_to(GUIDE)
    return (inside.with_name("index.md") if inside.name == "README.md" else inside).as_posix()


def parts_of(text: str) -> Iterator[str]:
    """Yield the parts of a page: text, code block, text ..."""
    end = 0
    for block in FENCE.finditer(text):
        yield text[end : block.start()]
        yield block[0]
        end = block.end()
    yield text[end:]


def menu(caption: str, pages: list[str]) -> str:
    """Return the directive that makes a group of the menu."""
    caption = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n:hidden:\n:titlesonly:\n{caption}\n" + "\n".join(pages) + "\n```\n"


def code_page(path: Path) -> str:
    """Return a page with the text of a file, or with the names in a folder."""
    is_folder = path.is_dir()
    text = "\n".join(sorted(entry.name for entry in path.iterdir())) + "\n" if is_folder else path.read_text()
    language = LANGUAGES.get(path.suffix, "text")
    return f"---\norphan: true\n---\n\n# {path.relative_to(ROOT)}\n\n````{language}\n{text}````\n"


def write_sources(folder: Path) -> dict[str, str]:
    """Write the sources of the site; return the files that it has besides, by name."""
    sources = Sources()
    for path in [*GUIDE.rglob("*.md"), *(ROOT / name for name in PROJECT)]:
        sources.add(path)
    index = (GUIDE / "README.md").read_text()
    for caption, text in SECTION.findall(index):
        pages = [page.replace("/README", "/index") for page in ROW.findall(text)]
        sources.texts["index.md"] += menu(caption, pages) if pages else ""
    sources.texts["index.md"] += menu("Project", [name.removesuffix(".md") for name in PROJECT.values()])
    sources.texts["decisions/index.md"] += menu("", ROW.findall((GUIDE / "decisions" / "README.md").read_text()))
    sources.texts["public-names.md"] += menu("", [f"python/{place}" for place in PLACES])
    sources.texts |= {f"python/{place}.md": text for place, text in python_pages().items()}
    sources.texts |= {name: code_page(path) for name, path in sources.files.items()}
    for name, text in sources.texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, path in sources.pictures.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    return {"llms.txt": (GUIDE / "llms.txt").read_text(), "llms-full.txt": llms_full()}
