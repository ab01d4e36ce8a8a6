"""Makes `fake_environments` importable, as a user's module is: `fake_environments:Counting` is then an id."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
