"""What commands show of a run with several policies, and how one of them is chosen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from canned_status import actor, results, status

from hive.records import RunDirectory
from hive.records.standings import PolicyStanding

if TYPE_CHECKING:
    from conftest import Place

POLICIES = [
    {"name": "cross", "agents": ["player_1"], "algorithm": "ppo", "folder": ""},
    {"name": "circle", "agents": ["player_2", "player_3"], "algorithm": "dqn", "folder": "policies/circle"},
]
RESULTS = {
    "cross": {"mean_return_100": 0.5, "updates": 8},
    "circle": {"mean_return_100": -0.5, "updates": 6},
}


def line(updates: int, mean: float) -> str:
    at = {"t": 1.7e9, "steps": 64 * updates, "seconds": 1.0 * updates, "updates": updates}
    return json.dumps(at | {"return/mean_100": mean}) + "\n"


def with_policies(run: RunDirectory) -> RunDirectory:
    """Makes it a run of two policies."""
    run.policies_file.write_text(json.dumps({"policies": POLICIES}))
    circle = run.path / "policies/circle"
    (circle / "checkpoints").mkdir(parents=True)
    run.metrics_file.write_text(line(4, 0.1) + line(8, 0.5))
    (circle / "metrics.jsonl").write_text(line(3, -0.2) + line(6, -0.5))
    return run


@pytest.fixture
def ended(place: Place) -> RunDirectory:
    values: dict[str, Any] = {"mean_return_100": 0.5, "policies": RESULTS, "env_steps": 512, "updates": 8}
    return with_policies(place.ended(**values))


def test_a_save_names_the_checkpoints_of_all_policies(place: Place) -> None:
    run = with_policies(place.live(status()))
    folders = [str(run.path / folder / "checkpoints/000040") for folder in ("", "policies/circle")]

    def obey() -> None:
        lines = [{"kind": "saved", "text": "", "path": path, "by_hand": True} for path in reversed(folders)]
        with run.events_file.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    place.supervisors[0].on_save = obey
    assert place.hive("save").out.splitlines() == folders


def test_an_ended_run(place: Place, ended: RunDirectory) -> None:
    table = place.hive("ps").out.splitlines()[-3:]
    assert [row.split() for row in table] == [
        ["POLICY", "ALGORITHM", "UPDATES", "RETURN", "AGENTS"],
        ["cross", "ppo", "8", "0.5", "player_1"],
        ["circle", "dqn", "6", "-0.5", "player_2,", "player_3"],
    ]
    assert " cross 0.5, circle -0.5 " in place.hive("ls").out
    first, *others = json.loads(place.hive("ps", "--json").out)
    assert [policy["name"] for policy in first["policies"]] == ["cross", "circle"]
    assert {row["policies"] for row in others} == {None}
    assert json.loads(place.hive("ls", "--json").out)[0]["policies"] == first["policies"]


def test_a_live_run(place: Place) -> None:
    policies = [PolicyStanding("cross", ["player_1"], "ppo", 8, 0.25), PolicyStanding("circle", [], "dqn", 6, None)]
    document = status(actor("learner-0", counters=results()), policies=[policy.data for policy in policies])
    with_policies(place.live(document))
    assert " cross 0.25, circle – " in place.hive("ls").out
    assert place.hive("ps").out.splitlines()[-1].split() == ["circle", "dqn", "6", "–"]
    assert " return cross    0.25 ppo\n        circle      – dqn\n" in place.hive("monitor", "--once").out


def test_comparing(place: Place, ended: RunDirectory) -> None:
    done = place.hive("compare", "cartpole-1", "--json")
    finals = json.loads(done.out)["groups"][0]["runs"][0]["final"]
    assert (finals, "note: the policy cross of cartpole-1; it also has circle (--policy)\n" in done.err) == (0.5, True)
    done = place.hive("compare", "cartpole-1", "--policy", "circle", "--json")
    assert json.loads(done.out)["groups"][0]["runs"][0]["final"] == -0.5
    assert "--policy" not in done.err
    unknown = "error: cartpole-1 has no policy `x`\n\nhint: its policies are `cross`, `circle`\n"
    for command in (["compare", "cartpole-1"], ["plot", "-o", "a.png"], ["export"]):
        done = place.hive(*command, "--policy", "x")
        assert (done.code, done.err.partition("error")[1:]) == (2, unknown.partition("error")[1:])


def test_one_agent_has_no_policies(place: Place) -> None:
    place.ended()
    assert place.hive("export", "--policy", "x").err == (
        "error: cartpole-1 has no policy `x`\n\nhint: its environment has one agent: leave the policy out\n"
    )
    assert "POLICY" not in place.hive("ps").out


def test_checkpoints_of_each_policy_are_pruned(place: Place, ended: RunDirectory) -> None:
    from hive.records import write_checkpoint

    for folder in (ended.path, ended.path / "policies/circle"):
        for update in (1, 2):
            write_checkpoint(folder / "checkpoints", update, tensors={}, parts={}, state={"mean_return": update})
    listed = place.hive("prune", "--keep", "1").out
    assert [" ".join(row.split()[1:-2]) for row in listed.splitlines()[1:]] == [
        "checkpoint of update 1",
        "checkpoint of update 1 of the policy circle",
    ]
    place.hive("prune", "--keep", "1", "--yes")
    left = sorted(str(path.relative_to(ended.path)) for path in ended.path.glob("**/checkpoints/0*"))
    assert left == ["checkpoints/000002", "policies/circle/checkpoints/000002"]
