"""Everything public in a module is public in the package, and the specs of environments fit its protocols."""

from __future__ import annotations

import importlib
import pkgutil

from hive import networks
from hive.envs import spec
from hive.networks.spaces import BoxAction, DiscreteAction, MultiDiscreteAction


def test_the_package_exports_what_its_modules_export() -> None:
    exported = set()
    for module in pkgutil.iter_modules(networks.__path__):
        names = importlib.import_module(f"hive.networks.{module.name}").__all__
        assert names == sorted(names), module.name
        exported.update(names)
    assert set(networks.__all__) == exported
    assert all(hasattr(networks, name) for name in exported)


def test_specs_of_environments_are_actions() -> None:
    assert isinstance(spec.Discrete(2), DiscreteAction)
    assert isinstance(spec.MultiDiscrete((2,)), MultiDiscreteAction)
    assert isinstance(spec.Box((1,), (0.0,), (1.0,)), BoxAction)
