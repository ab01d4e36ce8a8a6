"""hive.native: a native part that is missing, broken or built from other sources raises an error with a hint."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hive
from hive import _native, native
from hive.errors import PlatformError
from hive.native import check_native, load_native, sources_digest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a folder with the Python files of hive and no native part."""
    shutil.copytree(Path(hive.__file__).parent, tmp_path / "hive", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


def hive_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder), "HIVE_HOME": str(folder / "runs")}
    command = [sys.executable, "-P", "-m", "hive", *words]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def test_load_native_returns_the_imported_module() -> None:
    assert load_native() is _native


def test_a_build_carries_the_digest_of_its_sources() -> None:
    """CMake and Python compute the digest with different code, which must agree."""
    assert sources_digest(ROOT / "native") == _native.SOURCES


def test_the_digest_is_of_every_source_and_of_nothing_else(tmp_path: Path) -> None:
    for name in ("include/hive/a.hpp", "src/a.cpp", "src/b.cpp", "tests/test_a.cpp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    seen = {sources_digest(tmp_path)}
    (tmp_path / "tests" / "test_a.cpp").write_text("other")
    (tmp_path / "src" / ".#a.cpp").symlink_to("somebody@somewhere.1234")  # a lock file of an editor
    assert seen == {sources_digest(tmp_path)}
    for name in ("include/hive/a.hpp", "src/a.cpp", "src/b.cpp"):
        (tmp_path / name).write_text("other")
        seen.add(sources_digest(tmp_path))
    assert len(seen) == 4


def test_a_missing_native_part_is_an_error_with_a_hint(copy: Path) -> None:
    done = hive_in(copy, "up", str(ROOT / "examples" / "cartpole.toml"))
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: the native part of hive is not built: {copy / 'hive'} contains none\n")
    assert "hint: install hive again, for this Python\n" in done.stderr
    (copy / "native" / "include" / "hive").mkdir(parents=True)  # makes it a source folder
    done = hive_in(copy, "up", str(ROOT / "examples" / "cartpole.toml"))
    assert done.returncode == 3
    assert "hint: run scripts/build (it needs cmake" in done.stderr
    assert "leave this folder to use the installed hive" in done.stderr
    assert not (copy / "runs").exists()


@pytest.fixture
def installed(copy: Path) -> Path:
    """Return a folder of packages with the native part of these sources, which the source folder `copy` lacks."""
    assert _native.__file__ is not None
    shutil.copytree(ROOT / "native", copy / "native")
    (copy / "packages" / "hive").mkdir(parents=True)
    (copy / "packages" / "hive" / "__init__.py").write_text("raise AssertionError('the sources hide this package')")
    shutil.copy(_native.__file__, copy / "packages" / "hive")
    return copy / "packages"


def imported(copy: Path, installed: Path, code: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{copy}{os.pathsep}{installed}"}
    return subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True)


def test_python_in_a_source_folder_finds_the_installed_one(copy: Path, installed: Path) -> None:
    code = "from hive import _native; import hive._native as again; print(_native.__file__, again is _native)"
    done = imported(copy, installed, code)
    assert done.stdout == f"{installed / 'hive' / Path(str(_native.__file__)).name} True\n", done.stderr
    code = "from hive.native import check_native; print(check_native().SOURCES)"
    assert imported(copy, installed, code).stdout == f"{_native.SOURCES}\n"


def test_an_installed_one_of_other_sources_is_not_found(copy: Path, installed: Path) -> None:
    (copy / "native" / "include" / "hive" / "clock.hpp").write_text("// changed")
    done = imported(copy, installed, "from hive import _native")
    assert f"PlatformError: the native part of hive is not built: {copy / 'hive'} contains none\n" in done.stderr
    assert "`pip install .`" in done.stderr.splitlines()[-1]


def test_modules_that_need_no_native_part_work_without_it(copy: Path) -> None:
    assert hive_in(copy, "--version").stdout.startswith("hive ")
    assert hive_in(copy, "ls").stdout == f"no run in {copy / 'runs'} yet\n"
    doctor = hive_in(copy, "doctor")
    assert (doctor.returncode, "the native part of hive is not built" in doctor.stdout) == (1, True)


def test_one_that_cannot_be_loaded_says_why(copy: Path) -> None:
    assert _native.__file__ is not None
    (copy / "hive" / Path(_native.__file__).name).write_bytes(b"no library at all")
    done = hive_in(copy, "check", str(ROOT / "examples" / "cartpole.toml"))
    assert done.returncode == 3
    assert "error: the native part of hive cannot be loaded: " in done.stderr


def test_a_native_part_without_a_digest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "SOURCES", ROOT / "native")
    assert check_native() is _native
    monkeypatch.delattr(_native, "SOURCES")
    with pytest.raises(PlatformError, match=r"(?m)was built from other sources$"):
        check_native()


def test_one_that_lacks_a_module_of_its_own_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> None:
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

    monkeypatch.setattr(native.importlib, "import_module", gone)
    with pytest.raises(PlatformError, match=r"(?m)^the native part of hive cannot be loaded: No module named 'numpy'$"):
        load_native()


def test_one_of_other_sources_is_refused(copy: Path) -> None:
    assert _native.__file__ is not None
    shutil.copy(_native.__file__, copy / "hive")
    ours = f"from hive import _native; assert _native.__file__.startswith({str(copy)!r})"
    command = [sys.executable, "-P", "-c", ours]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    subprocess.run(command, env=environment, check=True)  # an installed package has no sources to compare with
    shutil.copytree(ROOT / "native", copy / "native")
    subprocess.run(command, env=environment, check=True)
    (copy / "native" / "include" / "hive" / "clock.hpp").write_text("// changed")
    subprocess.run(command, env=environment, check=True)  # a live run is not affected
    done = hive_in(copy, "up", str(ROOT / "examples" / "cartpole.toml"))
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: the native part of hive in {copy / 'hive'} was built from other sources\n")
    assert "hint: run scripts/build" in done.stderr
