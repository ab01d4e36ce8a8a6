"""The package exports only what users write with, and the specs of environments fit its protocols."""

from __future__ import annotations

import importlib
import pkgutil
import re

from hive import networks
from hive.envs.spaces import actions
from hive.networks.build.spaces import BoxAction, DiscreteAction, MultiDiscreteAction

MAX_NAMES = 45


def test_the_package_exports_what_users_write_with() -> None:
    """Its docstring, which is for users, explains each name. Every other name stays with its module."""
    public = set()
    for module in pkgutil.walk_packages(networks.__path__, "hive.networks."):
        public.update(vars(importlib.import_module(module.name)))
    assert set(networks.__all__) <= public
    assert len(networks.__all__) <= MAX_NAMES
    text = networks.__doc__ or ""
    assert not [name for name in networks.__all__ if not re.search(rf"\b{name}\b", text)]


def test_specs_of_environments_are_actions() -> None:
    assert isinstance(actions.Discrete(2), DiscreteAction)
    assert isinstance(actions.MultiDiscrete((2,)), MultiDiscreteAction)
    assert isinstance(actions.Box((1,), (0.0,), (1.0,)), BoxAction)
