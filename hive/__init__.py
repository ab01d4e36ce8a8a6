"""hive: reinforcement learning on one machine with many processes.

`import hive` is lazy: a name's module is imported when the name is first used (PEP 562), so that commands which need
no torch never load it.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

__version__ = "0.1.0"

if importlib.util.find_spec("hive._native") is None:
    raise ImportError(
        f"the native part of hive is not built: this is the source folder {__path__[0]}; "
        "leave it to use the hive that is installed, or run scripts/build to work on it"
    )

_HOMES = {
    "Actor": "hive.runtime",
    "Config": "hive.config",
    "Handle": "hive.runtime",
    "Inlet": "hive.runtime",
    "Layout": "hive.runtime",
    "Message": "hive.runtime",
    "Outlet": "hive.runtime",
    "Publication": "hive.runtime",
    "Subscription": "hive.runtime",
    "Topology": "hive.runtime",
    "endpoint": "hive.runtime",
    "run": "hive.cli.scripting",
    "train": "hive.cli.scripting",
}
_MODULES = (
    "algorithms",
    "approximation",
    "config",
    "envs",
    "errors",
    "networks",
    "records",
    "runtime",
    "schemes",
    "storage",
    "testing",
    "workers",
)

__all__ = ["__version__", *sorted(_HOMES), *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"hive.{name}")
    raise AttributeError(f"module `hive` has no attribute `{name}`")
