"""`hive check` runs the topology briefly and leaves no files. (test_files and test_drawing test the drawing.)"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from hive.cli.parts import trial
from hive.cli.parts.about import memory_lines
from hive.config import load_config
from hive.envs import examination

if TYPE_CHECKING:
    from conftest import Place

SMALL = '[env]\nid = "CartPole-v1"\n[collection]\nenvs = 2\nrollout = 16\n[algorithm]\nepochs = 4\nminibatches = 4\n'
RAISES = """
import gymnasium, numpy

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return numpy.zeros(2, numpy.float32), {}

    def step(self, action):
        raise RuntimeError("the wheels came off")
"""
CARELESS = """
import gymnasium, numpy

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return [0.0, 0.0], {}

    def step(self, action):
        return [0.0, 2.0 * action], 1.0, False, False, {}
"""
PARTS = """
import gymnasium, numpy

class Env(gymnasium.Env):
    one = gymnasium.spaces.Box(-1, 1, (1,), numpy.float32)
    observation_space = gymnasium.spaces.Dict({"near": one, "far": one})
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"near": numpy.zeros(1, "f"), "far": numpy.zeros(1, "f")}, {}

    def step(self, action):
        return {"near": numpy.zeros(1, "f"), "far": numpy.zeros(1, "f")}, 1.0, True, False, {}
"""
CLOSE = """
from hive.algorithms import PPO

class Close(PPO):
    def added_loss(self, batch, outputs):
        return outputs[0].square().mean()
"""
SUM = """
import hive

class Counter(hive.Actor):
    async def run(self):
        self.end_run("counted")

def topology(config):
    t = hive.Topology()
    t.add(Counter)
    return t
"""
FOREVER = """
import asyncio, hive

class Waits(hive.Actor):
    async def run(self):
        await asyncio.Event().wait()

def topology(config):
    t = hive.Topology()
    t.add(Waits)
    return t
