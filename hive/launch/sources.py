"""Checkpoints of runs and files of `hive export` as commands and Python name them, with the policies and the config.

`latest`, `best` and `all` select checkpoints of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hive.errors import UsageError
from hive.launch.control import print_to_stderr
from hive.launch.select_run import chosen_run
from hive.launch.suggest import listed
from hive.paths import user_path
from hive.records import (
    Checkpoint,
    RunDirectory,
    best_of,
    checkpoint_at,
    held,
    list_checkpoints,
    policies_of,
    run_state,
)
from hive.records.checkpoints.folders import checkpoint_folders, newest_intact
from hive.records.checkpoints.policy_files import PolicyFile, is_policy_file
from hive.records.program import enter

if TYPE_CHECKING:
    from hive.config import Config
    from hive.policy.loaded import Policy
    from hive.training import Evaluation


@dataclass(frozen=True)
class Source:
    """What plays: a checkpoint of `run`, or the policy in a file, `run` None."""

    checkpoint: Checkpoint
    run: RunDirectory | None = None

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Source | None:
        """Return a checkpoint with its run; None if it lies in the folder of none."""
        from hive.policy.origin import run_of

        run = run_of(checkpoint)
        return cls(checkpoint, run) if run is not None or checkpoint.exported is not None else None

    @property
    def name(self) -> str:
        """The name of the run, or of the file."""
        return self.run.name if self.run else self.checkpoint.path.name

    @property
    def checkpoint_name(self) -> str:
        """The checkpoint: "001563", or "best/001563" for the best policy."""
        if self.run is None:
            return f"{self.checkpoint.update:06d}"
        path = self.checkpoint.path
        return f"best/{path.name}" if path.parent == self.run.best else path.name

    @property
    def label(self) -> str:
        """Both."""
        return f"{self.name} {self.checkpoint_name}"

    def config(self, overrides: list[str]) -> Config:
        """Return the config of the run, or the one in the file. Raises ConfigError, and UsageError without one."""
        from hive.policy.origin import config_of

        return config_of(self.checkpoint, self.run, overrides)


def sources(text: str | None, which: str) -> list[Source]:
    """Return what plays: checkpoints of a run, by its name, or the policy of a file, FILE.safetensors.

    text: None for the default run. which: as for `checkpoints_of`. Checkpoints have their weights in memory, so that a
    live run may remove the files. Raises the errors of `chosen_run`, `checkpoints_of` and `read_policy_file`.
    """
    if text is not None and is_policy_file(text) and not user_path(text).is_dir():
        if which != "latest":
            raise UsageError(f"`{text}` holds one policy", hint="leave out --which")
        return [Source(Checkpoint.of_file(user_path(text)))]
    run = chosen_run(text)
    return [Source(checkpoint, run) for checkpoint in held(lambda: checkpoints_of(run, which))]


def enter_run(source: Source) -> None:
    """Give users' code what the program of the run gave it: for commands, whose own arguments are none of it."""
    if source.run is not None:
        enter(source.run)


def checkpoints_of(run: RunDirectory, which: str) -> list[Checkpoint]:
    """Return a run's checkpoints that `which` selects ("latest", "best", "all" or a number), sorted by update.

    Warns if a newer one, or another of all, is damaged. Raises RecordError if it is damaged itself, or if there is no
    best policy, and UsageError if there is no such checkpoint.
    """
    if which == "best":
        return [best_of(run)]
    folders = checkpoint_folders(run.checkpoints)
    if not folders:
        raise UsageError(f"{run.name} has no checkpoint", hint=_hint_without_checkpoint(run))
    if which == "all":
        damaged: list[str] = []
        there = list_checkpoints(run.checkpoints, verify=True, refused=damaged.append)
        for cause in damaged if there else ():
            _warn(f"a checkpoint is left out: {cause}")
        if there:
            return there
    if which in ("latest", "all"):
        return [newest_intact(run.checkpoints, _warn)]
    if named := [folder for folder in folders if folder.name == which.zfill(6)]:
        return [checkpoint_at(str(named[0]))]
    names = listed(folder.name for folder in folders)
    raise UsageError(f"{run.name} has no checkpoint `{which}`", hint=f"use latest, best, all, or one of {names}")


def _warn(text: str) -> None:
    print_to_stderr(f"warning: {text}")


