"""The package exports the classes, and nothing that is not public in its module."""

from __future__ import annotations

import importlib
import pkgutil

import hive.approximation as approximation


def test_what_the_package_exports_is_public_in_its_module() -> None:
    exported = set()
    for module in pkgutil.iter_modules(approximation.__path__):
        exported.update(importlib.import_module(f"hive.approximation.{module.name}").__all__)
    assert set(approximation.__all__) <= exported
    assert all(hasattr(approximation, name) for name in approximation.__all__)
