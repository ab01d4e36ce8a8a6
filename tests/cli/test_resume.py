"""Preparing a run to be resumed: the run, the checkpoint, and the records that are removed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hive.config import Config, load_config, render
from hive.errors import ConfigError, RecordError, UsageError
from hive.launch import resuming
from hive.launch.tune import recorded_sets, write_choice
from hive.records import (
    JsonlWriter,
    RunDirectory,
    RunFacts,
    Summary,
    list_checkpoints,
    process_start_time,
    remove_folder,
    replace_best,
    write_checkpoint,
    write_run_facts,
)
from hive.records.owner import give_up
from hive.schemes.trainer import resumed_from
from hive.tuning import Choice, Placement

ENDED = Summary(
    name="cart-1", scheme="a2c", state="stopped", stop_reason="hive down", seed=1, exact=False, env_steps=1, updates=1,
    episodes=0, mean_return_100=None, started=0.0, wall_s=1.0, train_s=1.0, weights_sha256="", channels={}, restarts={},
)  # fmt: skip

CONSTANT = '[algorithm]\nlearning_rate_schedule = "constant"\n'
GIVEN = '[run]\nscheme = "a2c"\n[checkpoint]\nevery = { updates = 100 }\n[env]\nid = "CartPole-v1"\n' + CONSTANT


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A stopped run with a scheduled checkpoint at 100 and an unscheduled one at 150."""
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    directory = RunDirectory.create(tmp_path, "cart")
    for update, scheduled in ((100, True), (150, False)):
        part = {"weights": np.full(64, update, np.uint8)}
        state = {"scheduled": scheduled, "env_steps": 100 * update}
        write_checkpoint(directory.checkpoints, update, tensors={}, parts=part, state=state)
    directory.resolved_file.write_text(render(load_config("cart.toml", text=GIVEN)))
    metrics = JsonlWriter(directory.metrics_file)
    for updates in (50, 100, 120, 150, 170):
        metrics.write({"updates": updates})
    metrics.close()
    ENDED.write(directory.summary_file)
    return directory


def prepare(*words: str, **options: Any) -> RunDirectory:
    """Prepare as a command does that is killed before it starts the run."""
    directory = resuming.prepare(*words, **options)
    give_up(directory)
    return directory


def chosen(run: RunDirectory) -> dict[str, object]:
    """The checkpoint in resume.json, and whether the run is exact from there."""
    loaded: dict[str, object] = json.loads(run.resume_file.read_text())
    assert bool(loaded["why"]) is not loaded["exact"]
    return {key: loaded[key] for key in ("update", "exact")}


def updates(run: RunDirectory) -> list[int]:
    return [json.loads(line)["updates"] for line in run.metrics_file.read_text().splitlines()]


