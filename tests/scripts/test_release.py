"""scripts/release: what the files of a release must agree about."""

from __future__ import annotations

import shutil
import subprocess
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def release() -> Any:
    loader = SourceFileLoader("hive_release", str(ROOT / "scripts" / "release"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a repository that is ready for release 1.2.3."""
    (tmp_path / "hive").mkdir()
    urls = '[project.urls]\nSource = "https://code.test/hive"\n'
    (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "1.2.3"\n{urls}')
    (tmp_path / "hive" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 (2026-12-01)\n\n## 1.2.2 (2026-11-01)\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.test", "commit", "--quiet", "-m", "hive 1.2.3")
    git(tmp_path, "tag", "v1.2.3")
    return tmp_path


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(folder), *words], check=True)


def problems(release: Any, tree: Path) -> list[str]:
    return [*release.problems_of(tree), *release.problems_of_git(tree)]


def test_a_release_that_is_ready(release: Any, tree: Path) -> None:
    assert problems(release, tree) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("hive/__init__.py", "1.2.3", "1.2.2", "hive/__init__.py has 1.2.2, pyproject.toml has 1.2.3"),
        ("CITATION.cff", "version: 1.2.3", "title: hive", "CITATION.cff has no version, pyproject.toml has 1.2.3"),
        ("CHANGELOG.md", "1.2.3 (2026-12-01)", "Unreleased", "CHANGELOG.md has 1.2.2, pyproject.toml has 1.2.3"),
        ("pyproject.toml", "[project.urls]", "[project.scripts]", "pyproject.toml has no [project.urls]"),
    ],
)
def test_files_that_disagree(release: Any, tree: Path, file: str, old: str, new: str, problem: str) -> None:
    (tree / file).write_text((tree / file).read_text().replace(old, new))
    first, changed = problems(release, tree)
    assert first.startswith(problem)
    assert changed == f"the working tree has changes:\n M {file}"


def test_a_commit_without_the_tag(release: Any, tree: Path) -> None:
    git(tree, "tag", "-d", "v1.2.3")
    assert problems(release, tree) == ["the current commit has no tag v1.2.3: git tag -a v1.2.3"]


def test_a_version_under_development(release: Any, tree: Path) -> None:
    for name in (*release.PLACES, "pyproject.toml"):
        (tree / name).write_text((tree / name).read_text().replace("1.2.3", "1.2.3.dev0"))
    assert next(release.problems_of(tree)) == "1.2.3.dev0 is no version of a release: expected MAJOR.MINOR.PATCH"


def test_the_places_of_the_version_exist(release: Any, tmp_path: Path) -> None:
    """All but the heading of the changelog, which a release writes."""
    for name in (*release.PLACES, "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    version = release.version_of(ROOT)
    (tmp_path / "CHANGELOG.md").write_text(f"## {version} (2026-12-01)\n")
    assert [one for one in release.problems_of(tmp_path) if one.partition(" ")[0] in release.PLACES] == []
