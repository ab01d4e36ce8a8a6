"""Finds, builds and checks environments, and steps several at once. Gymnasium is imported when one is built.

A module is imported when one of its names is first used: a process of an environment needs few of them.
"""

from hive.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
