"""Finds, builds and checks environments, and steps several at once. Gymnasium is imported when one is built."""

from __future__ import annotations

from hive.envs.configured import (
    can_be_helped,
    check_curriculum,
    check_each,
    check_evaluation,
    configured_spec,
    configured_vector,
    recipe_of,
)
from hive.envs.context import EnvContext
from hive.envs.examination import Examination, examine, statistics_text
from hive.envs.make import describe, limit_advice, make_compiled, make_environment, preset_for
from hive.envs.processes.making import Household, process_vector
from hive.envs.processes.process_vector import ProcessVector, Watcher
from hive.envs.processes.supervised import Failure
from hive.envs.recipe import Recipe
from hive.envs.repeatability import unrepeatable
from hive.envs.spaces.actions import (
    ActionSpec,
    Box,
    Composite,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    action_converter,
    choices_of,
    each_action,
)
from hive.envs.spaces.by_spaces import agents_text, policies_by_spaces, settings_by_spaces, spaces_text
from hive.envs.spaces.differences import spec_difference
from hive.envs.spaces.observation import ArraySpec, ObservationPart, ObservationSpec
from hive.envs.spaces.spec import EnvironmentSpec
from hive.envs.statistics import Watched
from hive.envs.vectors.helped_vector import WORTH_S, HelpedVector, Helping
from hive.envs.vectors.rows import FinalObservations, StepRow
from hive.envs.vectors.seeding import runs_python, seed_globals
from hive.envs.vectors.vector import VectorEnvironment, make_vector
from hive.envs.wrappers import needed_wrappers
from hive.native import include_folder

__all__ = [
    "WORTH_S",
    "ActionSpec",
    "ArraySpec",
    "Box",
    "Composite",
    "Discrete",
    "EnvContext",
    "EnvironmentSpec",
    "Examination",
    "Failure",
    "FinalObservations",
    "HelpedVector",
    "Helping",
    "Household",
    "MultiBinary",
    "MultiDiscrete",
    "ObservationPart",
    "ObservationSpec",
    "ProcessVector",
    "Recipe",
    "StepRow",
    "VectorEnvironment",
    "Watched",
    "Watcher",
    "action_converter",
    "agents_text",
    "can_be_helped",
    "check_curriculum",
    "check_each",
    "check_evaluation",
    "choices_of",
    "configured_spec",
    "configured_vector",
    "describe",
    "each_action",
    "examine",
    "include_folder",
    "limit_advice",
    "make_compiled",
    "make_environment",
    "make_vector",
    "needed_wrappers",
    "policies_by_spaces",
    "preset_for",
    "process_vector",
    "recipe_of",
    "runs_python",
    "seed_globals",
    "settings_by_spaces",
    "spaces_text",
    "spec_difference",
    "statistics_text",
    "unrepeatable",
]
