"""The distribution `hive-trainer`: its name, and other distributions that own files of the folder `hive/`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import hive
import hive_trainer
from hive import distribution
from hive.distribution import (
    BUILT,
    NAME,
    OWN,
    WARNED,
    pip_install,
    strangers,
    warn_of_strangers,
)
from hive.errors import PlatformError
from hive.versions import NEEDED, OF_EXTRAS, check_versions

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


class Site:
    """A folder of installed packages in which hive lies."""

    def __init__(self, path: Path) -> None:
        self.path, self.hive = path, path / "hive"
        self.hive.mkdir()
        for name in (*OWN, "__pycache__", "_native.cpython-311-x86_64-linux-gnu.so"):
            (self.hive / name).touch()
        self.add(NAME, "hive/__init__.py", "hive/errors.py")

    def add(self, name: str, *files: str) -> None:
        """Install a distribution; its files that exist already keep their content."""
        for file in files:
            (self.path / file).parent.mkdir(exist_ok=True)
            (self.path / file).touch()
        (self.path / f"{name}-1.2.dist-info").mkdir()
        (self.path / f"{name}-1.2.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 1.2\n")
        (self.path / f"{name}-1.2.dist-info" / "RECORD").write_text("".join(f"{file},,\n" for file in files))

    def warnings(self) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_of_strangers(str(self.hive))
        return [str(warning.message) for warning in caught]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    others = [folder for folder in sys.path if not folder.endswith("site-packages")]  # the installed ones take seconds
    monkeypatch.setattr(sys, "path", [str(tmp_path), *others])
    yield Site(tmp_path)
    os.environ.pop(WARNED, None)


def test_the_names_in_the_folder_are_known() -> None:
    there = {path.name for path in Path(distribution.HOME).iterdir() if not path.name.startswith(BUILT)}
    assert there == OWN


def test_another_distribution_is_named_once_with_the_way_out(site: Site) -> None:
    site.add("rlhive", "hive/__init__.py", "hive/agents.py", "other.py")
    (text,) = site.warnings()
    assert text.startswith(
        f"another distribution owns files of {site.hive}: rlhive 1.2 (hive/__init__.py); `pip uninstall`"
    )
    assert "install hive-trainer again" in text
    assert site.warnings() == []  # the processes of a run do not repeat it


def test_files_of_no_distribution_and_folders_elsewhere_are_not_strangers(site: Site) -> None:
    (site.hive / "notes.py").touch()
    site.add("neighbour", "beehive/__init__.py", "hive_extras.py")
    assert site.warnings() == []
    assert [*strangers(str(site.hive))] == []
    assert [*strangers(str(site.path / "elsewhere" / "hive"))] == []


def test_the_doctor_also_finds_one_that_has_only_names_of_hive(site: Site) -> None:
    site.add("hive", "hive/__init__.py", "hive/cli.py")  # as hive itself was called before
    (site.hive / "cli.py").unlink()
    assert site.warnings() == []
    assert [*strangers(str(site.hive))] == ["hive 1.2 (hive/__init__.py)"]


def run_command(site: Site) -> subprocess.CompletedProcess[str]:
    shutil.copytree(Path(hive_trainer.__file__).parent, site.path / "hive_trainer", dirs_exist_ok=True)
    command = [sys.executable, "-P", "-S", "-c", "from hive_trainer import main; main()"]
    environment = os.environ | {"PYTHONPATH": str(site.path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_command_does_not_run_a_package_that_is_not_ours(site: Site) -> None:
    site.add("rlhive", "hive/__init__.py")
    (site.hive / "__init__.py").write_text("raise AssertionError('the code of a stranger ran')")
    done = run_command(site)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(
        f"error: {site.hive / '__init__.py'} belongs to another distribution: rlhive 1.2\n\nhint: "
    )
    (site.hive / "__init__.py").unlink()  # as `pip uninstall rlhive` does
    assert run_command(site).stderr.startswith("error: hive/__init__.py is missing")


def test_the_command_runs_ours() -> None:
    assert hive_trainer.OURS in Path(hive.__file__).read_bytes()
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            "import sys; sys.argv = ['hive', '--version']; from hive_trainer import main; main()",
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"hive {hive.__version__}\n"), done.stderr


def test_the_oldest_versions_are_those_of_the_project() -> None:
    extras = PROJECT["optional-dependencies"]
    texts = [text for name in {*extras} - {"peers", "docs", "test", "release"} for text in extras[name]]
    pairs = [text.split(">=") for text in texts if not text.startswith((NAME, "gymnasium["))]
    assert dict(text.split(">=") for text in PROJECT["dependencies"]) == NEEDED
    assert dict(pairs) == OF_EXTRAS


def test_a_package_that_is_too_old_is_one_sentence_at_the_first_use(site: Site) -> None:
    old = site.path / "gymnasium-0.28.1.dist-info"
    old.mkdir()
    (site.path / "onnx-1.2.0-py3.11.egg-info").mkdir()
    (site.path / "torch-2.8.0a0+git12.dist-info").mkdir()  # a preview of the oldest
    with pytest.raises(PlatformError) as caught:
        check_versions()
    assert str(caught.value) == "gymnasium 0.28.1 is installed, and hive needs gymnasium>=1.0"
    with pytest.raises(PlatformError, match=r"onnx 1\.2\.0"):
        check_versions(["onnx"])
    command = [sys.executable, "-P", "-c", "import hive; hive.__version__; hive.train"]
    path = os.pathsep.join([str(ROOT), str(site.path)])
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert "gymnasium 0.28.1 is installed" in done.stderr
    (site.path / "Gymnasium-1.0.0.dist-info").mkdir()  # the other one was not removed well
    check_versions()


def test_the_metadata_agrees_with_the_code() -> None:
    assert (PROJECT["name"], PROJECT["version"]) == (NAME, hive.__version__)
    assert pip_install("plot") == "pip install 'hive-trainer[plot]'"
    extras = PROJECT["optional-dependencies"]
    for text in [text for packages in extras.values() for text in packages if text.startswith(NAME)]:
        assert {*text.removeprefix(f"{NAME}[").removesuffix("]").split(",")} <= extras.keys()
