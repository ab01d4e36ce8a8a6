"""The evaluator alone: which episodes count, which actions are taken, and that chance is that of the turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_trainer import Page, config_of, weights_of

from hive.envs import ObservationSpec, StepRow
from hive.envs.agents.lone import LoneTable
from hive.errors import EnvironmentFailed
from hive.experience import Purpose, stream_seeds
from hive.networks import Categorical
from hive.policy.acting import Acting
from hive.runtime.memory.status import BUSY, RUNTIME
from hive.runtime.supervise.diagnostics import ENVIRONMENT
from hive.training import Blueprint, Evaluation, EvaluationDue, Evaluator, initial_network
from hive.training.evaluate.play import Play

DUE = EvaluationDue(evaluator=0, turn=40, updates=39, env_steps=640, seconds=1.5)
TWO = {"evaluation__episodes": 6, "evaluation__envs": 2}
ONE_NUMBER = ObservationSpec((1,), "float32")


def blueprint_of(env: str = "Drift", **values: Any) -> Blueprint:
    return Blueprint(config_of(f"small_environments:{env}", **{**TWO, **values}))


def due(turn: int) -> EvaluationDue:
    return EvaluationDue(0, turn, turn, 16 * turn, 0.0)


def numbers(evaluation: Evaluation) -> dict[str, Any]:
    """All but the time that it took."""
    found = dataclasses.asdict(evaluation)
    assert found.pop("wall_s") >= 0
    return found


class Scripted:
    """A vector whose episodes repeat the given lengths; each step earns 1."""

    def __init__(self, *lengths: Sequence[int]) -> None:
        self.count = len(lengths)
        self.lengths = lengths
        self.seeds: list[Sequence[int]] = []
        self.actions: list[NDArray[Any]] = []
        self.closed = False

    def reset(self, seeds: Sequence[int], observations: NDArray[Any]) -> None:
        self.seeds.append(seeds)
        self.played, self.at = [0] * self.count, [0] * self.count
        observations[:] = 0

    def step(self, actions: NDArray[Any], row: StepRow) -> None:
        self.actions.append(actions.copy())
        row.episode_returns[:], row.episode_lengths[:], row.observations[:] = 0, 0, len(self.actions)
        row.rewards[:], row.valid[:] = 1, 1
        for index, lengths in enumerate(self.lengths):
            self.at[index] += 1
            length = lengths[self.played[index] % len(lengths)]
            if self.at[index] == length:
                row.episode_returns[index] = row.episode_lengths[index] = length
                self.played[index], self.at[index] = self.played[index] + 1, 0

    def close(self) -> None:
        self.closed = True


class Leans(torch.nn.Module):
    """Prefers action 1 by 0.1 for an even observation, else action 0."""

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        even = (observations[:, 0] % 2 == 0).float()
        return torch.stack([0.1 * (1 - even), 0.1 * even], 1), even


def scripted(vector: Scripted, episodes: int, *, same_starts: bool = False, **options: Any) -> Evaluator:
    player = Acting(Leans(), ONE_NUMBER, Categorical(2))
    play = Play(LoneTable(vector, ONE_NUMBER), [player], seed=4, episodes=episodes, **options)
    return Evaluator(play, same_starts=same_starts)


# --- which episodes count


def test_every_environment_plays_its_share_however_long_its_episodes_are() -> None:
    """The first four to end would all be of the environment with the short ones, and their mean 1."""
    found = scripted(Scripted([1], [10]), 4).evaluate(DUE)
    assert (found.episodes, found.mean_return, found.min, found.max) == (4, 5.5, 1, 10)
    assert (found.deviation, found.mean_length) == (4.5, 5.5)


def test_the_first_episodes_of_an_environment_are_those_that_count() -> None:
    """Episodes that an environment plays while it waits for the others do not count."""
    found = scripted(Scripted([2, 4, 7], [30]), 3).evaluate(DUE)
    assert (found.episodes, found.mean_return, found.min, found.max) == (3, 12.0, 2, 30)


@pytest.mark.rotates
@pytest.mark.parametrize("processes", ["0", '"each"'])
def test_an_environment_that_has_played_its_episodes_is_left_alone(processes: str) -> None:
    """So one that refuses to be reset within an episode can be evaluated again and again, with the same numbers."""
    evaluators = [
        Evaluator.of_run(blueprint_of("Contest", env__options=f"{{refuses = {refuses}}}", env__processes=processes))
        for refuses in ("false", "true")
    ]
    for turn in (1, 2, 3):
        any_time, at_the_end = (numbers(evaluator.evaluate(due(turn))) for evaluator in evaluators)
        assert any_time == at_the_end
    for evaluator in evaluators:
        evaluator.close()


def test_the_end_of_an_episode_may_allow_no_action() -> None:
    blueprint = blueprint_of("Shut", env__options="{terminates = 3}", env__action_mask='"action_mask"')
    evaluator = Evaluator.of_run(blueprint)
    evaluator.bind(weights_of(blueprint))
    assert evaluator.evaluate(due(1)).mean_length == 3.0
    evaluator.close()


@pytest.mark.parametrize(("episodes", "shares"), [(3, [1, 1, 1]), (5, [2, 2, 1]), (7, [3, 2, 2])])
def test_remaining_episodes_go_to_the_first_environments(episodes: int, shares: list[int]) -> None:
    lengths = [1, 10, 100]  # the sum determines how many episodes of each length there were
    found = scripted(Scripted(*([length] for length in lengths)), episodes).evaluate(DUE)
    total = sum(share * length for share, length in zip(shares, lengths, strict=True))
    assert (found.episodes, found.mean_length * episodes) == (episodes, pytest.approx(total))


def test_an_evaluation_names_its_turn() -> None:
    found = scripted(Scripted([3]), 2).evaluate(DUE)
    assert (found.turn, found.updates, found.env_steps, found.seconds) == (40, 39, 640, 1.5)


def test_the_statistics_are_those_of_the_returns() -> None:
    found = scripted(Scripted([1, 2, 3, 6]), 4).evaluate(DUE)
    returns = np.array([1.0, 2.0, 3.0, 6.0])
    assert (found.mean_return, found.deviation) == (pytest.approx(returns.mean()), pytest.approx(returns.std()))
    assert (found.min, found.max, found.mean_length) == (1.0, 6.0, 3.0)


def test_steps_that_only_reset_are_not_counted() -> None:
    """Gymnasium's own vectorised CartPole resets in the step after an end. Each other step earns 1."""
    blueprint = Blueprint(config_of("CartPole-v1", env__vector='"native"', **TWO))
    found = Evaluator.of_run(blueprint).evaluate(DUE)
    assert found.episodes == 6
    assert found.mean_return == found.mean_length > 1