"""


@pytest.mark.parametrize("more", ["", "[evaluation]\nevery = { updates = 2 }\n[gradients]\nworkers = 2\n"])
def test_it_runs_two_hundred_steps_of_everything(place: Place, more: str) -> None:
    before = os.environ.get("HIVE_HOME")
    done = place.hive("check", place.config(SMALL + more))
    assert (done.code, done.err) == (0, "")
    trial, played, *drawn, following = done.out.splitlines()
    assert any(line.startswith("exact: ") for line in drawn)  # the drawing is longer, and comes after the results
    assert re.fullmatch(r"trial in this process: 2\d\d steps, (112|128) updates in \d+\.\d s", trial), trial
    assert re.fullmatch(
        r"random actions in `CartPole-v1`: 1,000 steps, (\d\d) episodes ended \(\1 terminated\)", played
    ), played
    assert following == f"next: hive up {place.folder / 'cart.toml'}"
    assert not place.runs.exists()
    assert os.environ.get("HIVE_HOME") == before


def test_what_will_not_be_recorded_is_a_warning(place: Place) -> None:
    """No picture is drawn: a renderer that crashes would take the command with it."""
    recorded = SMALL + "[evaluation]\nevery = { updates = 1 }\nvideos = 1\n"
    done = place.hive("check", place.config(recorded))
    assert (done.code, "warning" in done.out) == (0, False)
    (place.folder / "unseen_in_check.py").write_text(CARELESS)
    path = place.config(recorded.replace("CartPole-v1", "unseen_in_check:Env"))
    done = place.hive("check", path, "--draw")
    assert done.code == 0
    assert "warning: videos off: evaluation.videos: `unseen_in_check:Env` has no pictures" in done.out


def test_a_trial_with_a_replay_memory_makes_updates_at_once(place: Place) -> None:
    text = '[run]\nscheme = "dqn"\n[env]\nid = "CartPole-v1"\n[algorithm]\nlearning_starts = 5_000\n'
    assert json.loads(place.hive("check", place.config(text), "--json").out)["tried"]["updates"] > 0
    done = place.hive("check", place.config(text), "-s", "algorithm.replay_capacity=100_000_000_000")
    assert re.search(
        r"error: this run needs 5.00 TiB of memory.*`memory`.*\n.*lower algorithm.replay_capacity", done.err, re.DOTALL
    ), done.err


def test_the_trial_is_part_of_the_json(place: Place) -> None:
    done = place.hive("check", place.config(SMALL), "--json")
    tried = json.loads(done.out)["tried"]
    assert (tried["state"], tried["env_steps"] >= 200, tried["updates"] >= 7) == ("finished", True, True)


def test_the_trial_shows_how_updates_are_made(place: Place) -> None:
    """Parts are read within native calls, as one array is; layers of torch are not."""
    (place.folder / "parts_of_check.py").write_text(PARTS)
    native, parts = place.config(SMALL), place.config(SMALL.replace("CartPole-v1", "parts_of_check:Env"), "parts.toml")
    for path in (native, parts):
        assert "\nrounds: updates in native calls\n" in place.hive("check", path).out
    assert (
        "\nrounds: updates one by one (network: some" in place.hive("check", parts, "-s", "network.backend=torch").out
    )
    assert "rounds:" not in place.hive("check", parts, "--draw").out, "only a trial knows it"
    (place.folder / "close_of_check.py").write_text(CLOSE)
    named = place.hive("check", native, "-s", 'algorithm.name="close_of_check:Close"').out
    assert "\nrounds: updates by torch: Close.added_loss\n" in named


def test_errors_in_the_first_steps_are_found(place: Place) -> None:
    (place.folder / "breaks_in_check.py").write_text(RAISES)
    done = place.hive("check", place.config('[env]\nid = "breaks_in_check:Env"\n[collection]\nenvs = 2\n'))
    assert done.code == 1
    assert "breaks_in_check:Env raised RuntimeError: the wheels came off (breaks_in_check.py:12) in step" in done.err
    assert "exact: " in done.out  # the topology is drawn all the same
    assert "Traceback" not in done.err
    assert not place.runs.exists()


def test_what_an_environment_does_carelessly_is_a_warning(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "LONGER", 1)  # there is time for these steps on any machine
    monkeypatch.setattr(trial, "EXAMINED_S", 60.0)
    (place.folder / "careless_in_check.py").write_text(CARELESS)
    path = place.config('[env]\nid = "careless_in_check:Env"\n[collection]\nenvs = 2\nrollout = 16\n')
    done = place.hive("check", path, "-s", "run.seed=2")
    assert (done.code, done.err) == (0, "")
    _, played, *_, bounds, endless, kind, following = done.out.splitlines()
    assert played == "random actions in `careless_in_check:Env`: 1,000 steps, 0 episodes ended"
    assert kind.startswith("note: `careless_in_check:Env`: 1,001 of 1,001 observations are of type list, ")
    assert "observation[1] was 2, expected -1 to 1; " in bounds
    assert "no episode ended in 1,000 steps of random actions" in endless
    assert following == f"next: hive up {path} -s run.seed=2"
    found = json.loads(place.hive("check", path, "--json").out)["environment"]
    assert (found["steps"], found["episodes"], len(found["warnings"])) == (1_000, 0, 2)


def test_an_environment_is_examined_without_a_config(place: Place) -> None:
    done = place.hive("check", "--env", "CartPole-v1")
    assert (done.code, done.err) == (0, "")
    head, *lines, following = done.out.splitlines()
    facts = {line[:16].strip(): line[16:] for line in lines}
    assert head == "environment `CartPole-v1`"
    assert facts["observations"] == "4 numbers, stored as float32 [4]"
    assert facts["actions"] == "one of 2 actions"
    assert facts["rewards"] == "always 1 (1,000 steps of random actions)"
    assert re.fullmatch(r"\d\d ended, after .* \(mean 2\d\), with returns .*; limited to 500 steps", facts["episodes"])
    assert facts["same seed"] == "gives the same observations, rewards and ends"
    assert re.fullmatch(r".* ns a step, compiled, 256 at once: at most [\d,]+ steps/s a collector", facts["cost"])
    assert facts["settings"].startswith("scheme ppo, tuned: rl-baselines3-zoo, ppo.yml, CartPole-v1: ")
    storage = r"[\d.]+ KiB a rollout of 32 x 8 steps \([\d.]+ KiB if each truncates an episode\)"
    assert re.search(f"{storage}$", facts["storage"])
    assert facts["network"] == "4 dense layers, heads policy and value, 9,155 parameters"
    assert following == "next: hive init CartPole-v1"
    points = place.hive("check", "--env", "CartPole-v1", "-s", "algorithm.learning_rate_schedule=[[0, 1]]")
    assert "algorithm.learning_rate_schedule = [[0, 1.0]]" in points.out  # in place of the tuned rate
    assert not place.runs.exists()


def test_the_environment_of_a_config_is_examined_with_its_keys(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "LONGER", 1)
    (place.folder / "careless_in_check.py").write_text(CARELESS)
    path = place.config(SMALL + "[env.options]\n")
    found = json.loads(place.hive("check", path, "--env", "careless_in_check:Env", "--json").out)
    keys = "collection.envs = 2, collection.rollout = 16, algorithm.epochs = 4, algorithm.minibatches = 4"
    assert found["facts"]["settings"] == f"scheme ppo, {path}: {keys}"
    cost = r".* [um]s a step, .* [um]s a reset: at most [\d,]+ steps/s a collector"
    assert re.fullmatch(cost, found["facts"]["cost"])
    assert [text.partition(": ")[0] for text in found["warnings"]] == ["observations outside", "no episode ended"]
    accepted = place.hive("check", path, "--env", "careless_in_check:Env", "-s", 'run.accept=["no episode ended"]')
    assert "warning: observations outside" in accepted.out
    assert "warning: no episode ended" not in accepted.out
    unknown = place.hive("check", path, "-s", 'run.accept=["no epsode"]')
    assert (unknown.code, "run.accept" in unknown.err) == (2, True)
    refused = place.hive("check", "--env", "CartPol-v1")
    assert (refused.code, "did you mean `CartPole-v1`" in refused.err) == (2, True)


BREAKS_LATER = """
import gymnasium, numpy as np

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        reward = np.array([1.0]) if self.steps > 500 else 1.0
        return np.zeros(2, np.float32), reward, self.steps % 10 == 0, False, {}
