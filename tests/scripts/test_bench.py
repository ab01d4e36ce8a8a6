"""scripts/bench: its arithmetic, its reports, and one quick run of one contender."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from benchmarks.command import parser
from benchmarks.figures import Spread, best_of, medians, ratio_of, spread_of
from benchmarks.hive_run import Look, figures_between, lags_of
from benchmarks.machine import cpu_model, taken_cpu_s
from benchmarks.off_policy import APART, OFF_POLICY, ONE_PROCESS, ReplaySetting, keys
from benchmarks.peer_environments import REQUIREMENTS, environment_folder
from benchmarks.programs import BenchError, last_json, run_program
from benchmarks.report import checks_of, document_of, text_of
from benchmarks.table import WIDTH
from benchmarks.throughput import ON_POLICY, chosen, config_of, contenders, measure

from hive.config import load_config

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "scripts" / "bench"
ALL = contenders(Path("sketch.py"), ["sb3"], Path("cache"))
CORES = 4


# --- figures


def test_a_spread_is_median_least_and_most() -> None:
    assert spread_of([3.0, 1.0, 7.0]) == Spread(3.0, 1.0, 7.0)
    with pytest.raises(ValueError, match="no value"):
        spread_of([])


def test_a_ratio_is_the_median_of_those_of_each_repetition() -> None:
    """A machine that is twice as slow in one repetition changes no ratio; the ratio of the medians would be 1.5."""
    assert ratio_of([100.0, 60.0, 120.0], [50.0, 30.0, 60.0]) == Spread(2.0, 2.0, 2.0)
    assert ratio_of([1.0, 3.0, 100.0], [1.0, 2.0, 400.0]).median == 1.0
    with pytest.raises(ValueError, match="2 values cannot be compared with 1"):
        ratio_of([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="rate of 0"):
        ratio_of([1.0], [0.0])


def test_the_best_is_so_in_the_median() -> None:
    assert best_of({"steady": [10.0, 11.0, 12.0], "lucky": [1.0, 2.0, 99.0]}) == "steady"


def test_medians_are_of_every_key() -> None:
    assert medians([{"a": 1.0, "b": None}, {"a": 5.0, "b": 1.0}, {"a": 2.0, "b": 1.0}]) == {"a": 2.0, "b": None}
    assert medians([]) == {}


# --- what others print


def test_the_last_line_of_a_program_counts() -> None:
    assert last_json('a warning\n{"steps_per_s": 5, "lag": 1}\n', "x") == {"steps_per_s": 5, "lag": 1}


@pytest.mark.parametrize("text", ["", "5", "[1]", "{}", '{"steps_per_s": 0}', '{"steps_per_s": "many"}', "{half"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BenchError, match="printed no JSON object with steps_per_s above 0"):
        last_json(text, "sketch.py")


def test_a_program_that_fails_says_why() -> None:
    with pytest.raises(BenchError, match="ended with code 3\nbroken"):
        run_program([sys.executable, "-P", "-c", "import sys; print('broken', file=sys.stderr); sys.exit(3)"], 1.0)


def test_a_programs_rate_comes_back() -> None:
    assert run_program([sys.executable, "-P", "-c", "print('{\"steps_per_s\": 7}')"], 1.0) == {"steps_per_s": 7}


def test_the_machine_is_read_from_the_kernels_files() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n") == "A CPU @ 2 GHz"
    assert cpu_model("") != ""
    # user nice system idle iowait irq softirq steal guest: all but idle and iowait, in ticks of 10 ms
    assert taken_cpu_s("cpu  100 10 20 9999 9999 3 2 65 50 0\ncpu0 1\n") == pytest.approx(2.0)


def test_other_requirements_get_another_environment() -> None:
    cache = Path("cache")
    folder = environment_folder(cache, "sb3", REQUIREMENTS["sb3"])
    assert folder.parent == cache
    assert folder == environment_folder(cache, "sb3", REQUIREMENTS["sb3"])
    assert folder != environment_folder(cache, "sb3", (*REQUIREMENTS["sb3"], "gymnasium"))


# --- contenders


@pytest.mark.parametrize("setting", ON_POLICY, ids=lambda setting: setting.name)
@pytest.mark.parametrize("collectors", [0, 1, 2])
def test_the_configs_equal_the_settings_of_the_sketch(setting: Any, collectors: int, tmp_path: Path) -> None:
    path = tmp_path / "bench.toml"
    path.write_text(config_of(setting, collectors))
    config = load_config(path)
    assert (config.collection.workers, config.gradients.workers) == (collectors, 0)
    envs = setting.envs // 2 if setting.envs_are_shared and collectors == 2 else setting.envs
    assert (config.collection.envs, config.collection.rollout) == (envs, setting.rollout)
    assert config.collection.communication == ("pipelined" if collectors else "synchronous")
    assert config.collection.slots == (3 if collectors else 2)
    assert (config.algorithm.gae_lambda, config.algorithm.learning_rate) == (1.0, 1e-3)
    assert config.network.middleware == (() if config.env.preset == "atari" else (64, 64))


def test_what_is_compared_is_measured_side_by_side() -> None:
    names = [contender.name for contender in ALL]
    assert len(set(names)) == len(names) == 28 + 15
    for ours, theirs in (("single", "fused"), ("1-collector", "1-collector"), ("2-collectors", "2-collectors")):
        assert names.index(f"vector-64/sketch-{theirs}") == names.index(f"vector-64/{ours}") + 1
    assert [contender.shape for contender in contenders(None, [], Path("cache"))] == [
        *("bare", "single", "1-collector", "1-collector-zmq", "2-collectors"),
        *("bare", "single", "1-collector", "1-collector-zmq", "2-collectors"),
        *("bare", "single", "1-collector", "1-collector-zmq", "2-collectors"),
        *("bare", "single", "1-collector", "1-collector-zmq", "2-collectors"),
        *("single", "1-collector", "2-workers") * 3,
    ]


@pytest.mark.parametrize("setting", OFF_POLICY, ids=lambda setting: setting.name)
@pytest.mark.parametrize("arrangement", [ONE_PROCESS, APART], ids=["single", "1-collector"])
def test_a_run_with_a_replay_memory_has_the_settings_of_its_task(setting: ReplaySetting, arrangement: Any) -> None:
    config = load_config("bench.toml", keys(setting, arrangement), text="")
    given: Any = config.algorithm
    workers = int(arrangement is APART)
    assert (config.collection.workers, config.gradients.workers) == (workers, 0)
    assert (config.collection.communication, config.collection.max_lag) == (
        ("pipelined", 1) if workers else ("synchronous", 0)
    )
    assert given.batch_size == {"dqn-lunarlander": 128, "dqn-cartpole": 64, "sac-halfcheetah": 256}[setting.name]
    assert (config.network.middleware, config.collection.envs) == ((256, 256), 1)
    assert Fraction(given.updates_per_step) * setting.steps_per_update == 1
    assert setting.steps_per_update == (2 if setting.name == "dqn-cartpole" else 1)
    assert given.learning_starts <= 1000
    assert getattr(given, "exploration_steps", 1000) == 1000, "no decrease while it is measured"


def test_the_steps_before_the_first_update_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []

    def measured_run(*given: Any) -> dict[str, float]:
        seen.append(given)
        return {"steps_per_s": 9999.0, "updates_per_s": 100.0}

    monkeypatch.setattr("benchmarks.off_policy.measure_run", measured_run)
    those = {contender.name: contender for contender in contenders(None, [], Path("cache"))}
    rates = {shape: those[f"dqn-cartpole/{shape}"].measure(1.5)["steps_per_s"] for shape in ("single", "1-collector")}
    assert rates == {"single": 200.0, "1-collector": 200.0}
    assert [(config, seconds) for config, seconds, _ in seen] == [("", 1.5)] * 2
    assert [given[-len(APART) :] for _, _, given in seen] == [[*ONE_PROCESS], [*APART]]


def test_sb3_has_one_thread_and_then_as_many_as_torch_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[Any]] = []
    monkeypatch.setattr("benchmarks.contender.peer_python", lambda peer, cache: f"{cache}/{peer}/python")
    monkeypatch.setattr("benchmarks.contender.run_program", lambda command, *_: commands.append(command))
    for contender in chosen(ALL, ["sac-halfcheetah/sb3*", "*-16/sb3"]):
        contender.measure(1.5)
    assert {command[0] for command in commands} == {"cache/sb3/python"}
    assert [(*command[3:5], json.loads(command[5])["env"]) for command in commands] == [
        *((1.5, 1, "CartPole-v1"), (1.5, 0, "ALE/Pong-v5")),
        *((1.5, 1, "HalfCheetah-v5"), (1.5, 0, "HalfCheetah-v5")),
    ]
    assert (json.loads(commands[2][5])["batch"], json.loads(commands[0][5])["envs"]) == (256, 16)


def test_contenders_are_chosen_by_name() -> None:
    names = {contender.setting.name for contender in chosen(ALL, ["dqn-*", "sac-*"])}
    assert names == {"dqn-lunarlander", "dqn-cartpole", "sac-halfcheetah"}
    assert [contender.shape for contender in ALL if contender.needs("sb3")] == ["sb3"] * 2 + ["sb3-1-thread", "sb3"] * 3
    assert [contender.name for contender in chosen(ALL, ["*/bare", "*/sb3"])] == [
        *("python-16/bare", "python-16/sb3", "vector-64/bare", "compiled-1024/bare", "pong-16/bare", "pong-16/sb3"),
        *("dqn-lunarlander/sb3", "dqn-cartpole/sb3", "sac-halfcheetah/sb3"),
    ]
    assert chosen(ALL, []) == ALL
    assert chosen(ALL, ["nothing"]) == []


def test_repetitions_are_interleaved() -> None:
    said: list[str] = []
    those = [contender_like(name, rate) for name, rate in (("single", 10.0), ("bare", 20.0))]
    found = measure(those, 2, 1.0, said.append)
    assert [line.split()[:2] for line in said] == [
        *(["1/2", "python-16/single"], ["1/2", "python-16/bare"]),
        *(["2/2", "python-16/single"], ["2/2", "python-16/bare"]),
    ]
    assert [m["steps_per_s"] for m in found["python-16/bare"]] == [20.0, 20.0]
    assert all(m["others_cores"] >= 0.0 for measurements in found.values() for m in measurements)


def contender_like(shape: str, rate: float) -> Any:
    """Return the contender of this shape with a known measurement."""
    known = next(contender for contender in ALL if contender.name == f"python-16/{shape}")
    return type(known)(known.setting, shape, known.title, lambda seconds: {"steps_per_s": rate})


# --- figures of a run


def actor(name: str, pid: int, phases: Mapping[str, tuple[str, float]], **counters: float) -> dict[str, Any]:
    """Return an actor of a status; `phases`: name -> (kind, seconds)."""
    total = sum(seconds for _, seconds in phases.values())
    shares = {
        kind: sum(seconds for k, seconds in phases.values() if k == kind) / total
        for kind in ("busy", "wait_in", "wait_out", "runtime")
    }
    seconds = {phase: seconds for phase, (_, seconds) in phases.items()}
    return {"name": name, "pid": pid, "phases": seconds, "counters": counters, **shares}


def look(at: float, cpu: Mapping[int, float], actors: list[dict[str, Any]], **produced: int) -> Look:
    status = {
        "pid": 1,
        "helpers": [{"name": "fork-server", "pid": 2}],
        "actors": actors,
        "results": next((one["counters"] for one in actors if one["name"] == "learner-0"), {}),
        "channels": {name: {"produced": count} for name, count in produced.items()},
    }
    return Look(at, status, cpu)


def collector(busy: float, runtime: float, waiting: float) -> dict[str, Any]:
    phases = {"env": ("busy", 0.75 * busy), "policy": ("busy", 0.25 * busy)}
    return actor("collector-0", 3, {**phases, "runtime": ("runtime", runtime), "wait weights": ("wait_in", waiting)})


def learner(busy: float, runtime: float, waiting: float, updates: int) -> dict[str, Any]:
    phases = {"update": ("busy", busy), "runtime": ("runtime", runtime), "wait gradients": ("wait_in", waiting)}
    return actor("learner-0", 4, phases, updates=updates, **{"metrics:produced": 1.0})


def test_the_figures_of_a_run_are_differences_of_two_samples() -> None:
    before = [collector(3.0, 2.0, 0.0), learner(1.0, 1.0, 3.0, 5)]
    after = [collector(3.0 + 8.0, 2.0 + 1.0, 0.0 + 1.0), learner(1.0 + 1.0, 1.0 + 1.0, 3.0 + 8.0, 25)]
    first = look(5.0, {1: 0.5, 2: 2.0, 3: 5.0, 4: 2.0}, before, rollouts=10, gradients=10, metrics=1)
    last = look(15.0, {1: 1.0, 2: 2.0, 3: 14.0, 4: 4.5}, after, rollouts=60, gradients=60, metrics=6)
    found = figures_between(first, last)
    assert found["collector_share"] == pytest.approx(0.8)
    assert found["collector_wait_share"] == pytest.approx(0.1)
    assert (found["learner_share"], found["gradient_worker_share"]) == (pytest.approx(0.1), None)
    assert (found["slots_per_s"], found["messages_per_s"]) == (10.0, 0.5)
    assert found["cpu_cores"] == pytest.approx((0.5 + 9.0 + 2.5) / 10.0)
    assert found["cpu_cores_of"] == {
        "supervisor": 0.05,
        "fork-server": 0.0,
        "collector-0": 0.9,
        "learner-0": 0.25,
    }
    # the supervisor whole, a ninth of the collector's 9 s, half of the learner's 2.5 s
    assert found["runtime_cpu_share"] == pytest.approx((0.5 + 1.0 + 1.25) / 12.0)
    assert found["phases_ms"]["collector-0"]["env"] == pytest.approx(1e3 * 0.75 * 8.0 / 20)


def test_in_a_shared_process_time_of_no_actor_counts_for_the_runtime() -> None:
    """While one of two actors works, the other's page shows "runtime", which must not count twice."""
    before = [{**collector(1.0, 1.0, 0.0), "pid": 4}, learner(1.0, 1.0, 1.0, 5)]
    after = [{**collector(1.0 + 7.0, 1.0 + 1.0, 0.0 + 2.0), "pid": 4}, learner(1.0 + 2.0, 1.0 + 8.0, 1.0, 10)]
    found = figures_between(look(0.0, {1: 0.0, 2: 0.0, 4: 1.0}, before), look(10.0, {1: 0.0, 2: 0.0, 4: 11.0}, after))
    assert found["runtime_cpu_share"] == pytest.approx(0.1)
    assert found["cpu_cores_of"]["collector-0 + learner-0"] == 1.0


