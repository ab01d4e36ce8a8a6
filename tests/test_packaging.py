"""The files that make and check a release: metadata, wheels, workflows, and an installation in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PYTHONS = [
    text.rpartition(" ")[2]
    for text in PYPROJECT["project"]["classifiers"]
    if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", text)
]
INSTALL_S = 900.0  # limit of one step in seconds: torch is large, and compiling takes two minutes on two cores
COMPILERS = ("c++", "g++", "clang++", "cc", "gcc", "clang", "cmake", "ninja", "make")


# --- what the files say


def test_wheels_and_tests_are_for_the_pythons_of_the_metadata() -> None:
    assert PYPROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    built = re.findall(r"cp3(\d+)-manylinux_\*", PYPROJECT["tool"]["cibuildwheel"]["build"])
    assert [f"3.{minor}" for minor in built] == PYTHONS
    assert f"python: {PYTHONS}".replace("'", '"') in (ROOT / ".github" / "workflows" / "tests.yml").read_text()


def test_the_tested_torch_is_one_that_the_metadata_allows() -> None:
    (lower,) = re.findall(r"'torch>=([\d.]+)'", str(PYPROJECT["project"]["dependencies"]))
    (pinned,) = re.findall(r"^torch==([\d.]+)$", (ROOT / ".ci" / "constraints.txt").read_text(), re.MULTILINE)
    tests = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert f'"torch=={lower}.0"' in tests
    assert f'"torch=={pinned}"' in tests


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_the_files_that_workflows_name_exist(path: Path) -> None:
    text = path.read_text()
    for name in re.findall(r"(?:tests|examples|\.ci|scripts)/[\w./-]+", text):
        assert (ROOT / name).exists(), name
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert {*re.findall(r"'\.\[(\w+)\]'", text)} <= extras.keys()


@pytest.mark.parametrize(
    "path",
    [
        *WORKFLOWS,
        *(ROOT / ".ci").iterdir(),
        *sorted((ROOT / "examples" / "guide").glob("*.md")),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "pyproject.toml")),
    ],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_no_file_names_a_package_index(path: Path) -> None:
    """Where packages come from is the user's own setting of pip, or the repository variable TORCH_INDEX."""
    assert re.findall(r"index-url|pypi|://[\w.-]*(?:download|index)", path.read_text(), re.IGNORECASE) == []


@pytest.mark.full(reason="slow to start")
@pytest.mark.parametrize(
    ("schema", "paths"), [("github-workflows", WORKFLOWS), ("citation-file-format", [ROOT / "CITATION.cff"])]
)
def test_workflows_and_citation_follow_their_schemas(schema: str, paths: list[Path]) -> None:
    ran(sys.executable, "-P", "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *paths)


# --- other systems


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_another_system_is_refused_in_one_sentence_before_a_compiler_is_sought(tmp_path: Path, system: str) -> None:
    command = ["cmake", "-S", str(ROOT / "native"), "-B", str(tmp_path), f"-DCMAKE_SYSTEM_NAME={system}"]
    done = subprocess.run(command, env=os.environ | {"CXX": "none"}, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    words = " ".join(done.stderr.split())
    assert f"hive runs on Linux only, not on {system}: use a Linux machine, a container, or WSL 2 on Windows." in words
    assert "none" not in words


# --- empty environments


def ran(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [*map(str, command)], env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=INSTALL_S
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the source distribution, built as a release is. Skips where the packages to build cannot be had."""
    folder = tmp_path_factory.mktemp("sdist")
    pip = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder / "probe")]
    requirements = PYPROJECT["build-system"]["requires"]
    if subprocess.run([*pip, *requirements], capture_output=True, check=False, timeout=INSTALL_S).returncode != 0:
        pytest.skip(f"{' and '.join(requirements)} cannot be downloaded")
    ran(sys.executable, "-P", "-m", "build", "--sdist", "--outdir", folder, ROOT)
    (file,) = folder.glob("*.tar.gz")
    return file


def install_and_train(folder: Path, file: Path, path: str) -> None:
    """Install a file in an empty environment and train the first example. `path`: PATH, behind the environment's."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    env = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "CXX", "CC")}
    env |= {"PATH": f"{programs}{os.pathsep}{path}", "HIVE_HOME": str(folder / "runs")}
    ran(programs / "pip", "install", "--quiet", "--constraint", ROOT / ".ci" / "constraints.txt", file, env=env)
    done = ran(programs / "hive", "up", ROOT / "examples" / "cartpole.toml", env=env, cwd=folder)
    assert "finished: mean return" in done
    assert "CartPole-v1" in ran(programs / "hive", "init", "--list", env=env, cwd=folder)  # a data file of the package
    assert "of no other distribution" in ran(programs / "hive", "doctor", env=env, cwd=folder)


@pytest.mark.full(reason="compiles and installs hive, as `.ci/run` does", rotates=True)
def test_the_source_distribution_installs_in_an_empty_environment(sdist: Path, tmp_path: Path) -> None:
    install_and_train(tmp_path, sdist, os.environ["PATH"])


@pytest.mark.full(reason="compiles and installs hive, as `.ci/run` does", rotates=True)
def test_the_wheel_installs_in_an_empty_environment_without_a_compiler(sdist: Path, tmp_path: Path) -> None:
    ran(sys.executable, "-P", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, sdist)
    (wheel,) = tmp_path.glob("*.whl")
    empty = tmp_path / "programs"
    empty.mkdir()
    assert not any(shutil.which(name, path=str(empty)) for name in COMPILERS)
    install_and_train(tmp_path, wheel, str(empty))
