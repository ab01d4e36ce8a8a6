"""Building a topology: which user line an error names, and where the traceback is kept."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from hive.config import Config, load_config, references, render
from hive.config.other_names import is_key
from hive.errors import EnvironmentMissing, HiveError, MemoryShort, NetworkError, RecordError, TopologyError
from hive.records import RunDirectory
from hive.runtime.topology.building import build, load
from hive.runtime.topology.topology import Topology
from hive.schemes import blueprint_of

NUMBERS = itertools.count()  # for module names: Python imports each name once


def module(folder: Path, text: str) -> str:
    """Write a new module into the folder and return its name."""
    name = f"mine_{next(NUMBERS)}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    return name


def config_of(scheme: str = "a2c", network: str = "", key: str = "module") -> Config:
    overrides = [f"run.scheme={scheme}", *([f"network.{key}={network}"] if network else [])]
    return load_config("mine.toml", overrides, text='env.id = "CartPole-v1"\n')


def run_of(tmp_path: Path, scheme: str) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "runs", "mine")
    run.resolved_file.write_text(render(config_of(scheme)))
    return run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a temporary working folder, in which user modules are found."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def refusal(config: Config, tmp_path: Path) -> HiveError:
    with pytest.raises(HiveError) as caught:
        build(config, tmp_path)
    return caught.value


# --- the line


def test_the_innermost_user_line_is_named(tmp_path: Path) -> None:
    name = module(tmp_path, "def topology(config, directory):\n    return inner()\n\ndef inner():\n    return 1 / 0\n")
    error = refusal(config_of(f"{name}:topology"), tmp_path)
    assert type(error) is TopologyError
    assert str(error) == f"the topology cannot be built: {name}.py:5 raised ZeroDivisionError: division by zero"
    assert error.hint == "`hive up` keeps the traceback"
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_a_user_line_that_calls_a_library_is_named(tmp_path: Path) -> None:
    text = "import json, numpy\n\ndef topology(config, directory):\n    return {}\n"
    for call, kind in (("json.loads('{')", "JSONDecodeError"), ("numpy.zeros(-1)", "ValueError")):
        name = module(tmp_path, text.format(call))
        error = str(refusal(config_of(f"{name}:topology"), tmp_path))
        assert error.startswith(f"the topology cannot be built: {name}.py:4 raised {kind}: ")


def test_a_line_outside_the_working_folder_has_its_full_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path / "far", "x = 1\nraise OSError\n")
    monkeypatch.syspath_prepend(tmp_path / "far")
    error = refusal(config_of(f"{name}:topology"), tmp_path)
    assert str(error) == f"the topology cannot be built: far/{name}.py:2 raised OSError"
    monkeypatch.chdir(tmp_path / "far")
    name = module(tmp_path, "raise OSError\n")
    error = refusal(config_of(f"{name}:topology"), tmp_path)
    assert str(error) == f"the topology cannot be built: {tmp_path / name}.py:1 raised OSError"


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_an_installed_package_is_named_only_without_user_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """A user may install his own code; but if a user line calls an installed package, the user line is named."""
    packages = tmp_path / folder
    monkeypatch.syspath_prepend(packages)
    installed = module(packages, "def topology(config, directory):\n    raise OSError('no licence')\n")
    error = refusal(config_of(f"{installed}:topology"), tmp_path)
    assert str(error) == f"the topology cannot be built: {folder}/{installed}.py:2 raised OSError: no licence"
    name = module(tmp_path, f"from {installed} import topology as other\n\ndef topology(*all):\n    other(*all)\n")
    error = refusal(config_of(f"{name}:topology"), tmp_path)
    assert str(error) == f"the topology cannot be built: {name}.py:4 raised OSError: no licence"


@pytest.mark.parametrize("lines", ["", "import json\n\n"])
def test_a_file_that_is_not_python(tmp_path: Path, lines: str) -> None:
    name = module(tmp_path, f"{lines}x = = 1\n")
    outer = module(tmp_path, f"import {name}\n")
    number = lines.count("\n") + 1
    for scheme in (name, outer):
        error = refusal(config_of(f"{scheme}:topology"), tmp_path)
        assert str(error) == f"the topology cannot be built: {name}.py:{number} raised SyntaxError: invalid syntax"


def test_a_failed_import_in_a_user_module_is_named_with_its_line(tmp_path: Path) -> None:
    """hive reports that the module cannot be imported; the line shows which import failed."""
    name = module(tmp_path, "x = 1\nimport no_such_package\n")
    error = refusal(config_of(f"{name}:topology"), tmp_path)
    cause = "ModuleNotFoundError: No module named 'no_such_package'"
    assert str(error) == f"the topology cannot be built: {name}.py:2 raised {cause}"


# --- networks


def test_a_network_is_a_network(tmp_path: Path) -> None:
    name = module(tmp_path, "def network(spaces):\n    return spaces.nothing\n\nraises = lambda: None\n")
    error = refusal(config_of(network=f"{name}:network"), tmp_path)
    assert type(error) is NetworkError
    assert str(error).startswith(f"the network cannot be built: {name}.py:2 raised AttributeError: ")
    error = refusal(config_of(network=f"{name}:raises"), tmp_path)
    assert type(error) is NetworkError
    assert str(error).startswith(f"the network cannot be built: `{name}:raises` raised TypeError: <lambda>() takes 0 ")


def test_an_extractor_is_named_with_what_it_is_given(tmp_path: Path) -> None:
    """By its line where its code raises: the constructor, or the first call."""
    body = "import torch\n\nclass First(torch.nn.Module):\n"
    texts = {
        "    def __init__(self, spaces):\n        raise KeyError('x')\n": "5 raised KeyError: 'x'",
        "    def __init__(self, spaces):\n        super().__init__()\n\n    def forward(self, seen):\n"
        "        return seen.missing\n": "8 raised AttributeError: ",
    }
    for text, expected in texts.items():
        name = module(tmp_path, body + text)
        error = refusal(config_of(network=f"{name}:First", key="extractor"), tmp_path)
        assert type(error) is NetworkError
        assert str(error).startswith(f"the extractor `{name}:First` cannot be built: {name}.py:{expected}")
        assert str(error).endswith("; it maps observation float32 [N, 4] to features float32 [N, F]")


def test_a_network_that_cannot_be_imported(tmp_path: Path) -> None:
    for text, kind in (("raise KeyError('x')", "KeyError: 'x'"), ("import no_such", "ModuleNotFoundError: ")):
        name = module(tmp_path, f"\n{text}\n")
        error = refusal(config_of(network=f"{name}:network"), tmp_path)
        assert type(error) is NetworkError
        assert str(error).startswith(f"the network cannot be built: {name}.py:2 raised {kind}")


# --- errors that stay unchanged


def test_errors_of_hive_stay_unchanged(tmp_path: Path) -> None:
    name = module(tmp_path, "import hive\n\ndef topology(config, directory):\n    return hive.Topology()['x']\n")
    error = refusal(config_of(f"{name}:topology"), tmp_path)
    assert str(error) == "no group `x` in this topology"
    error = refusal(config_of("no_such_module:topology"), tmp_path)
    assert str(error).startswith("the scheme `no_such_module:topology` cannot be loaded: ")
    assert "package.module:function" in error.hint


def test_errors_of_custom_environments_stay_unchanged(tmp_path: Path) -> None:
    name = module(tmp_path, "import no_such_simulator\n")
    error = refusal(load_config("mine.toml", text=f'env.id = "{name}:Robot"\n'), tmp_path)
    assert type(error) is EnvironmentMissing
    assert str(error) == f"`{name}:Robot` needs the module `no_such_simulator`, which is not installed"


def test_bugs_of_hive_stay_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a library that hive called has raised."""
    config = config_of()
    broken: Any = dataclasses.replace(config, env=None)
    with pytest.raises(AttributeError):
        build(broken, tmp_path)
    monkeypatch.setattr(torch.nn.Linear, "reset_parameters", torch.zeros(2).view)
    with pytest.raises(TypeError):
        build(config, tmp_path)


