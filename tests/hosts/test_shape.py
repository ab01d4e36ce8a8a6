"""What two machines must agree on before rollouts of one are learned from on the other."""

from __future__ import annotations

import dataclasses

from hive.config import load_config
from hive.envs import configured_spec
from hive.hosts.shape import shape_of
from hive.training import Blueprint


def test_other_bounds_are_a_difference() -> None:
    config = load_config("run.toml", text='[env]\nid = "Pendulum-v1"\n')
    spec = configured_spec(config.env)
    seen = dataclasses.replace(spec.observation, low=(0.0,), high=(2.0,))
    changed = {
        "input 0": dataclasses.replace(spec, observation=seen),
        "action": dataclasses.replace(spec, action=dataclasses.replace(spec.action, scaled=False)),
    }
    ours = shape_of(Blueprint(config, None, spec)).split("\n")
    assert shape_of(Blueprint(config, None, configured_spec(config.env))).split("\n") == ours
    for name, other in changed.items():
        theirs = shape_of(Blueprint(config, None, other)).split("\n")
        assert [one for one in ours if one.startswith(name)] != [one for one in theirs if one.startswith(name)]