def test_lags_are_means_over_the_lines_that_have_them() -> None:
    lines = [{"lag/policy_mean": 1.0, "lag/gradient_mean": 0.0}, {"lag/policy_mean": 2.0}, {}]
    assert lags_of(lines) == {"policy_lag": 1.5, "gradient_lag": 0.0}
    assert lags_of([]) == {"policy_lag": None, "gradient_lag": None}


# --- the report


def measured(rate: float, **figures: float) -> list[dict[str, Any]]:
    """Return three repetitions on a machine that is slower in the second."""
    return [{"steps_per_s": rate * pace, "others_cores": 0.0, **figures} for pace in (1.0, 0.5, 1.25)]


def run(rate: float, share: float = 0.9, waits: float = 0.0, runtime: float = 0.04) -> list[dict[str, Any]]:
    figures = {"collector_share": share, "collector_wait_share": waits, "runtime_cpu_share": runtime, "cpu_cores": 1.5}
    return measured(rate, **figures, slots_per_s=80.0, messages_per_s=1.0, policy_lag=1.0, gradient_lag=0.0)


RESULTS = {
    "python-16/bare": measured(100.0),
    "python-16/single": run(72.0),
    "python-16/sketch-fused": measured(80.0),
    "python-16/1-collector": run(96.0, share=0.8),
    "python-16/sketch-1-collector": measured(128.0),
    "python-16/sb3": measured(32.0),
}
THOSE = [contender for contender in ALL if contender.name in RESULTS]