def test_episodes_that_are_cut_are_whole_episodes() -> None:
    """More of them than a rollout has room for final observations."""
    found = Evaluator.of_run(blueprint_of("OneState", env__options="{truncates=7}", evaluation__episodes=40)).evaluate(
        DUE
    )
    assert (found.episodes, found.mean_return, found.deviation, found.mean_length) == (40, 7.0, 0.0, 7.0)


# --- how it acts


def test_the_likeliest_action_is_taken_every_time() -> None:
    """By so little that one in two would be another one if chance had a say."""
    vector = Scripted([50], [50])
    scripted(vector, 2).evaluate(DUE)
    assert [actions.tolist() for actions in vector.actions] == [[1 - step % 2] * 2 for step in range(50)]


@pytest.mark.parametrize("actions", ["discrete", "multi-discrete", "box"])
def test_actions_are_the_mode_of_the_distribution(actions: str) -> None:
    blueprint = blueprint_of(env__options=f'{{actions="{actions}"}}')
    evaluator, weights = Evaluator.of_run(blueprint), weights_of(blueprint)
    evaluator.bind(weights)
    evaluator.begin(DUE)
    seen = torch.from_numpy(evaluator.play.rows[0].observations.copy())
    taken: list[NDArray[Any]] = []
    step = evaluator.play.table.vector.step

    def watched(chosen: NDArray[Any], row: StepRow) -> None:
        taken.append(chosen.copy())
        step(chosen, row)

    evaluator.play.table.vector.step = watched  # type: ignore[method-assign]
    evaluator.step()
    with torch.no_grad():
        expected = blueprint.distribution.mode(blueprint.network()(seen)[0]).numpy()
    assert np.array_equal(taken[0], expected)
    assert taken[0].shape == (2, *blueprint.environment.action.shape)
    assert taken[0].dtype == blueprint.environment.action.dtype


def test_actions_are_drawn_where_that_is_wanted() -> None:
    """One in two is the likelier one: its logit is higher by 0.1. The same turn draws the same, another one others."""
    drawn = []
    for turn in (40, 40, 41):
        vector = Scripted([400], [400])
        scripted(vector, 2, sample=True).evaluate(due(turn))
        drawn.append(np.array(vector.actions))
    likelier = (1 - np.arange(400) % 2)[:, None]
    assert 0.45 < (drawn[0] == likelier).mean() < 0.6
    assert (drawn[0][:, 0] != drawn[0][:, 1]).any()  # noise of its own for each environment
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_it_reports_its_progress() -> None:
    evaluator = scripted(Scripted([1], [3]), 4)
    evaluator.begin(DUE)
    told = []
    while evaluator.step() is None:
        told.append(evaluator.done)
    assert told == [1, 2, 3, 3, 3]  # the second environment ends its two episodes in the steps 3 and 6