"""


def test_what_would_end_a_run_is_an_error(place: Place) -> None:
    (place.folder / "later_in_check.py").write_text(BREAKS_LATER)
    config = place.config('[env]\nid = "later_in_check:Env"\n[collection]\nenvs = 2\nrollout = 16\n')
    for command in (
        ["check", "--env", "later_in_check:Env"],
        ["check", config],
        ["check", config, "--env", "CartPole-v1"],
    ):
        done = place.hive(*command)
        if command[-1] == "CartPole-v1":
            assert done.code == 0
            continue
        assert done.code == 1
        assert done.err.startswith(
            "error: later_in_check:Env returned the reward array([1.]), expected a finite number (env 0, step 501 of "
        )
        assert "hint: return float(reward) from step" in done.err
        assert "next: " not in done.out
        found = place.hive(*command, "--json")
        error = json.loads(found.out)
        assert found.code == 1
        assert (error if "facts" in error else error["environment"])["error"] in done.err


def test_large_rewards_are_to_be_normalised_with_a_replay_memory_too(place: Place) -> None:
    (place.folder / "large_in_check.py").write_text(BREAKS_LATER.replace("np.array([1.0])", "1e3"))
    done = place.hive("check", "--env", "large_in_check:Env", "-s", "run.scheme=dqn")
    assert done.code == 0
    assert "rewards up to 1000 are large; set network.normalize_rewards = true" in done.out


def test_a_topology_needs_no_config(place: Place) -> None:
    (place.folder / "sum_in_check.py").write_text(SUM)
    done = place.hive("check", "--topology", "sum_in_check.py")
    assert (done.code, done.err) == (0, "")
    assert "counter-0" in done.out
    assert done.out.splitlines()[-1] == "next: hive up --topology sum_in_check.py"
    nothing = place.hive("check")
    assert (nothing.code, nothing.out) == (2, "")
    assert nothing.err.startswith("error: no config given\n\nhint: ")


def test_a_topology_that_never_ends_is_left_after_a_while(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "LIMIT_S", 0.3)
    (place.folder / "waits_in_check.py").write_text(FOREVER)
    begun = time.monotonic()
    done = place.hive("check", place.config('[run]\ntopology = "waits_in_check.py"\n'), "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["tried"]["state"] == "stopped"
    assert "environment" not in json.loads(done.out)  # the topology need not have one
    assert time.monotonic() - begun < 60


HANGS = """
import sys, time
import gymnasium, numpy as np
from hive.cli import main

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}
    def step(self, action):
        time.sleep(1000)

if __name__ == "__main__":
    sys.exit(main(["check", sys.argv[1]]))
