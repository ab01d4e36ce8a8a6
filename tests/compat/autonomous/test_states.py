"""States in their three forms, and the axes that a model sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hive.compat.autonomous.states import (
    action_tensor,
    leading_shape,
    masked,
    observation_of,
    over_states,
    with_observation,
)
from hive.errors import NetworkError

ROWS = torch.arange(12.0).reshape(4, 3)
MASK = torch.tensor([1.0, 0.0, 1.0, 1.0])


@dataclass(frozen=True)
class Pair:
    observation: Tensor
    mask: Tensor


class LibraryState(dict[str, Any]):
    """As in autonomous-learning-library: a dict with attributes, whose `update` returns a changed copy."""

    @property
    def observation(self) -> Tensor:
        return self["observation"]

    @property
    def mask(self) -> Any:
        return self.get("mask", 1.0)

    def update(self, name: str, value: Any) -> LibraryState:  # type: ignore[override]
        return LibraryState({**self, name: value})


FORMS = [{"observation": ROWS, "mask": MASK}, Pair(ROWS, MASK), LibraryState(observation=ROWS, mask=MASK)]


@pytest.mark.parametrize("states", FORMS, ids=["mapping", "dataclass", "library"])
def test_every_form_has_observations_mask_and_can_be_given_others(states: Any) -> None:
    assert observation_of(states) is ROWS
    assert leading_shape(states) == (4,)
    assert torch.equal(masked(torch.ones(4, 2), states)[:, 0], MASK)
    changed = with_observation(states, ROWS + 1)
    assert type(changed) is type(states)
    assert torch.equal(observation_of(changed), ROWS + 1)
    assert observation_of(states) is ROWS
    assert torch.equal(masked(torch.ones(4), changed), MASK)


def test_a_tensor_is_states_of_which_none_is_terminal() -> None:
    assert observation_of(ROWS) is ROWS
    assert leading_shape(ROWS) == (4,)
    values = torch.ones(4)
    assert masked(values, ROWS) is values
    assert with_observation(ROWS, values) is values


@pytest.mark.parametrize("leading", [(), (2,), (3, 2)])
def test_a_model_sees_one_batch_axis_and_the_result_has_the_axes_of_the_states(leading: tuple[int, ...]) -> None:
    seen: list[torch.Size] = []

    class Spy(nn.Module):
        def forward(self, observation: Tensor, extra: Tensor) -> Tensor:
            seen.extend((observation.shape, extra.shape))
            return observation.flatten(1)[:, :2] + extra

    states = {"observation": torch.rand(*leading, 2, 5), "mask": torch.ones(leading)}
    extra = torch.rand(*leading, 2)
    result = over_states(Spy(), states, extra)
    count = torch.Size(leading).numel()
    assert seen == [(count, 2, 5), (count, 2)]
    assert torch.equal(result, states["observation"].flatten(-2)[..., :2] + extra)


def test_a_single_library_state_has_a_number_for_mask() -> None:
    state = LibraryState(observation=torch.ones(3))
    assert leading_shape(state) == ()
    assert over_states(nn.Identity(), state).shape == (3,)
    assert torch.equal(masked(torch.ones(3), LibraryState(observation=torch.ones(3), mask=0)), torch.zeros(3))


def test_a_terminal_row_replaces_the_output_of_the_model() -> None:
    values = masked(torch.full((4, 2), 5.0), FORMS[0], torch.tensor([7.0, 8.0]))
    assert values.tolist() == [[5, 5], [7, 8], [5, 5], [5, 5]]


@pytest.mark.parametrize(
    ("states", "cause"),
    [
        (None, "NoneType"),
        ({"image": ROWS}, "dict"),
        ({"observation": [1.0]}, "list as `observation`"),
        (torch.tensor(1.0), "no batch axis"),
        ({"observation": ROWS, "mask": torch.ones(3)}, r"mask \[3\] does not fit observations \[4, 3\]"),
    ],
)
def test_invalid_states_are_refused(states: Any, cause: str) -> None:
    with pytest.raises(NetworkError, match=cause):
        leading_shape(states)


@pytest.mark.parametrize("result", [torch.ones(3, 2), torch.tensor(1.0), "text"])
def test_a_model_that_loses_rows_is_refused(result: Any) -> None:
    with pytest.raises(NetworkError, match="for 4 states"):
        over_states(lambda observation: result, ROWS)


def test_an_object_whose_observations_cannot_be_replaced_is_refused() -> None:
    class Fixed:
        observation = ROWS

    with pytest.raises(NetworkError, match="observations of a `Fixed` cannot be replaced"):
        with_observation(Fixed(), ROWS)


@pytest.mark.parametrize(
    "actions",
    [
        torch.tensor([0, 2, 1], dtype=torch.int32),
        [0, 2, 1],
        [torch.tensor(0), torch.tensor(2), torch.tensor(1)],
        [torch.tensor([0]), torch.tensor([2, 1])],
    ],
)
def test_actions_are_a_tensor_or_a_list(actions: Any) -> None:
    found = action_tensor(actions, torch.Size([3]), torch.device("cpu"))
    assert found.dtype == torch.int64
    assert found.tolist() == [0, 2, 1]


@pytest.mark.parametrize("actions", [[0, 1], torch.zeros(3, 1, dtype=torch.int64), torch.zeros((), dtype=torch.int64)])
def test_another_number_of_actions_is_refused_instead_of_broadcast(actions: Any) -> None:
    with pytest.raises(NetworkError, match=r"actions do not fit states \[3\]"):
        action_tensor(actions, torch.Size([3]), torch.device("cpu"))


def test_actions_are_whole_numbers() -> None:
    with pytest.raises(NetworkError, match="whole numbers"):
        action_tensor(torch.zeros(3), torch.Size([3]), torch.device("cpu"))