def _hint_without_checkpoint(run: RunDirectory) -> str:
    if run_state(run) == "running":
        return f"`hive save {run.name}` writes one now"
    return "it ended before the first one; checkpoint.every says how often one is written"


def import_before_torch(source: Source, overrides: list[str]) -> None:
    """Import the environment that is going to be drawn in this process, if in runs it has processes without torch.

    Its module may be one that must be imported before torch. Raises the errors of `Source.config` and of the import.
    """
    env = source.config(overrides).evaluation_env
    if env.processes != "0" and not env.is_program:
        from hive.envs import recipe_of
        from hive.envs.make import import_modules

        import_modules(recipe_of(env))


def policy_and_config(source: Source, overrides: list[str]) -> tuple[Policy, Config]:
    """Return a policy and the config of its run. It executes the config's user code, as `hive resume` does.

    Raises RecordError, ConfigError, and UsageError for a file without a config.
    """
    from hive.policy.loaded import policy_of

    config = source.config(overrides)
    return policy_of(source.checkpoint, own_code=True), config


def policies_and_config(source: Source, overrides: list[str]) -> tuple[dict[str, tuple[Policy, Checkpoint]], Config]:
    """Return the policies of a run by name, each with its checkpoint, and the config; as `policy_and_config`.

    The checkpoint of the source is that of the first policy; of each other one, the newest that is not newer. The name
    is "" in a run whose environment has one agent. A policy that `overrides` make scripted, or give other weights, is
    left out. Raises UsageError if none is left, and for a file whose config has other policies too.
    """
    from hive.policy.loaded import policy_of

    run, checkpoint = source.run, source.checkpoint
    first, config = policy_and_config(source, overrides)
    if run is None:
        assert checkpoint.exported is not None
        _check_alone(checkpoint.exported, config)
        return {checkpoint.exported.name: (first, checkpoint)}, config
    found = {}
    for name, folder in policies_of(run).items() or {"": run}.items():
        row = config.policies.get(name)
        if row is not None and not row.learns:
            continue
        at = checkpoint if folder.path == run.path else _beside(folder, checkpoint)
        found[name] = first if at is checkpoint else policy_of(at, own_code=True), at
    if not found:
        raise UsageError(f"every policy of {run.name} is scripted or has other weights, so none is left to measure")
    return found, config


def _check_alone(file: PolicyFile, config: Config) -> None:
    """Raise UsageError, which names them, if the config has other policies that learn than the one in the file."""
    learning = [name for name, row in config.policies.items() if row.learns]
    if others := [name for name in learning if name != file.name]:
        raise UsageError(
            f"`{file.path}` holds the policy `{file.name}`, and {listed(f'`{name}`' for name in others)} play too",
            hint=f"give them: --set policies.{others[0]}.weights=FILE.safetensors, or play the run",
        )
    if file.name and file.name not in learning:
        raise UsageError(f"the policy `{file.name}` is scripted or has other weights, so none is left to measure")


def players_and_config(source: Source, overrides: list[str]) -> tuple[Policy | dict[str, Policy], Config]:
    """Return what `record` and `show` play: the policy of a run, or its policies by name; as `policies_and_config`."""
    found, config = policies_and_config(source, overrides)
    policies = {name: policy for name, (policy, _) in found.items()}
    return policies.get("", policies), config


def _beside(folder: RunDirectory, checkpoint: Checkpoint) -> Checkpoint:
    """Return the newest checkpoint of a policy that has no more steps than `checkpoint`. Raises UsageError."""
    steps = int(checkpoint.state.get("env_steps", 0))
    damaged: list[str] = []
    there = list_checkpoints(folder.checkpoints, verify=True, refused=damaged.append)
    older = [one for one in there if int(one.state.get("env_steps", 0)) <= steps]
    if damaged and older[-1:] == there[-1:]:
        _warn(f"an older checkpoint of the policy {folder.name} may be taken: {damaged[-1]}")
    if not older:
        raise UsageError(f"the policy `{folder.name}` has no checkpoint of {steps:,} steps or less")
    return older[-1]


def cut_note(whole: Evaluation, config: Config, max_steps: int | None) -> str:
    """Return a clause about episodes that were cut; "" if none was."""
    if not whole.cut:
        return ""
    limit = config.evaluation.max_steps if max_steps is None else max_steps
    return f"{whole.cut} of {whole.episodes} episodes did not end within {limit:,} steps and count up to there"
