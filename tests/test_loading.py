"""Limit the modules that `import hive` and each command load: a view must not wait for torch."""

from __future__ import annotations

import subprocess
import sys

MODULES_LOADED = "print(*sys.modules, sep='\\n')"


def lines_of(code: str) -> set[str]:
    """Return the lines that `code` prints in a separate Python process."""
    command = [sys.executable, "-P", "-c", code]  # -P: use the installed hive, whatever the current folder
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_hive_loads_next_to_nothing_of_it() -> None:
    loaded = lines_of(f"import sys, hive; {MODULES_LOADED}")
    assert {name for name in loaded if name.startswith("hive.")} == {"hive.distribution", "hive.lazy"}
    assert not {"numpy", "pathlib", "importlib.metadata"} & loaded


def test_commands_and_views_do_not_load_torch() -> None:
    views = "hive.cli, hive.config, hive.records, hive.monitor, hive.runtime, hive.testing"
    loaded = lines_of(f"import sys, {views}; hive.cli.parser(); {MODULES_LOADED}")
    assert "hive.config" in loaded
    assert not {"torch", "textual", "rich"} & loaded


def test_commands_that_list_runs_load_few_modules() -> None:
    """Imports are half of the time of such a command, and `hive ps` must answer in 0.3 s."""
    loaded = lines_of(f"import sys, hive.cli; hive.cli.parser('ps'); {MODULES_LOADED}")
    assert {"hive.cli.ps", "hive.runtime.run.control"} <= loaded
    heavy = {
        "torch",
        "numpy",
        "asyncio",
        "zmq",
        "psutil",
        "hive.config",
        "hive.monitor",
        "hive.launch.foreground",
        "hive._native",
    }
    assert not heavy & loaded


def test_the_help_does_not_load_torch() -> None:
    code = f"""
import runpy, sys
sys.argv = ["hive", "--help"]
try:
    runpy.run_module("hive", run_name="__main__")
except SystemExit as end:
    assert not end.code
{MODULES_LOADED}
"""
    loaded = lines_of(code)
    assert "hive.cli" in loaded
    assert "torch" not in loaded
