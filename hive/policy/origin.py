"""The config of the run that trained a policy, and the environment that it describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hive.config import Config, load_config
from hive.config.references import give_setup
from hive.envs.wrappers import with_names
from hive.errors import UsageError
from hive.records import Checkpoint, RunDirectory, folder_of_run


def run_of(checkpoint: Checkpoint) -> RunDirectory | None:
    """Return the run of a checkpoint; None if its folder is in the folder of none."""
    if checkpoint.exported is not None:
        return None
    run = RunDirectory(folder_of_run(checkpoint.path.resolve().parent.parent))
    return run if run.resolved_file.exists() else None


def config_of(checkpoint: Checkpoint, run: RunDirectory | None, overrides: Sequence[str] = ()) -> Config:
    """Return the config of a checkpoint's run, or the one in the file of an exported policy.

    Raises ConfigError for overrides, and UsageError without a config.
    """
    if run is not None:
        return load_config(run.resolved_file, overrides)
    file = checkpoint.exported
    if file is None:
        raise UsageError(
            f"{checkpoint.path} is not in the folder of a run, which has the config", hint="load the policy by its run"
        )
    if not file.config and not any(text.startswith("env.id=") for text in overrides):
        raise UsageError(
            f"`{file.path}` does not say how its environment is made: hive {file.facts.get('hive_version', '')} "
            "wrote no config into it",
            hint="export the policy again, or set what [env] of its run had: --set env.id=ID",
        )
    return load_config(file.path.name, overrides, text=file.config)


def environment_of(config: Config, render_mode: str | None = None) -> Any:
    """Return a new environment as evaluations of a run have it: its options and wrappers, in its single form."""
    from hive.envs import recipe_of  # here: they import gymnasium, which a policy alone does not need
    from hive.envs.make import make_any

    give_setup(config.run.setup)
    return make_any(recipe_of(config.evaluation_env), render_mode)


def environment_text(config: Config) -> str:
    """Return the id of the environment, with its wrappers."""
    env = config.evaluation_env
    return with_names(f"`{env.id}`", env.wrappers)