def verdicts(results: Mapping[str, Any] = RESULTS, cores: int = CORES) -> dict[str, tuple[str, bool | None]]:
    return {check.promise: (check.measured, check.passed) for check in checks_of(results, cores)}


def test_every_promise_is_judged_where_it_was_measured() -> None:
    """Contenders that were not measured, (d) and the other setting, have no checks."""
    assert verdicts() == {
        "python-16: hive single >= 0.8 x sketch-fused": ("0.90 (0.90..0.90)", True),
        "python-16: hive 1-collector >= 0.8 x sketch-1-collector": ("0.75 (0.75..0.75)", False),
        "python-16: the best of hive (1-collector) > sketch-fused": ("1.20 (1.20..1.20)", True),
        "python-16: the best of hive (1-collector) > sb3": ("3.00 (3.00..3.00)", True),
        "python-16: a bottleneck collector spends >= 85% in environment + policy": ("80.0%", False),
        "python-16: the runtime of hive single takes <= 5% of the CPU": ("4.0%", True),
        "python-16: the runtime of hive 1-collector takes <= 5% of the CPU": ("4.0%", True),
    }


REPLAY_RESULTS = {
    "dqn-cartpole/single": run(60.0),
    "dqn-cartpole/1-collector": measured(90.0, updates_per_s=45.0, gradient_worker_share=0.8, learner_share=0.25),
    "dqn-cartpole/sb3-1-thread": measured(100.0),
    "dqn-cartpole/sb3": [{"steps_per_s": 30.0, "others_cores": 0.0}] * 3,
}


