"""The command line of `scripts/docs`.

    examples/guide/*.md ──┐
    generated pages  ─────┼──> a folder of sources ──> Sphinx with MyST and furo ──> HTML, pages, llms.txt
    the code's docstrings ┘    (links as in the site)

Exit codes: 0 built · 1 a warning, such as a link that leads nowhere · 2 usage.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import NoReturn

from documentation.generated import FILES
from documentation.sources import GUIDE, ROOT, write_sources

SITE = ROOT / "build" / "site"
STATIC = Path(__file__).parent / "static"

SETTINGS = {
    "project": "hive",
    "extensions": ["myst_parser", "sphinx_copybutton"],
    "html_theme": "furo",
    "html_title": "hive",
    "html_static_path": [str(STATIC)],
    "html_css_files": ["site.css"],
    "html_copy_source": False,
    "html_show_sphinx": False,
    "smartquotes": False,  # they would make one dash of the two of an option
    "pygments_style": "a11y-light",
    "pygments_dark_style": "github-dark",
    "myst_heading_anchors": 4,  # as GitHub's
    "copybutton_prompt_text": "$ ",
    "linkcheck_anchors": False,
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="docs", description="Build the site of the guide. A warning is an error.")
    top.add_argument("-o", metavar="DIR", dest="folder", type=Path, default=SITE, help="folder of the site: build/site")
    top.add_argument("--open", action="store_true", help="open the site in a browser")
    top.add_argument("--check-links", action="store_true", help="also request every link to another site")
    top.add_argument("--write", action="store_true", help="write the generated pages of examples/guide again, no site")
    return top


def write_pages() -> None:
    """Write the generated pages of the guide."""
    for name, text_of in FILES.items():
        (GUIDE / name).write_text(text_of())


def built(sources: Path, folder: Path, kind: str) -> int:
    """Run Sphinx, whose output goes to stderr. Return its exit code."""
    from sphinx.cmd.build import build_main

    (sources / "conf.py").write_text("".join(f"{name} = {value!r}\n" for name, value in SETTINGS.items()))
    work = sources.parent / "doctrees"
    return build_main(["-q", "-W", "--keep-going", "-b", kind, "-d", str(work), str(sources), str(folder)])


def build(folder: Path, check_links: bool = False) -> int:
    """Build the site into `folder`. Return 0 if there was no warning."""
    with tempfile.TemporaryDirectory() as work:
        sources = Path(work) / "sources"
        texts = write_sources(sources)
        code = built(sources, folder, "html")
        if check_links and not code:
            code = built(sources, Path(work) / "links", "linkcheck")
    for name, text in texts.items():
        (folder / name).write_text(text)
    for page in GUIDE.rglob("*.md"):  # llms.txt names the pages as they are written
        shutil.copyfile(page, folder / page.relative_to(GUIDE))
    return code


def main() -> NoReturn:
    options = parser().parse_args()
    if options.write:
        write_pages()
        sys.exit(0)
    if code := build(options.folder, options.check_links):
        sys.exit(code)
    print(options.folder / "index.html")
    if options.open:
        webbrowser.open((options.folder / "index.html").resolve().as_uri())
    sys.exit(0)
