"""The generated pages of the guide are current, and its site is built without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documentation.config_keys import keys_page
from documentation.generated import FILES, llms_full
from documentation.python_names import paragraphs
from documentation.sources import Sources
from pages import GUIDE, PAGES, ROOT

from hive.config import Config, load_config


@pytest.mark.parametrize("name", FILES)
def test_a_generated_page_is_current(name: str) -> None:
    assert (GUIDE / name).read_text() == FILES[name](), "scripts/docs --write writes it again"


def test_the_page_on_keys_has_every_key() -> None:
    listed = set(re.findall(r"^\| `([\w.]+)` \|", keys_page(), re.MULTILINE))
    config: Config = load_config("x.toml", text='[env]\nid = "CartPole-v1"')
    assert {entry.name for entry in config.entries()} - listed == set()


def test_the_text_of_all_pages_has_every_page() -> None:
    text = llms_full()
    assert [path.name for path in PAGES[1:] if path.read_text() not in text] == []


def test_links_lead_to_pages_and_files_of_the_site(tmp_path: Path) -> None:
    sources = Sources()
    text = "[a](../../ARCHITECTURE.md#rooms) [b](decisions/README.md) [c](../dqn.py) `examples/tap.py` [d](#here)"
    linked = sources.linked(text, GUIDE / "python.md", "python.md")
    assert linked == (
        "[a](architecture.md#rooms) [b](decisions/index.md) [c](files/examples/dqn.py.md) "
        "[`examples/tap.py`](files/examples/tap.py.md) [d](#here)"
    )
    assert sources.files == {
        f"files/examples/{name}.py.md": ROOT / "examples" / f"{name}.py" for name in ("dqn", "tap")
    }


def test_a_docstring_becomes_markdown() -> None:
    docstring = "Return a * b of `a * b`.\n\n    loss = a\n\nEnd."
    assert paragraphs(docstring) == "Return a \\* b of `a * b`.\n\n```text\nloss = a\n```\n\nEnd."


@pytest.mark.full(reason="Sphinx reads a hundred pages: half a minute")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "docs"), "-o", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all((tmp_path / name).exists() for name in ("index.html", "keys.html", "keys.md", "llms.txt"))