def test_with_a_replay_memory_both_peers_are_rivals_and_the_busy_actors_are_shown() -> None:
    assert verdicts(REPLAY_RESULTS) == {
        "dqn-cartpole: the best of hive (1-collector) > sb3": ("3.00 (1.50..3.75)", True),
        "dqn-cartpole: the best of hive (1-collector) > sb3-1-thread": ("0.90 (0.90..0.90)", False),
    }
    those = [contender for contender in ALL if contender.name in REPLAY_RESULTS]
    lines = text_of(those, REPLAY_RESULTS, 3, 6.0, CORES).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert not any("x sketch" in line for line in lines)
    (shown,) = (line.split("  ") for line in lines if line.startswith("hive 1 collector"))
    assert [cell.strip() for cell in shown if cell] == [
        *("hive 1 collector", "90", "45..112", "45"),
        *("3.00 (1.50..3.75)", "0.90 (0.90..0.90)", "–", "80.0%", "25.0%"),
    ]


def test_a_collector_that_waits_for_others_is_not_checked() -> None:
    found = verdicts({"python-16/1-collector": run(90.0, share=0.5, waits=0.4)})
    assert found["python-16: a bottleneck collector spends >= 85% in environment + policy"] == (
        "50.0%, waits 40.0%: not the bottleneck",
        None,
    )