def test_more_weights_than_can_be_counted_are_too_many(tmp_path: Path) -> None:
    config = config_of()
    wide = dataclasses.replace(config, network=dataclasses.replace(config.network, middleware=(2**60,)))
    with pytest.raises(MemoryShort, match=r"large in it: network.middleware = \[1_152"):
        build(wide, tmp_path)


def test_a_valid_topology_is_built(tmp_path: Path) -> None:
    name = module(tmp_path, "import hive\n\ndef topology(config, directory):\n    return hive.Topology()\n")
    assert type(build(config_of(f"{name}:topology"), tmp_path)) is Topology
    assert type(load(str(run_of(tmp_path, f"{name}:topology").path))) is Topology


# --- the report


def test_a_run_keeps_the_traceback(tmp_path: Path) -> None:
    name = module(tmp_path, "def topology(config, directory):\n    return {}['x']\n")
    run = run_of(tmp_path, f"{name}:topology")
    for number in (1, 2):
        report = run.crash_file("topology", number)
        with pytest.raises(TopologyError) as caught:
            load(str(run.path))
        assert str(caught.value) == f"the topology cannot be built: {name}.py:2 raised KeyError: 'x'"
        assert caught.value.hint == f"the traceback is in {report}"
        first, *rest = report.read_text().splitlines()
        assert first == f"topology failed: {caught.value}"
        assert "    return {}['x']" in rest
        assert rest[-1] == "KeyError: 'x'"


def test_errors_of_hive_leave_no_report(tmp_path: Path) -> None:
    run = run_of(tmp_path, "no_such_module:topology")
    with pytest.raises(TopologyError, match="cannot be loaded"):
        load(str(run.path))
    assert list(run.crashes.iterdir()) == []


def test_the_error_is_raised_even_if_no_report_can_be_written(tmp_path: Path) -> None:
    run = run_of(tmp_path, f"{module(tmp_path, 'raise KeyError')}:topology")
    run.crashes.rmdir()
    run.crashes.write_text("in the way")
    with pytest.raises(TopologyError, match=r"(?m)\.py:1 raised KeyError$") as caught:
        load(str(run.path))
    assert caught.value.hint == ""


def test_a_missing_run_directory(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is not a run directory"):
        load(str(tmp_path / "nothing"))


def test_the_keys_of_marked_functions_exist() -> None:
    blueprint_of(build(config_of(), Path("runs")))  # imports the functions that call networks
    marked = {key for keys in references._CALLERS.values() for key in keys}
    assert marked >= {"run.scheme", "run.topology", "network.module", "network.extractor", "network.policy_head"}
    assert all(map(is_key, marked))