"""


def test_an_environment_that_does_not_come_back_is_named_and_left(place: Place) -> None:
    """No signal gets through to a loop that is not running."""
    script = place.folder / "hangs_in_check.py"
    script.write_text(HANGS)
    config = place.config('[env]\nid = "hangs_in_check:Env"\n[supervision]\nphase_limit_s = 0.3\n')
    command = [sys.executable, "-P", str(script), str(config)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place.folder), *sys.path]), "TMPDIR": str(place.folder)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=place.folder, env=env, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "error: the step of `hangs_in_check:Env` has not ended within 0.3 s; it is in hangs_in_check.py:12\n\nhint: "
    )
    assert not [*place.folder.glob("hive-check-*")]


SLOW = """
import time
import gymnasium, numpy as np

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.left = 20
        return np.zeros(3, np.float32), {}
    def step(self, action):
        time.sleep(0.02)
        self.left -= 1
        return np.zeros(3, np.float32), 1.0, not self.left, False, {}
"""


def test_a_trial_of_slow_steps_has_fewer_of_them(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "BUDGET_S", 0.5)
    monkeypatch.setattr(trial, "EXAMINED_S", 0.2)
    (place.folder / "slow_in_check.py").write_text(SLOW)
    config = place.config('[env]\nid = "slow_in_check:Env"\n')  # 16 environments and rollouts of 32 steps: 10 s
    begun = time.monotonic()
    done = place.hive("check", config)
    assert (done.code, done.err) == (0, "")
    tried, *_, following = done.out.splitlines()
    assert re.search(r": \d\d steps, [1-9]\d* updates in .* s \(fewer steps, because a step takes 0.02", tried), tried
    assert following.startswith("next: hive up")
    assert time.monotonic() - begun < 10
    monkeypatch.setattr(trial, "LIMIT_S", 0.1)
    done = place.hive("check", config)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("trial in this process: none, because a step takes 0.02")


FIRST = f"""
import sys
if "torch" in sys.modules:
    raise ImportError("import torch after this module")
{CARELESS.replace("1.0, False", "1.0, True")}
"""


def test_an_environment_apart_is_examined_apart(place: Place) -> None:
    """Its module may be one that must be imported before torch, as in a run with this config."""
    (place.folder / "apart_in_check.py").write_text(FIRST)
    config = place.config('[env]\nid = "apart_in_check:Env"\nprocesses = "each"\n')
    done = place.hive("check", config, "--env", "apart_in_check:Env")
    assert (done.code, done.err) == (0, "")
    assert "observations are of type list" in done.out
    assert re.search(r"same seed +gives the same", done.out), done.out


def test_a_network_that_learns_nothing_is_found(place: Place) -> None:
    (place.folder / "nan_in_check.py").write_text(NOT_A_NUMBER)
    done = place.hive("check", place.config(SMALL), "-s", "network.module=nan_in_check:Net")
    assert done.code == 1
    assert done.err.startswith("error: no gradient could be applied: the loss is nan, found by gradient-wo")
    assert "; its" not in done.err  # the folder of the dump is deleted with the trial run


NOT_A_NUMBER = """
from torch import nn

class Net(nn.Module):
    def __init__(self, given):
        super().__init__()
        self.layer = nn.Linear(4, 3)
    def forward(self, observations):
        outputs = self.layer(observations) * float("nan")
        return outputs[:, :2], outputs[:, 2]