def test_the_newest_checkpoint(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare("cart-1", exact=False).path == run.path
    assert chosen(run) == {"update": 150, "exact": False}
    assert updates(run) == [50, 100, 120, 150]
    assert "continues cart-1 at 15,000 of 500,000 steps, from its last saved state" in capsys.readouterr().err


def test_a_file_that_names_no_scheme_and_no_checkpoints_keeps_those_of_the_run(
    run: RunDirectory, tmp_path: Path
) -> None:
    given = tmp_path / "own.toml"
    given.write_text('[env]\nid = "CartPole-v1"\n' + CONSTANT)
    prepare("cart-1", exact=True, given=given)
    config = load_config(run.resolved_file)
    assert (config.run.scheme, config.algorithm.name, config.checkpoint.every) == ("a2c", "a2c", {"updates": 100})


def test_the_last_cut(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    prepare("cart", exact=True)
    assert chosen(run) == {"update": 100, "exact": True}
    assert updates(run) == [50, 100]
    assert [checkpoint.update for checkpoint in list_checkpoints(run.checkpoints)] == [100]
    first, second = capsys.readouterr().err.splitlines()
    assert "at 10,000 of 500,000 steps, from its last scheduled checkpoint" in first
    (ahead,) = run.path.glob("ahead-*")
    assert f"it goes back 70 updates, 5,000 steps; its newer state lies in {ahead}" in second
    assert [saved.update for saved in list_checkpoints(ahead / "checkpoints", verify=True)] == [150]
    assert [json.loads(line)["updates"] for line in (ahead / "metrics.jsonl").read_text().splitlines()] == [
        120,
        150,
        170,
    ]
    assert RunDirectory.open(ahead).resolved_file.read_bytes() == run.resolved_file.read_bytes()
    prepare("cart", exact=True)
    assert [*run.path.glob("ahead-*")] == [ahead]  # there is nothing newer now
    assert capsys.readouterr().err.splitlines() == [first]


def test_a_best_policy_that_is_newer_is_set_aside_too(run: RunDirectory) -> None:
    replace_best(run.best, 90, tensors={}, state={"mean_return": 1.0})
    prepare("cart", exact=True)
    assert (run.best / "000090").exists()
    replace_best(run.best, 140, tensors={}, state={"mean_return": 2.0})
    prepare("cart", exact=False)  # without --exact a run keeps the best policy that it has
    assert (run.best / "000140").exists()
    prepare("cart", exact=True)
    ahead = sorted(run.path.glob("ahead-*"))[-1]
    assert [*run.best.iterdir()] == []
    assert (ahead / "best" / "000140" / "DONE").exists()


def test_a_set_aside_that_was_killed_is_completed_by_the_next_resume(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare("cart", exact=True)
    (ahead,) = run.path.glob("ahead-*")
    (ahead / "CUT").unlink()  # as if it had been killed before the originals were removed
    (ahead / "checkpoints" / "000150").rename(run.checkpoints / "000150")
    (ahead / "checkpoints" / "000150").mkdir()
    for file in (run.checkpoints / "000150").iterdir():
        os.link(file, ahead / "checkpoints" / "000150" / file.name)
    capsys.readouterr()
    prepare("cart", exact=False)
    assert chosen(run) == {"update": 100, "exact": True}
    assert f"completed an interrupted `hive resume`: newer state lies in {ahead}" in capsys.readouterr().err


def test_a_run_that_lost_an_actor_is_not_exact(run: RunDirectory) -> None:
    run.events_file.write_text('{"kind": "died", "actor": "learner-0"}\n')
    prepare("cart-1", exact=True)
    assert chosen(run)["exact"] is False


def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.checkpoints / "000150" / "weights.bin").write_bytes(b"x" * 64)
    prepare("cart-1", exact=False)
    assert chosen(run)["update"] == 100
    assert "000150" in capsys.readouterr().err


@pytest.fixture
def finished(run: RunDirectory) -> RunDirectory:
    dataclasses.replace(ENDED, state="finished", stop_reason="15,000 steps").write(run.summary_file)
    return run


@pytest.mark.parametrize("sets", [[], ["algorithm.learning_rate=0.1"], ["run.steps=500000"]])
def test_a_finished_run_is_refused_without_another_goal(finished: RunDirectory, sets: list[str]) -> None:
    before = finished.resolved_file.read_bytes()
    with pytest.raises(UsageError, match=r"(?m)^cart-1 has finished: 15,000 steps$") as error:
        prepare("cart-1", exact=False, sets=sets)
    assert error.value.hint.startswith("set a new goal: hive resume cart-1 --set run.steps=30000")
    assert finished.resolved_file.read_bytes() == before
    assert not finished.resume_file.exists()


def test_a_goal_that_is_already_reached_is_refused(finished: RunDirectory) -> None:
    with pytest.raises(UsageError, match=r"(?m)^cart-1 already has 15,000 steps, and run\.steps is 15,000$"):
        prepare("cart-1", exact=False, sets=["run.steps=15000"])
    assert not finished.resume_file.exists()


@pytest.mark.parametrize("change", ["run.steps=15001", "run.stop_at_return=500.0", "custom.curriculum.levels=9"])
def test_a_finished_run_continues_with_a_new_goal(finished: RunDirectory, change: str) -> None:
    prepare("cart-1", exact=False, sets=[change])
    assert chosen(finished)["update"] == 150
    assert load_config(finished.resolved_file) == load_config("cart.toml", [change], text=GIVEN)


def test_the_return_that_ended_a_run_can_be_taken_away(finished: RunDirectory) -> None:
    config = load_config("cart.toml", ["run.stop_at_return=9.0"], text='[env]\nid = "CartPole-v1"\n')
    finished.resolved_file.write_text(render(config))
    prepare("cart-1", exact=False, sets=["run.stop_at_return=none"])
    assert load_config(finished.resolved_file).run.stop_at_return is None


def test_a_living_run_is_refused(run: RunDirectory) -> None:
    run.summary_file.unlink()
    start = process_start_time(os.getpid())
    assert start is not None
    write_run_facts(run, RunFacts("cart-1", os.getpid(), start, "/nowhere", 0.0, [], "0", "3"))
    with pytest.raises(UsageError, match="cart-1 is running"):
        prepare("cart-1", exact=False)


def test_a_run_without_checkpoints_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVE_HOME", str(tmp_path))
    ENDED.write(RunDirectory.create(tmp_path, "bare").summary_file)
    with pytest.raises(UsageError, match="bare-1 has no checkpoint to resume from"):
        prepare("bare-1", exact=False)


@pytest.fixture
def unsaved(run: RunDirectory) -> RunDirectory:
    """The run, if it was killed before its first checkpoint."""
    for checkpoint in list_checkpoints(run.checkpoints):
        remove_folder(checkpoint.path)
    run.summary_file.unlink()
    run.events_file.write_text('{"kind": "died"}\n')
    return run


@pytest.mark.parametrize("exact", [False, True])
def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(
    unsaved: RunDirectory, exact: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_best(unsaved.best, 90, tensors={}, state={"mean_return": 1.0})
    prepare("cart-1", exact=exact)
    assert chosen(unsaved) == {"update": 0, "exact": True}
    assert resumed_from(unsaved.path) is None
    assert updates(unsaved) == []
    (ahead,) = unsaved.path.glob("ahead-*")
    assert (ahead / "best" / "000090").is_dir()
    assert not (unsaved.best / "000090").exists()
    what = "scheduled checkpoint" if exact else "checkpoint"
    assert f"continues cart-1 from its beginning: it has no {what} yet" in capsys.readouterr().err


def test_exact_is_the_beginning_before_the_first_barrier(run: RunDirectory) -> None:
    remove_folder(run.checkpoints / "000100")
    prepare("cart-1", exact=True)
    assert chosen(run) == {"update": 0, "exact": True}
    (ahead,) = run.path.glob("ahead-*")
    assert [checkpoint.update for checkpoint in list_checkpoints(ahead / "checkpoints")] == [150]
    assert list_checkpoints(run.checkpoints) == []


@pytest.mark.parametrize(
    ("key", "exact"), [('topology = "own.py"', False), ('topology = "own.py"', True), ('scheme = "impala"', True)]
)
def test_what_need_not_be_the_same_again_does_not_begin_again(unsaved: RunDirectory, key: str, exact: bool) -> None:
    config = load_config("cart.toml", text=f'[run]\n{key}\n[env]\nid = "CartPole-v1"\n')
    unsaved.resolved_file.write_text(render(config))
    with pytest.raises(UsageError, match="checkpoint to resume from"):
        prepare("cart-1", exact=exact)


@pytest.mark.parametrize("reason", ["scaled", "died"])
def test_a_run_stays_inexact_after_an_inexact_resume(run: RunDirectory, reason: str) -> None:
    run.events_file.write_text(json.dumps({"kind": reason}) + "\n")
    prepare("cart-1", exact=True)
    assert chosen(run)["exact"] is False


@pytest.mark.parametrize(("from_update", "exact"), [(90, False), (100, True), (150, True)])
def test_a_cut_after_an_inexact_resumption_is_not_exact_one_before_is(
    run: RunDirectory, from_update: int, exact: bool
) -> None:
    run.resume_file.write_text(json.dumps({"update": from_update, "exact": False}))
    prepare("cart-1", exact=True)
    assert chosen(run) == {"update": 100, "exact": exact}


# --- onto another config


def config_of(run: RunDirectory) -> Config:
    return load_config(run.resolved_file)


@pytest.mark.parametrize(
    "change", ["run.steps=9", "record.every_s=5.0", "supervision.restarts=9", "run.stop_at_return=9.0"]
)
def test_changes_that_do_not_affect_training_stay_exact(
    run: RunDirectory, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key, _, value = change.partition("=")
    before = config_of(run).value(key)
    prepare("cart-1", exact=True, sets=[change])
    assert chosen(run) == {"update": 100, "exact": True}
    assert str(config_of(run).value(key)) == value
    shown = "none" if before is None else str(before)
    lines = capsys.readouterr().err.replace("_", "").splitlines()
    assert f"  {key}: {shown} -> {value}".replace("_", "") in lines


@pytest.mark.parametrize(
    ("sets", "keys"),
    [
        (["collection.workers=2"], "collection.workers"),
        (["algorithm.learning_rate=0.1", "run.seed=2"], "run.seed, algorithm.learning_rate"),
        (["run.steps=9", "algorithm.learning_rate_schedule=linear"], "run.steps, algorithm.learning_rate_schedule"),
        (["run.steps=9", "algorithm.entropy_weight_schedule=cosine"], "run.steps, algorithm.entropy_weight_schedule"),
        (
            ["run.steps=9", "algorithm.learning_rate_schedule=[[0, 1]]"],
            "algorithm.learning_rate, algorithm.learning_rate_schedule",
        ),
    ],
)
def test_changes_that_break_exactness_are_refused_with_exact(
    run: RunDirectory, sets: list[str], keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = run.resolved_file.read_bytes()
    with pytest.raises(UsageError, match=f"cart-1 would not be exact with another {keys}"):
        prepare("cart-1", exact=True, sets=sets)
    assert run.resolved_file.read_bytes() == before
    assert len(list_checkpoints(run.checkpoints)) == 2  # nothing was taken away
    assert not run.resume_file.exists()
    prepare("cart-1", exact=False, sets=sets)
    assert chosen(run)["exact"] is False
    assert f"{keys.split(', ')[-1]}: " in capsys.readouterr().err
    assert config_of(run) != load_config("cart.toml", text=before.decode())


def test_the_end_of_the_run_matters_to_a_policy_with_a_key_that_falls(run: RunDirectory) -> None:
    falling = '[policies.a]\nagents = "a"\nalgorithm = { learning_rate_schedule = "linear" }\n[policies]\nb = "b"\n'
    run.resolved_file.write_text(render(load_config("cart.toml", text=GIVEN + falling)))
    with pytest.raises(UsageError, match=r"not be exact with another run\.steps"):
        prepare("cart-1", exact=True, sets=["run.steps=9"])


def test_points_do_not_follow_the_end_of_the_run(run: RunDirectory) -> None:
    config = load_config(run.resolved_file, ["algorithm.learning_rate_schedule=[[0, 1e-3], [500, 1e-4]]"])
    run.resolved_file.write_text(render(config))
    prepare("cart-1", exact=True, sets=["run.steps=99_999"])
    assert chosen(run) == {"update": 100, "exact": True}
    assert config_of(run).differences(config) == ["run.steps"]


def test_from_a_cut_too_it_is_another_run(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    remove_folder(run.checkpoints / "000150")
    prepare("cart-1", exact=False, sets=["algorithm.learning_rate=0.1"])
    assert chosen(run) == {"update": 100, "exact": False}
    assert "-> 0.1 (no longer exact from here on)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("network.middleware=[8]", "network.middleware"),
        ("env.id=Acrobot-v1", "env.id"),
        ("run.scheme=ppo", "run.scheme"),
        ("algorithm.optimizer=sgd", "algorithm.optimizer"),
        ("env.scale_actions=false", "env.scale_actions"),
        ("env.scale_observations=false", "env.scale_observations"),
        ('env.images="first"', "env.images"),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_keys_that_the_weights_depend_on_cannot_change(run: RunDirectory, change: str, key: str, exact: bool) -> None:
    before = run.resolved_file.read_bytes()
    with pytest.raises(UsageError, match=rf"cannot continue with another .*{key}"):
        prepare("cart-1", exact=exact, sets=[change])
    assert run.resolved_file.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("collection.workers=2", r"collectors \(1 -> 2\)"),
        ("collection.envs=4", r"environments of each collector \(1 -> 4\)"),
        ("gradients.workers=2", ""),
        ("algorithm.batch_size=16", ""),
    ],
)
def test_the_rows_of_a_replay_memory_keep_their_collectors(run: RunDirectory, change: str, text: str) -> None:
    config = load_config("cart.toml", ["run.scheme=dqn"], text='run.name = "cart"\nenv.id = "CartPole-v1"\n')
    run.resolved_file.write_text(render(config))
    before = run.resolved_file.read_bytes()
    for checkpoint in list_checkpoints(run.checkpoints):
        (checkpoint.path / "replay").mkdir()
    if not text:
        prepare("cart-1", exact=False, sets=[change])
        return
    with pytest.raises(UsageError, match=f"another number of {text}: its replay memory has rows"):
        prepare("cart-1", exact=False, sets=[change])
    assert run.resolved_file.read_bytes() == before
    assert not run.resume_file.exists()


def test_a_config_of_another_name_is_the_same_run_with_its_values(run: RunDirectory, tmp_path: Path) -> None:
    name = config_of(run).run.name
    given = tmp_path / "other.toml"
    given.write_text('[run]\nname = "other"\n[env]\nid = "CartPole-v1"\n[algorithm]\nlearning_rate = 0.5\n')
    prepare("cart-1", exact=False, given=given)
    after = config_of(run)
    assert (after.run.name, after.algorithm.learning_rate) == (name, 0.5)


def test_the_same_config_changes_nothing(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    prepare("cart-1", exact=True, sets=["run.seed=1"])
    assert chosen(run)["exact"] is True
    assert "->" not in capsys.readouterr().err


def test_a_changed_key_is_remembered_by_later_resumes(run: RunDirectory) -> None:
    prepare("cart-1", exact=False, sets=["algorithm.learning_rate=0.1"])
    prepare("cart-1", exact=True)  # from a barrier before the change, but with the key as it was changed
    assert chosen(run) == {"update": 100, "exact": False}
    assert json.loads(run.resume_file.read_text())["changed"] == ["algorithm.learning_rate"]


def test_changes_of_a_run_that_never_began_are_undone(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    before = run.resolved_file.read_bytes()
    prepare("cart-1", exact=False, sets=["algorithm.learning_rate=0.1"])
    prepare("cart-1", exact=False, sets=["algorithm.entropy_weight=0.2"])
    assert "undid the changes" in capsys.readouterr().err
    assert (config_of(run).algorithm.learning_rate, config_of(run).value("algorithm.entropy_weight")) == (0.001, 0.2)
    assert (run.replaced / "resolved.toml").read_bytes() == before
    prepare("cart-1", exact=False)
    assert run.resolved_file.read_bytes() == before
    assert not run.replaced.exists()


def test_a_bad_value_is_a_config_error(run: RunDirectory) -> None:
    with pytest.raises(ConfigError, match=r"run\.seed=many: expected"):
        prepare("cart-1", exact=False, sets=["run.seed=many"])
    assert not run.resume_file.exists()


DAMAGED = ("", "[]", "{}", "[" * 100_000, '{"update": "x"}', '{"update": 1e400, "exact": true}', '{"update": null}')


@pytest.mark.parametrize("text", [*DAMAGED, '{"update": %s, "exact": true}' % ("9" * 5000)])
def test_a_damaged_resume_file_makes_the_run_inexact(
    run: RunDirectory, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    run.resume_file.write_text(text)
    with pytest.raises(RecordError, match=r"resume\.json") as refused:
        resumed_from(run.path)
    assert "hive resume cart-1" in refused.value.hint
    prepare("cart-1", exact=True)
    assert chosen(run) == {"update": 100, "exact": False}
    err = capsys.readouterr().err
    assert "resume.json" in err
    assert "the run is marked as not exact" in err


def forge(checkpoint: Path, **values: object) -> None:
    """Change the state of a checkpoint, and its checksum."""
    state, done = checkpoint / "state.json", checkpoint / "DONE"
    state.write_text(json.dumps(json.loads(state.read_text()) | values))
    listing = json.loads(done.read_text())
    data = state.read_bytes()
    listing["files"]["state.json"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    done.write_text(json.dumps(listing))


@pytest.mark.rotates
@pytest.mark.parametrize("value", [None, "x", -1, 10**30, 1.5, True, [1], {"a": 1}, float("nan")], ids=ascii)
@pytest.mark.parametrize("key", ["env_steps", "updates", "gradient_workers", "per_version"])
def test_a_checkpoint_with_a_hostile_value_is_named_and_an_older_one_used(
    run: RunDirectory, capsys: pytest.CaptureFixture[str], key: str, value: object
) -> None:
    forge(run.checkpoints / "000150", **{key: value})
    prepare("cart-1", exact=False)
    assert chosen(run) == {"update": 100, "exact": True}
    assert f"000150/state.json`: `{key}` is not a whole number" in capsys.readouterr().err


def test_without_an_intact_checkpoint_the_error_names_the_way_out(run: RunDirectory) -> None:
    for checkpoint in ("000100", "000150"):
        forge(run.checkpoints / checkpoint, env_steps="x")
    with pytest.raises(UsageError, match="no intact checkpoint") as refused:
        prepare("cart-1", exact=False)
    assert refused.value.hint == f"none is intact: start a new run: hive up {run.resolved_file}"
    best = replace_best(run.best, 90, tensors={}, state={"mean_return": 1.0})
    with pytest.raises(UsageError) as refused:
        prepare("cart-1", exact=False)
    assert refused.value.hint.endswith(f"{run.resolved_file} --set run.init_from={best}")


def test_kept_lines_are_kept_byte_for_byte(run: RunDirectory) -> None:
    line = b'{"updates":  100, "steps": 1.50, "x/y": 1e5, "deep": ' + b"[" * 500 + b"]" * 500 + b"}\n"
    run.metrics_file.write_bytes(line + b"torn\n" + b'{"updates": 170}\n')
    prepare("cart-1", exact=False)
    assert run.metrics_file.read_bytes() == line


def test_auto_is_what_was_measured_when_the_run_started(run: RunDirectory, tmp_path: Path) -> None:
    numbers = {"collection.workers": 4, "collection.envs": 4, "network.backend": "torch"}
    write_choice(run, Choice(Placement(4, 0, 4, backend="torch"), numbers, "for a test"))
    before = load_config(run.resolved_file, recorded_sets(run))
    run.resolved_file.write_text(render(before))
    given = tmp_path / "auto.toml"
    given.write_text(
        '[run]\nstop_at_return = 475\n[env]\nid = "CartPole-v1"\n[collection]\nworkers = "auto"\n' + CONSTANT
    )
    prepare(run.name, exact=False, given=given)
    after = load_config(run.resolved_file)
    assert after.differences(before) == ["run.stop_at_return"]
    prepare(run.name, exact=False, sets=["collection.workers=auto", "run.stop_at_return=400"])
    assert load_config(run.resolved_file).differences(before) == ["run.stop_at_return"]
