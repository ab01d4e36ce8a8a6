"""hive: reinforcement learning on one machine with many processes.

`import hive` is lazy: the module of a name is imported when the name is first used (PEP 562), so that commands that do
not need torch never load it.

The distribution that contains this package is `hive-trainer`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hive.distribution import warn_of_strangers as _warn_of_strangers

__version__ = "0.1.0"

__all__ = [
    "Actor",
    "Board",
    "Config",
    "Handle",
    "Inlet",
    "Layout",
    "Message",
    "Messages",
    "Outlet",
    "Publication",
    "Result",
    "Shape",
    "Shared",
    "SharedIn",
    "SharedOut",
    "SlotInlet",
    "SlotOutlet",
    "Slots",
    "Subscription",
    "Topology",
    "Zmq",
    "__version__",
    "algorithms",
    "approximation",
    "config",
    "endpoint",
    "envs",
    "errors",
    "export",
    "facades",
    "load",
    "losses",
    "networks",
    "records",
    "run",
    "run_async",
    "runtime",
    "schemes",
    "storage",
    "testing",
    "train",
    "train_async",
    "workers",
]
# Public name -> the module that defines it. Names in `__all__` that are missing here are packages.
_HOMES = {
    "Actor": "hive.runtime",
    "Board": "hive.runtime",
    "Config": "hive.config",
    "Handle": "hive.runtime",
    "Inlet": "hive.runtime",
    "Layout": "hive.runtime",
    "Message": "hive.runtime",
    "Messages": "hive.runtime",
    "Outlet": "hive.runtime",
    "Publication": "hive.runtime",
    "Result": "hive.cli.result",
    "Shape": "hive.runtime",
    "Shared": "hive.runtime",
    "SharedIn": "hive.runtime",
    "SharedOut": "hive.runtime",
    "SlotInlet": "hive.runtime",
    "SlotOutlet": "hive.runtime",
    "Slots": "hive.runtime",
    "Subscription": "hive.runtime",
    "Topology": "hive.runtime",
    "Zmq": "hive.runtime",
    "endpoint": "hive.runtime",
    "export": "hive.algorithms",
    "load": "hive.algorithms",
    "run": "hive.cli.scripting",
    "run_async": "hive.cli.scripting",
    "train": "hive.cli.scripting",
    "train_async": "hive.cli.scripting",
}

if TYPE_CHECKING:  # the names that are lazy below, for type checkers and editors
    from hive import (
        algorithms,
        approximation,
        config,
        envs,
        errors,
        facades,
        losses,
        networks,
        records,
        runtime,
        schemes,
        storage,
        testing,
        workers,
    )
    from hive.algorithms import export, load
    from hive.cli.result import Result
    from hive.cli.scripting import run, run_async, train, train_async
    from hive.config import Config
    from hive.runtime import (
        Actor,
        Board,
        Handle,
        Inlet,
        Layout,
        Message,
        Messages,
        Outlet,
        Publication,
        Shape,
        Shared,
        SharedIn,
        SharedOut,
        SlotInlet,
        SlotOutlet,
        Slots,
        Subscription,
        Topology,
        Zmq,
        endpoint,
    )
else:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        if name in __all__:
            return importlib.import_module(f"hive.{name}")
        if name == "_native":  # `from hive import _native` without a build: `load_native` raises a helpful error
            from hive.native import load_native

            return load_native()
        raise AttributeError(f"module `hive` has no attribute `{name}`")


_warn_of_strangers()