"""


def test_a_picture_is_written_where_it_can_be(place: Place) -> None:
    path = place.folder / "cart.svg"
    done = place.hive("check", place.config(SMALL), "--draw", "--svg", path)
    assert (done.code, done.err) == (0, "")
    assert path.read_text().startswith("<svg ")
    refused = place.hive("check", place.config(SMALL), "--draw", "--svg", place.folder / "no" / "cart.svg")
    assert (refused.code, "cannot write" in refused.err) == (2, True)


def test_the_memory_of_the_policy_is_one_line() -> None:
    assert memory_lines(load_config("run.toml", text=SMALL)) == []
    sets = ["network.memory=gru", "network.memory_size=8"]
    lines = [
        memory_lines(load_config("run.toml", [*sets, f"network.separate_networks={separate}"], text=SMALL))
        for separate in ("true", "false")
    ]
    flow = "gradients flow back through a rollout of 16 steps"
    assert lines == [
        [f"memory: one gru of 8 cells for the policy and one for the value; {flow}"],
        [f"memory: one gru of 8 cells; {flow}"],
    ]


COUNTS_ITSELF = CARELESS.replace("1.0, False", "1.0, True").replace(
    "    def reset(",
    """    def __init__(self):
        with open("built.txt", "a") as file:
            file.write("x")

    def reset(""",
)


def test_an_environment_is_built_a_few_times(place: Place) -> None:
    (place.folder / "counted_in_check.py").write_text(COUNTS_ITSELF)
    assert place.hive("check", "--env", "counted_in_check:Env").code == 0
    assert len((place.folder / "built.txt").read_text()) <= 8  # simulators take seconds and memory for each


PRINTS = BREAKS_LATER.replace("np.array([1.0])", "1.0").replace(
    "super().reset(seed=seed)", 'super().reset(seed=seed)\n        print("reset")'
)


@pytest.mark.parametrize("command", [["check"], ["check", "--env", "prints_in_check:Env"]])
def test_what_an_environment_prints_is_not_in_the_json(place: Place, command: list[str]) -> None:
    (place.folder / "prints_in_check.py").write_text(PRINTS)
    config = place.config('[env]\nid = "prints_in_check:Env"\n[collection]\nenvs = 2\nrollout = 16\n')
    done = place.hive(*command, *([config] if len(command) == 1 else []), "--json")
    assert json.loads(done.out)
    assert "reset\n" in done.err


DEAD_END = """
import gymnasium, numpy as np

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict(
        {"seen": gymnasium.spaces.Box(-1, 1, (2,)), "action_mask": gymnasium.spaces.MultiBinary(3)}
    )
    action_space = gymnasium.spaces.Discrete(3)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(), {}

    def look(self):
        return {"seen": np.zeros(2, np.float32), "action_mask": np.full(3, self.steps % 7 != 5, np.int8)}

    def step(self, action):
        self.steps += 1
        return self.look(), 1.0, False, self.steps % 9 == 0, {}
"""


def test_an_environment_is_examined_with_the_settings_that_init_chooses(place: Place) -> None:
    (place.folder / "dead_end_in_check.py").write_text(DEAD_END)
    done = place.hive("check", "--env", "dead_end_in_check:Env")
    assert done.code == 1
    assert "of which a mask forbids some" in done.out
    assert 'env.action_mask = "action_mask"' in done.out
    assert "returned an action mask that allows no action (env 0, step 5 of this collector)" in done.err
    assert "hint: end the episode where nothing is left to do (terminated), or " in done.err


LONG = CARELESS.replace("False, False, {}", "False, self.ended(), {}").replace(
    "    def step(",
    "    steps = 0\n\n    def ended(self):\n        self.steps += 1\n        return self.steps % 500 == 0\n\n"
    "    def step(",
)


def test_episodes_longer_than_the_time_between_checkpoints_are_a_warning(place: Place) -> None:
    (place.folder / "long_in_check.py").write_text(LONG)
    config = place.config(
        '[run]\nscheme = "ppo"\n[env]\nid = "long_in_check:Env"\n[collection]\nenvs = 2\nrollout = 16\n'
        "[algorithm]\nepochs = 4\nminibatches = 2\n[checkpoint]\nevery = { updates = 80 }\n"
    )
    said = (
        "episodes of up to 500 steps are never finished, because environments begin anew at the checkpoints of checkpo"
    )
    for command in (["check", config], ["check", config, "--env", "long_in_check:Env"]):
        assert said in place.hive(*command).out
    assert said not in place.hive("check", "--env", "long_in_check:Env").out  # `hive init` chooses rare ones


def test_names_of_parameters_frozen_ones_and_what_only_the_critic_sees(place: Place) -> None:
    (place.folder / "parts_of_check.py").write_text(PARTS)
    sets = ('network.critic_parts=["far"]', 'network.frozen=["branches.0.trunk.1.*"]', "network.middleware=[3]")
    words = [word for text in ('env.id="parts_of_check.py:Env"', *sets) for word in ("-s", text)]
    path = place.config(SMALL)
    lines = place.hive("check", path, "--parameters", *words).out.splitlines()
    assert lines[:3] == [
        "PARAMETER                  SHAPE",
        "branches.0.trunk.1.weight  3 x 1  frozen",
        "branches.0.trunk.1.bias    3      frozen",
    ]
    found = json.loads(place.hive("check", path, "--parameters", "--json", *words).out)["parameters"]
    assert found[4] == {"name": "branches.1.trunk.1.weight", "shape": [3, 2], "frozen": False}
    out = place.hive("check", path, "--draw", *words).out
    assert "the policy sees near; only the critic also sees far" in out
    assert "frozen: 6 of 27 parameters" in out