@pytest.mark.parametrize(("episodes", "deviation", "half"), [(101, 5.0, 0.98), (2, 1.0, 1.96), (50, 0.0, 0.0)])
def test_the_interval_of_a_mean_is_that_of_the_central_limit_theorem(
    episodes: int, deviation: float, half: float
) -> None:
    found = Evaluation(0, 0, 0, 0.0, episodes, 1.0, deviation, 0.0, 2.0, 1.0, 0.0)
    assert found.interval == pytest.approx(half)


def test_a_single_episode_has_no_interval() -> None:
    assert np.isnan(Evaluation(0, 0, 0, 0.0, 1, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0).interval)


def test_it_acts_with_the_weights_that_are_bound_and_leaves_them_alone() -> None:
    """Action 1 earns in context 1 only, action 0 in the other: of many episodes about half. No buffer is written."""
    blueprint = blueprint_of("Bandit", evaluation__episodes=200, network__middleware=[])
    evaluator, weights = Evaluator.of_run(blueprint), weights_of(blueprint)
    arrays = blueprint.flat.arrays(weights)
    for array in arrays.values():
        array[...] = 0.0
    shares = []
    for wanted in (0, 1):
        arrays["trunk.0.bias"][:2] = [wanted == 0, wanted == 1]
        before = weights.copy()
        evaluator.bind(weights)
        shares.append(evaluator.evaluate(DUE).mean_return)
        assert np.array_equal(weights, before)
    assert sum(shares) == pytest.approx(1.0)  # the same contexts came both times
    assert 0.3 < shares[0] < 0.7


def test_it_acts_in_evaluation_mode() -> None:
    """Neither dropout nor BatchNorm's statistics are of the policy that is judged."""
    blueprint = blueprint_of(network__module='"small_environments:Normalising"')
    evaluator, weights = Evaluator.of_run(blueprint), weights_of(blueprint)
    before = weights.copy()
    evaluator.bind(weights)
    evaluator.evaluate(DUE)
    assert not any(module.training for module in evaluator.play.players[0].network.modules())
    assert np.array_equal(weights, before)


# --- chance


def test_the_same_turn_gets_the_same_evaluation_from_any_evaluator() -> None:
    blueprint = blueprint_of()
    fresh, used = Evaluator.of_run(blueprint), Evaluator.of_run(blueprint)
    expected = numbers(fresh.evaluate(due(7)))
    others = [numbers(used.evaluate(due(turn))) for turn in (5, 6)]
    assert numbers(used.evaluate(due(7))) == expected
    assert len({evaluation["mean_return"] for evaluation in (*others, expected)}) == 3


def test_another_seed_gets_another_evaluation() -> None:
    one, other = (Evaluator.of_run(blueprint_of(run__seed=seed)).evaluate(DUE) for seed in (1, 2))
    assert one.mean_return != other.mean_return


def test_one_that_was_not_finished_leaves_no_trace() -> None:
    evaluator = Evaluator.of_run(blueprint_of())
    expected = numbers(evaluator.evaluate(due(7)))
    evaluator.begin(due(6))
    for _ in range(5):
        evaluator.step()
    assert numbers(evaluator.evaluate(due(7))) == expected


def test_seeds_are_those_of_the_turn_and_of_each_environment() -> None:
    vector = Scripted([1], [1], [1])
    evaluator = scripted(vector, 3)
    for turn in (2, 3):
        evaluator.evaluate(due(turn))
    assert vector.seeds == [stream_seeds(4, Purpose.evaluation, 0, 3, turn) for turn in (2, 3)]


def test_the_same_starts_are_those_of_turn_0() -> None:
    vector = Scripted([1], [1], [1])
    evaluator = scripted(vector, 3, same_starts=True)
    for turn in (2, 3):
        evaluator.evaluate(due(turn))
    assert vector.seeds == [stream_seeds(4, Purpose.evaluation, 0, 3, 0)] * 2


