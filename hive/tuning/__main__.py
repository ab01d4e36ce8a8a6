"""Measures the costs of a config in a process of its own: `python -m hive.tuning FOLDER`.

FOLDER has the config, and receives the costs as JSON, or the error of the environment or the network.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

from hive.config import load_config
from hive.errors import HiveError
from hive.records import write_json
from hive.runtime.topology.building import check_memory
from hive.tuning.costs import COSTS_FILE, GIVEN_FILE


def main() -> None:
    """Measure, write the result, and exit with code 0; after an error of hive, with the error in the file."""
    folder = Path(sys.argv[1])
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # for custom "package.module:Class", as the command `hive` does
    from hive.tuning.measure import measure  # imports torch

    try:
        config = load_config(folder / GIVEN_FILE)
        check_memory(config, folder)
        document = asdict(measure(config))
    except HiveError as error:
        document = {"error": str(error), "hint": error.hint, "exit_code": error.exit_code}
    write_json(folder / COSTS_FILE, document)


if __name__ == "__main__":
    main()
