"""The blueprint: what follows from a config and an environment, and how it says what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small_trainer import config_of

from hive.config import Config
from hive.envs import Box, Discrete, MultiDiscrete
from hive.errors import EnvironmentMissing, NetworkError
from hive.networks import Categorical, DiagonalGaussian, MultiCategorical, NetworkPerHead, build_network
from hive.storage import Purpose, stream_seed
from hive.workers import Blueprint, Learner
from hive.workers.blueprint import load_module, network_parameters


def config(kind: str = "Drift", **values: Any) -> Config:
    return config_of(f"small_environments:{kind}", **values)


def weights(blueprint: Blueprint) -> bytes:
    """Of a network it makes now."""
    return b"".join(parameter.detach().numpy().tobytes() for parameter in blueprint.network().parameters())


@pytest.mark.parametrize(
    ("actions", "kind", "distribution"),
    [
        ("discrete", Discrete, Categorical(2)),
        ("multi-discrete", MultiDiscrete, MultiCategorical((2, 3))),
        ("box", Box, DiagonalGaussian((2,))),
    ],
)
def test_spaces_are_those_of_the_environment(actions: str, kind: type, distribution: Any) -> None:
    blueprint = Blueprint(config(env__options=f'{{actions="{actions}"}}'))
    assert isinstance(blueprint.environment.action, kind)
    assert blueprint.spaces.action is blueprint.environment.action
    assert blueprint.distribution == distribution
    assert blueprint.spaces.observations["observation"].shape == (3,)
    outputs = blueprint.network()(torch.zeros(5, 3))
    assert [tuple(output.shape) for output in outputs[:2]] == [(5, distribution.width), (5,)]


def test_every_network_begins_with_the_weights_of_the_run() -> None:
    blueprint, again, other = Blueprint(config()), Blueprint(config()), Blueprint(config(run__seed=2))
    assert weights(blueprint) == weights(blueprint) == weights(again)
    assert weights(blueprint) != weights(other)
    block = np.zeros(blueprint.flat.block_bytes, np.uint8)
    blueprint.flat.initialize_into(block)
    held = b"".join(array.tobytes() for array in blueprint.flat.arrays(block).values())
    assert held == weights(blueprint)


def test_initial_weights_are_drawn_from_their_own_stream() -> None:
    blueprint = Blueprint(config(run__seed=9))
    generator = torch.Generator().manual_seed(stream_seed(9, Purpose.initial_weights, 0, 0))
    network = build_network(blueprint.parameters, blueprint.spaces, generator)
    expected = b"".join(parameter.detach().numpy().tobytes() for parameter in network.parameters())
    assert weights(blueprint) == expected


def test_networks_share_nothing() -> None:
    blueprint = Blueprint(config())
    before = weights(blueprint)
    with torch.no_grad():
        for parameter in blueprint.network().parameters():
            parameter.zero_()
    assert weights(blueprint) == before


def test_building_one_draws_from_no_global_generator() -> None:
    torch.manual_seed(11)
    expected = torch.rand(1)
    torch.manual_seed(11)
    Blueprint(config())
    assert torch.rand(1) == expected


def test_layouts_have_room_for_what_the_config_says() -> None:
    blueprint = Blueprint(config("Picture", collection__envs=3, collection__rollout=5))
    fields = blueprint.rollout_layout.fields
    assert fields["observations"] == (np.uint8, (6, 3, 36, 36, 1))
    assert fields["actions"] == (np.int64, (5, 3))
    assert fields["final_observations"] == (np.uint8, (6, 36, 36, 1))
    gradient = blueprint.gradient_layout(4).fields
    assert gradient["gradient"][1] == (blueprint.flat.parameter_elements,)
    assert gradient["mask"][1] == (len(blueprint.flat.parameters),)
    assert gradient["episode_returns"][1] == (4 * 5 * 3,)
    assert gradient["statistics"][1] == (len(blueprint.algorithm().statistics),)


def test_a_declared_limit_makes_room_for_its_finals() -> None:
    blueprint = Blueprint(config_of("CartPole-v1", collection__rollout=1200))
    assert blueprint.environment.max_episode_steps == 500
    assert blueprint.rollout_layout.fields["final_observations"][1] == (2 * (3 + 1), 4)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_ledger_is_that_of_the_learner(optimizer: str) -> None:
    made = config(algorithm__optimizer=optimizer)
    blueprint = Blueprint(made)
    learner = Learner(made.algorithm, blueprint.flat.parameter_elements, made.run.steps)
    assert blueprint.ledger_bytes == learner.layout.bytes


def test_layers_are_those_of_the_config() -> None:
    blueprint = Blueprint(config(network__middleware=[5, 7], network__activation="relu"))
    shapes = [shape for shape in blueprint.flat.shapes if len(shape) == 2]
    assert shapes == [(5, 3), (7, 5), (3, 7)]
    assert any(isinstance(module, torch.nn.ReLU) for module in blueprint.network().modules())


def test_separate_networks() -> None:
    blueprint = Blueprint(config(network__middleware=[5], network__separate_networks="true"))
    assert isinstance(blueprint.network(), NetworkPerHead)
    assert [shape for shape in blueprint.flat.shapes if len(shape) == 2] == [(5, 3), (2, 5), (5, 3), (1, 5)]


def test_a_network_of_your_own() -> None:
    from small_environments import Dropping

    blueprint = Blueprint(config(network__module='"small_environments:Dropping"'))
    assert isinstance(blueprint.network(), Dropping)
    assert weights(blueprint) == weights(blueprint)


@pytest.mark.parametrize(
    ("reference", "cause"),
    [
        ("no_such_package.module:Net", "No module named 'no_such_package'"),
        ("small_environments:Nothing", "no attribute 'Nothing'"),
    ],
)
def test_a_module_that_is_not_there(reference: str, cause: str) -> None:
    with pytest.raises(NetworkError, match=cause) as caught:
        Blueprint(config(network__module=f'"{reference}"'))
    assert f"`{reference}`" in str(caught.value)
    assert "package.module:Class" in caught.value.hint


def test_a_module_that_breaks_the_contract() -> None:
    with pytest.raises(NetworkError, match="`Silent` returns Tensor, expected a tuple") as caught:
        Blueprint(config("OneState", network__module='"small_environments:Silent"'))
    assert "policy [N, 2]" in caught.value.hint


def test_load_module_finds_what_it_names() -> None:
    from small_environments import Silent

    assert load_module("small_environments:Silent") is Silent


def test_an_environment_that_is_not_there() -> None:
    with pytest.raises(EnvironmentMissing, match="no environment `CartPol-v1`"):
        Blueprint(config_of("CartPol-v1"))


def test_network_parameters_are_those_of_coach() -> None:
    parameters = network_parameters(config(network__middleware=[4], algorithm__learning_rate=0.125))
    assert parameters.middleware_parameters is not None
    assert (parameters.middleware_parameters.widths, parameters.middleware_parameters.activation) == (
        [4],
        "tanh",
    )
    assert list(parameters.input_embedders_parameters) == ["observation"]
    assert parameters.learning_rate == 0.125
    assert parameters.module is None


def test_the_vector_has_the_environments_of_one_collector() -> None:
    vector = Blueprint(config(collection__envs=5)).vector()
    assert vector.count == 5
    vector.close()
