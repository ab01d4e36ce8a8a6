"""`hive eval`: the selection of checkpoints, the episodes played, and the output."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import gymnasium.envs.classic_control
import pytest

import hive
from hive.errors import RecordError, UsageError
from hive.launch.sources import checkpoints_of, sources
from hive.records import Checkpoint, RunDirectory, held, list_checkpoints
from hive.records.sinks.videos import PACKAGES
from hive.runtime.run.folders import make_socket_folder

if TYPE_CHECKING:
    from conftest import Place


@pytest.fixture
def run(place: Place) -> RunDirectory:
    return place.trained((100, 200, 300), best=150)


@pytest.mark.parametrize(
    ("which", "updates"),
    [("latest", [300]), ("best", [150]), ("all", [100, 200, 300]), ("100", [100]), ("000200", [200])],
)
def test_which_checkpoints(run: RunDirectory, which: str, updates: list[int]) -> None:
    assert [checkpoint.update for checkpoint in checkpoints_of(run, which)] == updates


@pytest.mark.parametrize("which", ["400", "-1", "", "oldest", "../000100"])
def test_an_unknown_checkpoint(run: RunDirectory, which: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"cartpole-1 has no checkpoint `{which}`")) as error:
        checkpoints_of(run, which)
    assert error.value.hint == "use latest, best, all, or one of 000100, 000200, 000300"


def damage(checkpoint: Path) -> None:
    """Change one bit of one weight."""
    file = checkpoint / "weights.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 16
    file.write_bytes(content)


def test_a_damaged_checkpoint_is_named_by_all_that_take_an_older_one(place: Place, run: RunDirectory) -> None:
    damage(run.checkpoints / "000300")
    done = place.hive("eval", "--episodes", 1)
    assert (done.code, "000200" in done.out) == (0, True)
    for text in (done.err, place.hive("export", "-o", place.folder / "a.safetensors").err):
        assert re.match(r"warning: .* of update 200, .* damaged: .*000300/weights\.safetensors", text)
    with pytest.warns(RuntimeWarning, match="damaged") as caught:
        assert hive.load(run.path).updates == 200
    assert caught[0].filename == __file__
    assert "left out" in place.hive("eval", "--which", "all", "--episodes", 1).err
    assert "damaged" in place.hive("doctor", "cartpole").out
    for words in (("--which", "300"), ("--which", "000300")):
        done = place.hive("eval", *words)
        assert (done.code, "damaged" in done.err) == (1, True)


def test_damaged_checkpoints_are_not_missing_ones(place: Place, run: RunDirectory) -> None:
    for folder in (*run.checkpoints.iterdir(), *run.best.iterdir()):
        damage(folder)
    (run.checkpoints / "000300/DONE").unlink()
    for words in (("eval",), ("eval", "--which", "all"), ("eval", "--which", "best"), ("export",)):
        done = place.hive(*words)
        assert (done.code, "is damaged" in done.err) == (1, True)
    for place_, which in ((run.path, "latest"), (run.path, "best"), (run.checkpoints / "000200", "latest")):
        with pytest.raises(RecordError, match="is damaged"):
            hive.load(place_, which)
    with pytest.raises(RecordError, match="000300/DONE"):
        hive.load(run.checkpoints / "000300")


def test_a_table_of_all_that_were_asked_for(place: Place, run: RunDirectory) -> None:
    done = place.hive("eval", "cartpole", run.path, "--which", "all", "--episodes", 3)
    assert (done.code, done.err) == (0, "")
    head, *rows = [re.split(r"\s{2,}", line) for line in done.out.splitlines()]
    assert head == ["RUN", "CHECKPOINT", "STEPS", "EPISODES", "RETURN", "DEVIATION", "MIN", "MAX", "LENGTH"]
    steps = [("000100", "3,200"), ("000200", "6,400"), ("000300", "9,600")]
    assert [(row[1], row[2]) for row in rows] == steps * 2
    assert {tuple(row[3:]) for row in rows} == {tuple(rows[0][3:])}  # the same weights, the same episodes
    assert re.fullmatch(r"[\d.]+ ± [\d.]+", rows[0][4])
    assert float(rows[0][8]) == pytest.approx(float(rows[0][4].split()[0]), abs=0.06)  # each step of CartPole earns 1


def test_one_episode_has_no_interval(place: Place, run: RunDirectory) -> None:
    assert "±" not in place.hive("eval", "--episodes", 1).out
    (one,) = json.loads(place.hive("eval", "--episodes", 1, "--json").out)
    assert one["interval_95"] is None


def test_for_programs(place: Place, run: RunDirectory) -> None:
    done = place.hive("eval", "cartpole-1", "--episodes", 4, "--seed", 3, "--sample", "--json")
    (one,) = json.loads(done.out)
    assert one.keys() == {
        *("run", "checkpoint", "updates", "env_steps", "episodes", "mean_return", "deviation", "min", "max"),
        *("mean_length", "wall_s", "interval_95", "seed", "seeds", "sampled", "info", "cut", "balanced", "counted"),
    }
    assert (one["run"], one["updates"], one["env_steps"], one["episodes"]) == ("cartpole-1", 300, 9600, 4)
    assert (one["seed"], one["sampled"]) == (3, True)
    other = json.loads(place.hive("eval", "cartpole-1", "--episodes", 4, "--seed", 4, "--sample", "--json").out)[0]
    assert other["mean_return"] != one["mean_return"]


def test_keys_of_the_environment_can_be_set(place: Place, run: RunDirectory) -> None:
    done = place.hive("eval", "-s", "env.id=Acrobot-v1")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "error: the observations of the policy and of `Acrobot-v1` differ in shape: (4,) and (6,)\n"
    )
    assert "unknown key" in place.hive("eval", "-s", "env.nothing=1").err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--episodes", "0"), "argument --episodes: invalid number of episodes `0`: expected a whole number >= 1"),
        (
            ("--episodes", "many"),
            "argument --episodes: invalid number of episodes `many`: expected a whole number >= 1",
        ),
        (("--seed", "-1"), "argument --seed: invalid seed `-1`: expected a whole number >= 0"),
        (("--which", "9"), "cartpole-1 has no checkpoint `9`"),
        (("nobody",), "no run matches `nobody`"),
    ],
)
def test_mistakes_play_nothing(place: Place, run: RunDirectory, words: tuple[str, ...], told: str) -> None:
    done = place.hive("eval", *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {told}")


def test_the_default_is_the_newest_run_of_the_folder_and_not_a_live_one_elsewhere(
    place: Place, run: RunDirectory
) -> None:
    other = RunDirectory.create(place.folder / "other", "pong")
    place.serve(other, None, started=5.0)
    make_socket_folder(other.path)
    (one,) = json.loads(place.hive("eval", "--episodes", 1, "--json").out)
    assert one["run"] == "cartpole-1"
    assert json.loads(place.hive("export", "-o", "p.safetensors", "--json").out)["facts"]["run"] == "cartpole-1"


def test_a_run_without_a_checkpoint(place: Place) -> None:
    place.ended()
    done = place.hive("eval")
    why = "it ended before the first one; checkpoint.every says how often one is written"
    assert (done.code, done.err) == (2, f"error: cartpole-1 has no checkpoint\n\nhint: {why}\n")
    place.live(None, "pong")
    assert place.hive("eval").err == "error: pong-1 has no checkpoint\n\nhint: `hive save pong-1` writes one now\n"


def test_the_best_policy_is_played(place: Place, run: RunDirectory) -> None:
    done = place.hive("eval", "--which", "best", "--episodes", 2)
    assert re.split(r"\s{2,}", done.out.splitlines()[1])[:3] == ["cartpole-1", "best/000150", "4,800"]


def test_without_a_best_policy_the_error_says_when_there_is_one(place: Place, run: RunDirectory) -> None:
    shutil.rmtree(run.best)
    done = place.hive("eval", "--which", "best")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: cartpole-1 has no best policy\n")
    assert "from the first evaluation on; without [evaluation] every, from the 100th training episode on" in done.err


def test_several_seeds_are_joined(place: Place, run: RunDirectory) -> None:
    (both,) = json.loads(place.hive("eval", "--episodes", 3, "--seeds", "4..5", "--json").out)
    each = [json.loads(place.hive("eval", "--episodes", 3, "--seed", seed, "--json").out)[0] for seed in (4, 5)]
    assert [one["mean_return"] for one in both["seeds"]] == [one["mean_return"] for one in each]
    assert both["episodes"] == 6
    assert both["mean_return"] == pytest.approx(sum(one["mean_return"] for one in each) / 2)


def test_a_checkpoint_that_is_removed_while_it_is_played(run: RunDirectory) -> None:
    checkpoint = sources(str(run.path), "100")[0].checkpoint
    shutil.rmtree(checkpoint.path)
    assert checkpoint.tensors().keys() == list_checkpoints(run.checkpoints)[0].tensors().keys()


def test_a_checkpoint_that_is_removed_before_it_is_read(run: RunDirectory) -> None:
    """The next attempt finds its successor."""
    finds = 0

    def find() -> list[Checkpoint]:
        nonlocal finds
        finds += 1
        found = checkpoints_of(run, "latest")
        if finds == 1:
            shutil.rmtree(found[0].path)
        return found

    assert [checkpoint.update for checkpoint in held(find)] == [200]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("eval", "--video", "a.avi"), "`a.avi` is no name of a video"),
        (("eval", "--video", "a.gif", "--which", "all"), "--video records one checkpoint, and 3 are selected"),
        (("eval", "--video-episodes", "2"), "--video-episodes needs --video FILE"),
        (("eval", "--seed", "1", "--seeds", "1..2"), "--seed and --seeds exclude each other"),
        (("play", "--which", "all"), "hive play shows one checkpoint"),
    ],
)
def test_mistakes_with_videos_and_seeds(place: Place, run: RunDirectory, words: tuple[str, ...], told: str) -> None:
    done = place.hive(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {told}")


def test_a_policy_is_recorded_where_there_is_no_display(
    place: Place, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pygame", reason="needs the extra video")
    pytest.importorskip("PIL", reason="needs the extra video")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(PACKAGES, ".mp4", ("no_such_module", "imageio-ffmpeg"))
    done = place.hive("play", "--seed", 3)
    assert done.code == 0, done.err
    file = run.videos / "play-000300-seed3.gif"
    assert re.fullmatch(rf"{re.escape(str(file))}: \d\.\d s, 1 episode, return \d+\.0\n", done.out)
    assert list(run.videos.iterdir()) == [file]


def test_what_is_drawn_here_is_imported_before_torch_if_it_has_processes_without_it(place: Place) -> None:
    (place.folder / "early.py").write_text("import sys\nassert 'torch' not in sys.modules\nclass Early: ...\n")
    place.config('[env]\nid = "early:Early"\nprocesses = "each"\n')
    program = (
        "import sys, types; from hive.config import load_config; sys.path.append('.')\n"
        "from hive.launch.sources import import_before_torch\n"
        "import_before_torch(types.SimpleNamespace(config=lambda sets: load_config('cart.toml', sets)), [])\n"
        "assert 'early' in sys.modules; del sys.modules['early']\n"
        "import_before_torch(types.SimpleNamespace(config=lambda sets: load_config('cart.toml', sets)), "
        "['env.processes=0'])\n"
        "assert 'early' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=place.folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- hive.evaluate


@pytest.fixture
def home(place: Place, run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setenv("HIVE_HOME", str(place.runs))
    return run


def test_it_gives_the_numbers_of_the_command(place: Place, home: RunDirectory) -> None:
    (told,) = json.loads(place.hive("eval", "cartpole-1", "--episodes", 20, "--sample", "--json").out)
    score = hive.evaluate("cartpole-1", sample=True)
    names = ("mean_return", "deviation", "min", "max", "mean_length", "cut", "info")
    assert {name: getattr(score, name) for name in names} == {name: told[name] for name in names}
    mean, deviation = score
    assert (mean, deviation, len(score.lengths)) == (score.returns.mean(), score.returns.std(), 20)
    assert (score.agents, score.returns.tolist()) == ({}, score.lengths.tolist())  # each step of CartPole earns 1
    for policy in (hive.Result.open("cartpole-1"), home.path, hive.load("cartpole-1")):
        assert hive.evaluate(policy, sample=True).returns.tolist() == score.returns.tolist()


def test_a_function_plays_from_the_same_initial_states(home: RunDirectory) -> None:
    policy, options = hive.load("cartpole-1"), {"episodes": 5, "seed": 3}
    returns = hive.evaluate(policy, **options).returns.tolist()
    for env in ("CartPole-v1", gymnasium.envs.classic_control.CartPoleEnv, lambda: gymnasium.make("CartPole-v1")):
        assert hive.evaluate(policy, env, **options).returns.tolist() == returns
        assert hive.evaluate(lambda seen: policy(seen), env, **options).returns.tolist() == returns
        predict = hive.evaluate(lambda seen: (policy(seen), None), {"id": env}, **options)  # as of other trainers
        assert predict.returns.tolist() == returns
    one = gymnasium.make("CartPole-v1")
    assert (hive.evaluate(policy, one, **options).returns == hive.evaluate(policy, envs=1, **options).returns).all()
    assert one.reset(seed=1)[0].shape == (4,), "it is left open"
    assert hive.evaluate(lambda seen: 0, one, max_steps=3, episodes=2).cut == 2


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((lambda seen: 0,), {}, "a function has no environment"),
        ((lambda seen: 0, gymnasium.make("CartPole-v1")), {"envs": 2}, "`env` is one environment, and envs is 2"),
        ((lambda seen: 0, gymnasium.make_vec("CartPole-v1", 2)), {}, "`env` is a vector of 2 environments"),
        ((lambda seen: 2, "CartPole-v1"), {}, "the function returned 2 for an observation, and the actions of"),
        ((lambda seen: [][1], "CartPole-v1"), {}, r"the function .* raised IndexError: .*test_evaluate.py:\d+\)"),
        ((lambda seen: 0, "CartPole-v1"), {"sample": True}, "a function has no distribution"),
        ((lambda seen: 0, {"id": "CartPole-v1", "frame_stack": 4}), {}, "so env.frame_stack is not for it"),
        (
            ("cartpole-1", gymnasium.envs.classic_control.AcrobotEnv),
            {},
            r"`AcrobotEnv` differ in shape: \(4,\) and \(6,\)",
        ),
        (("cartpole-1",), {"episodes": 0}, "`episodes` is 0, expected a whole number >= 1"),
        ((7, "CartPole-v1"), {}, "`policy` is of type int, expected a policy"),
        (("nobody",), {}, "no run matches `nobody`"),
    ],
)
def test_what_cannot_be_evaluated(home: RunDirectory, arguments: Any, options: Any, text: str) -> None:
    before = {*sys.modules}
    with pytest.raises(UsageError, match=text):
        hive.evaluate(*arguments, **options)
    assert not [name for name in {*sys.modules} - before if name.startswith("inline_")]


def test_wrappers_of_the_run_that_are_left_out_are_named(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The spaces are those of the environment without them, and the numbers are not."""
    monkeypatch.setenv("HIVE_HOME", str(place.runs))
    place.trained((100,), 0, ['env.wrappers=["NormalizeObservation"]'])
    wrapped = gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1"))
    for env in (None, {"id": "CartPole-v1", "wrappers": ["NormalizeObservation"]}, wrapped):
        hive.evaluate("cartpole-1", env, episodes=2)
    assert capsys.readouterr().err == ""
    hive.evaluate("cartpole-1", "CartPole-v1", episodes=2)
    assert "trained with the wrapper `NormalizeObservation`" in capsys.readouterr().err


def test_a_policy_and_a_result_make_the_environment_of_the_run(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIVE_HOME", str(place.runs))
    place.trained((100,), 0, ['env.wrappers=["NormalizeObservation"]', "env.options={ max_episode_steps = 7 }"])
    policy, result = hive.load("cartpole-1"), hive.Result.open("cartpole-1")
    assert "`CartPole-v1` with `NormalizeObservation`" in repr(policy)
    hive.export("cartpole-1", tmp_path / "pole.safetensors")
    for source in (policy, result, hive.load(tmp_path / "pole.safetensors")):
        environment = source.environment()
        seen, steps, ended = environment.reset(seed=1)[0], 0, False
        while not ended:
            seen, _, terminated, truncated, _ = environment.step(policy(seen))
            steps, ended = steps + 1, terminated or truncated
        assert (type(environment).__name__, steps <= 7) == ("NormalizeObservation", True)
        environment.close()
    assert policy.environment("rgb_array").reset(seed=1)[0].shape == (4,)
    policy.checkpoint = None
    with pytest.raises(UsageError, match="not loaded from a run"):
        policy.environment()