def test_randomness_in_the_network_depends_on_the_turn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its policy is only noise of torch's, and another actor of the process draws between its steps."""
    monkeypatch.setattr(initial_network, "varies", lambda *_: "")  # A2C refuses it
    blueprint = blueprint_of(network__module='"small_environments:Shaky"')
    quiet, disturbed = Evaluator.of_run(blueprint), Evaluator.of_run(blueprint)
    expected = numbers(quiet.evaluate(due(7)))
    disturbed.begin(due(7))
    while (found := disturbed.step()) is None:
        torch.rand(3)
    assert numbers(found) == expected
    assert numbers(quiet.evaluate(due(8)))["mean_return"] != expected["mean_return"]


def test_between_two_steps_gradients_can_be_made() -> None:
    """Another actor of the process does not find itself in inference mode."""
    evaluator = Evaluator.of_run(blueprint_of())
    evaluator.begin(DUE)
    assert evaluator.step() is None
    assert not torch.is_inference_mode_enabled()
    weight = torch.ones(2, requires_grad=True)
    weight.sum().backward()
    assert weight.grad is not None


# --- what goes wrong, what is seen


def test_more_environments_than_episodes() -> None:
    with pytest.raises(ValueError, match="2 episodes are fewer than the 3 environments"):
        scripted(Scripted([1], [1], [1]), 2)


def test_a_step_without_an_evaluation() -> None:
    evaluator = scripted(Scripted([1]), 1)
    with pytest.raises(RuntimeError, match="no evaluation has begun"):
        evaluator.step()
    evaluator.evaluate(DUE)
    with pytest.raises(RuntimeError, match="no evaluation has begun"):
        evaluator.step()


def test_errors_of_environments_pass_through() -> None:
    page = Page()
    evaluator = Evaluator.of_run(blueprint_of("Fails", env__options="{when=5}"), page.status)
    with pytest.raises(EnvironmentFailed, match="the motor is stuck") as caught:
        evaluator.evaluate(DUE)
    assert not caught.value.permanent
    assert page.read().phase == ENVIRONMENT


def test_it_shows_what_it_does() -> None:
    page = Page()
    evaluator = scripted(Scripted([4], [2]), 2, status=page.status)
    started = page.read()
    evaluator.evaluate(DUE)
    shown = page.read()
    assert {phase: shown.spent_ns[phase][0] for phase in ("policy", "env")} == {"policy": BUSY, "env": BUSY}
    assert shown.progress - started.progress == 2 + 3 * 4  # the reset and four steps, with a rest after each
    assert shown.kind == RUNTIME


def test_closing_closes_the_environments() -> None:
    vector = Scripted([1])
    scripted(vector, 1).close()
    assert vector.closed


# --- episodes that do not end

ENDLESS_ONE = 10**9


def test_an_episode_that_does_not_end_is_cut_and_counts_up_to_there() -> None:
    vector = Scripted([3], [ENDLESS_ONE])
    found = scripted(vector, 4, max_steps=10).evaluate(DUE)
    assert (found.episodes, found.cut, found.min, found.max, found.mean_return) == (4, 2, 3.0, 10.0, 6.5)
    assert len(vector.seeds) == 2  # all environments are reset for the episode that is left
    assert not set(vector.seeds[0]) & set(vector.seeds[1])


def test_an_environment_whose_episode_was_cut_waits_for_the_others() -> None:
    vector = Scripted([8], [5, ENDLESS_ONE])
    found = scripted(vector, 6, max_steps=10).evaluate(DUE)
    # 8, 8, 8 and 5, cut at 10 in step 15; the reset comes at step 24, and after it 5.
    assert (found.cut, found.episodes, len(vector.actions)) == (1, 6, 29)
    assert found.mean_return == (3 * 8 + 5 + 10 + 5) / 6


def test_episodes_of_exactly_the_limit_are_not_cut_and_no_limit_changes_nothing() -> None:
    for limit in (3, 0):
        assert scripted(Scripted([3], [2]), 6, max_steps=limit).evaluate(DUE).cut == 0
    with_limit, without = (scripted(Scripted([3], [2]), 6, max_steps=limit).evaluate(DUE) for limit in (100, 0))
    assert numbers(with_limit) == numbers(without)


def test_a_single_environment_goes_on_after_a_cut() -> None:
    evaluator = scripted(Scripted([ENDLESS_ONE]), 3, max_steps=4)
    evaluator.begin(DUE)
    lengths = []
    while evaluator.step() is None:
        lengths.append(evaluator.done)
    assert lengths == [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]


def test_each_agent_of_a_policy_has_the_episodes_of_an_evaluation() -> None:
    evaluator = Evaluator.of_run(blueprint_of("Twins", evaluation__episodes=3, evaluation__envs=2))
    assert evaluator.play.quota.tolist() == [2, 1]
    evaluator.evaluate(DUE)
    assert len(evaluator.played[0].returns) == 6