def test_an_upper_bound_does_not_fail_the_check_of_the_runtime() -> None:
    promise = "python-16: the runtime of hive single takes <= 5% of the CPU"
    results = {"python-16/single": run(90.0, runtime=0.2)}
    assert verdicts(results, cores=2)[promise] == ("20.0%", False)
    assert verdicts(results, cores=1)[promise] == ("20.0%, all cores in use: an upper bound", None)


def test_the_document_holds_everything_and_is_json() -> None:
    document = json.loads(json.dumps(document_of(THOSE, RESULTS, 3, 6.0, {"cpu": "A CPU", "cores": CORES})))
    assert document["machine"]["cpu"] == "A CPU"
    first = document["contenders"][0]
    assert (first["name"], first["steps_per_s"]) == ("python-16/bare", {"median": 100.0, "least": 50.0, "most": 125.0})
    assert len(first["measurements"]) == 3
    assert {"setting": "python-16", "of": "single", "to": "bare", "median": 0.72, "least": 0.72, "most": 0.72} in [
        {key: round(value, 6) if isinstance(value, float) else value for key, value in one.items()}
        for one in document["ratios"]
    ]
    assert len(document["checks"]) == 7


# --- the command


@pytest.mark.parametrize("words", [["--repetitions", "0"], ["--seconds", "0"], ["--seconds", "x"], ["--peers", "us"]])
def test_what_cannot_be_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parser().parse_args(["throughput", *words])
    assert end.value.code == 2
    assert "throughput: error" in capsys.readouterr().err


@pytest.mark.full(reason="measures for seconds")
def test_it_measures_a_real_run(tmp_path: Path) -> None:
    """A shortened quick run: hive up, two samples, hive down, summary."""
    words = [
        "throughput",
        "--quick",
        "--seconds",
        "1",
        "--no-peers",
        "--only",
        "python-16/single",
        "--json",
        "out.json",
    ]
    done = subprocess.run(
        [sys.executable, str(BENCH), *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "(b) hive single" in done.stdout
    document = json.loads((tmp_path / "out.json").read_text())
    (contender,) = document["contenders"]
    (one,) = contender["measurements"]
    assert contender["steps_per_s"]["median"] == one["steps_per_s"] > 0
    assert 0.0 < one["collector_share"] < 1.0
    assert 0.0 < one["runtime_cpu_share"] < 1.0
    assert one["slots_per_s"] > 0
    assert (one["policy_lag"], one["gradient_lag"]) == (0.0, 0.0)
    assert list(tmp_path.iterdir()) == [tmp_path / "out.json"]
