"""The oldest versions of other packages that hive works with, and the check of those that are installed.

Another package may have installed an older one beside hive. That is found by the names of folders on the Python path,
in a millisecond: `importlib.metadata` would take 30.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable

from hive.errors import PlatformError

NEEDED = {
    "torch": "2.8",
    "numpy": "1.26",
    "pyzmq": "26",
    "msgpack": "1.0.8",
    "uvloop": "0.19",
    "gymnasium": "1.0",
    "safetensors": "0.4.5",
    "psutil": "5.9",
    "textual": "8",
    "argcomplete": "3.5",
    "nvidia-ml-py": "12",
}
"""Package -> its oldest version that hive works with: the dependencies in pyproject.toml."""

OF_EXTRAS = {
    "tensorboardX": "2.6",
    "wandb": "0.19",
    "starlette": "0.49.1",
    "uvicorn": "0.30",
    "ale-py": "0.12",
    "opencv-python-headless": "4.8",
    "minigrid": "3",
    "pettingzoo": "1.24",
    "mpe2": "1.0",
    "onnx": "1.16",
    "onnxruntime": "1.18",
    "imageio-ffmpeg": "0.5",
    "pillow": "10",
    "matplotlib": "3.8",
    "pyyaml": "6",
    "ray": "2.60",
}
"""The same of the extras."""

OLDEST = {**NEEDED, **OF_EXTRAS}
IN_A_RUN = ("torch", "numpy", "pyzmq", "msgpack", "uvloop", "gymnasium", "safetensors", "psutil")  # every run uses them
METADATA = re.compile(r"(.+?)-(\d[^-]*)(?:-py[\d.]+)?\.(?:dist|egg)-info$")  # NAME-VERSION.dist-info


def is_old(name: str, version: str) -> bool:
    """Return whether a version of a package is older than hive needs. A preview of the oldest is not."""
    return _release(version) < _release(OLDEST[name])


def check_versions(names: Iterable[str] = IN_A_RUN) -> None:
    """Raise PlatformError if one of these packages is installed in a version that is too old for hive."""
    found = _installed()
    for name in names:
        if (version := found.get(_normal(name), "")) and is_old(name, version):
            oldest = f"{name}>={OLDEST[name]}"
            raise PlatformError(
                f"{name} {version} is installed, and hive needs {oldest}",
                hint=f"`pip install '{oldest}'`; if another package needs the old one, give each a virtual environment",
            )


def _installed() -> dict[str, str]:
    """Return the installed packages, by their normal names, and their versions, as folders on the Python path say.

    Of two versions in one folder, one of which was not removed well, it is the newer one.
    """
    found: dict[str, str] = {}
    for folder in reversed(sys.path):
        try:
            names = os.listdir(folder or ".")
        except OSError:  # an archive, or nothing
            continue
        matches = [match for match in map(METADATA.match, names) if match]
        found |= {_normal(match[1]): match[2] for match in sorted(matches, key=lambda match: _release(match[2]))}
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _release(version: str) -> list[int]:
    """Return the numbers of a release, without zeros at their end and what follows them."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [*map(int, leading[0].split("."))] if leading else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
