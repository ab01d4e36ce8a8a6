"""Limits that code without a config needs, too."""

from __future__ import annotations

START_LIMIT_S = 300.0  # simulators start in minutes: they load scenes, compile shaders, wait for a license
