"""scripts/bench: its arithmetic, its reports, and one quick run of one contender."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from benchmarks.command import parser
from benchmarks.command import run as run_bench
from benchmarks.contender import Pythons
from benchmarks.counting import WARM_S, TwoLooks
from benchmarks.harness import (
    WIDTH,
    Bench,
    Check,
    Report,
    Spread,
    append_rows,
    interleaved,
    ratio_of,
)
from benchmarks.hive_run import Look, Used, figures_between, policy_lag_of, rates_between
from benchmarks.machine import cpu_model, taken_cpu_s
from benchmarks.peer_environments import REQUIREMENTS, environment_folder
from benchmarks.programs import BenchError, last_json, run_program
from benchmarks.settings import SETTINGS
from benchmarks.throughput import COLUMNS, best_pairs, checks_of, chosen, contenders, lines_of, measure_all, rows_of

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "scripts" / "bench"
ALL = contenders(["sb3", "plain", "sample-factory"], Pythons({"sb3": Path("sb3/bin/python")}))


# --- figures


def test_a_ratio_is_the_median_of_those_of_each_repetition() -> None:
    """A machine that is twice as slow in one repetition changes no ratio; the ratio of the medians would be 1.5."""
    assert ratio_of([100.0, 60.0, 120.0], [50.0, 30.0, 60.0]) == Spread(2.0, 2.0, 2.0)
    assert ratio_of([1.0, 3.0, 100.0], [1.0, 2.0, 400.0]).median == 1.0
    with pytest.raises(ValueError, match="2 values cannot be compared with 1"):
        ratio_of([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="rate of 0"):
        ratio_of([1.0], [0.0])


# --- what others print


def test_the_last_line_of_a_program_counts() -> None:
    assert last_json('a warning\n{"steps_per_s": 5, "lag": 1}\n', "x", "steps_per_s") == {"steps_per_s": 5, "lag": 1}


@pytest.mark.parametrize("text", ["", "5", "[1]", "{}", '{"steps_per_s": 0}', '{"steps_per_s": "many"}', "{half"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BenchError, match="printed no JSON object with steps_per_s above 0"):
        last_json(text, "sketch.py", "steps_per_s")


def test_a_program_that_fails_says_why() -> None:
    with pytest.raises(BenchError, match="ended with code 3\nbroken"):
        run_program([sys.executable, "-P", "-c", "import sys; print('broken', file=sys.stderr); sys.exit(3)"], 1.0)


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


def test_every_peer_is_measured_with_one_thread_and_with_torchs_default(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[Any]] = []
    monkeypatch.setattr("benchmarks.contender.run_program", lambda command, *_: commands.append(command))
    for contender in chosen(ALL, ["sac-halfcheetah/sb3*", "a2c-vector-64/plain*"]):
        contender.measure(1.5)
    assert [(Path(command[2]).name, *command[3:5]) for command in commands] == [
        *(("a2c.py", 1.5, 1), ("a2c.py", 1.5, 0)),
        *(("sb3_rates.py", 1.5, 1), ("sb3_rates.py", 1.5, 0)),
    ]
    assert [str(command[0]) for command in commands] == [sys.executable] * 2 + ["sb3/bin/python"] * 2
    assert (json.loads(commands[0][5])["vector"], json.loads(commands[2][5])["batch"]) == ("numpy", 256)


def test_contenders_are_chosen_by_their_name_and_by_that_of_their_setting() -> None:
    assert {contender.setting.name for contender in chosen(ALL, ["dqn-*", "ppo-cartpole"])} == {
        *("dqn-cartpole", "ppo-cartpole"),
    }
    assert [contender.shape for contender in chosen(ALL, ["ppo-halfcheetah"])] == [
        *("default", "single", "sb3-1-thread", "sb3"),
    ]
    assert [contender.name for contender in chosen(ALL, ["*/sample-factory", "sac-*/single"])] == [
        *("ppo-cartpole/sample-factory", "sac-halfcheetah/single"),
    ]
    assert chosen(ALL, []) == ALL
    assert chosen(ALL, ["nothing"]) == []
    assert not any(contender.peer for contender in contenders([], Pythons()))


def test_repetitions_are_interleaved_in_alternating_directions() -> None:
    order: list[tuple[str, int]] = []
    found, failed = interleaved(["a", "b"], 3, lambda name, repetition: order.append((name, repetition)) or len(order))
    assert order == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    assert (found, failed) == ({"a": [1, 4, 5], "b": [2, 3, 6]}, {})


def test_a_contender_that_fails_does_not_cost_the_others_their_measurements() -> None:
    tries: list[int] = []

    def broken(seconds: float) -> dict[str, Any]:
        tries.append(1)
        if len(tries) == 2:
            raise BenchError("no memory")
        return {"steps_per_s": 1.0}

    those = [contender_like("single", 10.0), dataclasses.replace(contender_like("sb3", 20.0), measure=broken)]
    found, failed = measure_all(those, 3, 1.0)
    assert {name: len(measurements) for name, measurements in found.items()} == {"a2c-python-16/single": 3}
    assert (failed, len(tries)) == ({"a2c-python-16/sb3": "no memory"}, 2)


def contender_like(shape: str, rate: float) -> Any:
    """Return the contender of this shape with a known measurement."""
    known = next(contender for contender in ALL if contender.name == f"a2c-python-16/{shape}")
    return type(known)(known.setting, shape, lambda seconds: {"steps_per_s": rate})


# --- counting


def test_steps_are_counted_between_two_ends_of_rounds_after_the_warm_up() -> None:
    """Rounds of 100 steps take 0.4 s, the first of them 5 s: neither it nor a part of a round may count."""
    now = 5.0
    looks = TwoLooks(2.0, lambda: now)
    ends = []
    for number in range(1, 20):
        if looks.round_ended(100 * number, number - 1):  # updates follow a round
            break
        ends.append(now)
        now += 0.4
    assert looks.rates == {"steps_per_s": pytest.approx(250.0), "updates_per_s": pytest.approx(2.5)}
    first_update, counted_from, counted_to = ends[1], looks.first, looks.last
    assert counted_from is not None
    assert counted_to is not None
    assert counted_from[0] >= first_update + WARM_S
    assert counted_to[0] - counted_from[0] >= 2.0
    assert looks.round_ended(10**6, 10**6), "it stays over"
    assert looks.last == counted_to


def test_a_runs_rates_are_those_between_its_looks() -> None:
    """Neither the 1,000 steps before the first look nor their time counts."""
    first = Look(10.0, {"results": {"env_steps": 1000, "updates": 5}}, {})
    last = Look(12.0, {"results": {"env_steps": 1500, "updates": 9}}, {})
    assert rates_between(first, last) == {"steps_per_s": 250.0, "updates_per_s": 2.0}


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


def look(at: float, used: Mapping[int, Used], actors: list[dict[str, Any]]) -> Look:
    status = {
        "pid": 1,
        "helpers": [{"name": "fork-server", "pid": 2}],
        "actors": actors,
        "results": next((one["counters"] for one in actors if one["name"] == "learner-0"), {}),
    }
    return Look(at, status, used)


def collector(busy: float, runtime: float, waiting: float) -> dict[str, Any]:
    phases = {"env": ("busy", 0.75 * busy), "policy": ("busy", 0.25 * busy)}
    return actor("collector-0", 3, {**phases, "runtime": ("runtime", runtime), "wait weights": ("wait_in", waiting)})


def learner(busy: float, runtime: float, waiting: float, updates: int) -> dict[str, Any]:
    phases = {"update": ("busy", busy), "runtime": ("runtime", runtime), "wait gradients": ("wait_in", waiting)}
    return actor("learner-0", 4, phases, updates=updates)


def test_the_figures_of_a_run_are_differences_of_two_samples() -> None:
    before = [collector(3.0, 2.0, 0.0), learner(1.0, 1.0, 3.0, 5)]
    after = [collector(3.0 + 8.0, 2.0 + 1.0, 0.0 + 1.0), learner(1.0 + 1.0, 1.0 + 1.0, 3.0 + 8.0, 25)]
    nothing = {pid: Used(0.0, 0.0, 0.0, 0.0) for pid in (1, 2, 3, 4)}
    used = {
        1: Used(0.5, 0.5, 0.1, 0.0),
        2: Used(0.0, 0.0, 0.0, 0.0),
        3: Used(9.0, 8.1, 3.0, 0.5),  # busy for 8 s of wall time, in 0 to 3 s of which others had the cores
        4: Used(2.5, 1.5, 0.0, 0.5),  # another thread, torch's, had a core for 0.5 s; busy for 1 s
    }
    first = look(5.0, nothing, before)
    last = look(15.0, used, after)
    found = figures_between(first, last)
    assert found["collector_share"] == pytest.approx(0.8)
    assert found["collector_wait_share"] == pytest.approx(0.1)
    assert (found["learner_share"], found["gradient_worker_share"]) == (pytest.approx(0.1), None)
    assert found["cpu_cores_of"] == {
        "supervisor": 0.05,
        "fork-server": 0.0,
        "collector-0": 0.9,
        "learner-0": 0.25,
    }
    # the supervisor; sockets; a ninth of the collector's main thread, by its phases; what the learner was not busy
    assert found["runtime_cpu_share"] == pytest.approx((0.5 + 1.0 + 0.9 + 0.5) / 12.0)
    assert found["runtime_cpu_share_least"] == pytest.approx((0.5 + 1.0 + 0.1 + 0.5) / 12.0)
    assert found["runtime_cpu_share_most"] == pytest.approx((0.5 + 1.0 + 3.1 + 0.5) / 12.0)
    assert found["phases_ms"]["collector-0"]["env"] == pytest.approx(1e3 * 0.75 * 8.0 / 20)


def test_actors_that_share_a_process_share_its_main_thread() -> None:
    """9 of its 10 s on a core are busy for one of two actors, while the other's page shows "runtime"."""
    before = [{**collector(1.0, 1.0, 0.0), "pid": 4}, learner(1.0, 1.0, 1.0, 5)]
    after = [{**collector(1.0 + 7.0, 1.0 + 1.0, 0.0 + 2.0), "pid": 4}, learner(1.0 + 2.0, 1.0 + 8.0, 1.0, 10)]
    nothing = {pid: Used(0.0, 0.0, 0.0, 0.0) for pid in (1, 2, 4)}
    found = figures_between(look(0.0, nothing, before), look(20.0, {**nothing, 4: Used(10.0, 10.0, 0.0, 0.0)}, after))
    assert found["runtime_cpu_share"] == pytest.approx(0.1)
    assert found["cpu_cores_of"]["collector-0 + learner-0"] == 0.5


def test_the_lag_is_the_mean_over_the_lines_that_have_it() -> None:
    assert policy_lag_of([{"lag/policy_mean": 1.0, "lag/gradient_mean": 0.0}, {"lag/policy_mean": 2.0}, {}]) == 1.5
    assert policy_lag_of([]) is None


# --- the report


def measured(rate: float, **figures: float) -> list[dict[str, Any]]:
    """Return three repetitions on a machine that is slower in the second."""
    return [{"steps_per_s": rate * pace, "others_cores": 0.0, **figures} for pace in (1.0, 0.5, 1.25)]


def run(rate: float, share: float = 0.9, waits: float = 0.0, runtime: float = 0.02) -> list[dict[str, Any]]:
    figures = {"collector_share": share, "collector_wait_share": waits, "runtime_cpu_share": runtime}
    figures |= {"runtime_cpu_share_least": 0.75 * runtime, "runtime_cpu_share_most": 2.0 * runtime}
    return measured(rate, **figures, learner_share=0.25, policy_lag=1.0, updates_per_s=45.0)


RESULTS = {
    "a2c-python-16/single": run(72.0),
    "a2c-python-16/1-collector": run(96.0, share=0.8),
    "a2c-python-16/2-collectors": run(120.0, runtime=0.05),
    "a2c-python-16/sb3-1-thread": measured(20.0),
    "a2c-python-16/sb3": measured(16.0),
    "a2c-python-16/plain": [{"steps_per_s": 40.0, "others_cores": 0.0}] * 3,
    "a2c-compiled-1024/default": run(600_000.0),
}
THOSE = [contender for contender in ALL if contender.name in RESULTS]


def verdicts(results: Mapping[str, Any] = RESULTS) -> dict[str, tuple[str, bool | None]]:
    return {check.promise: (check.measured, check.passed) for check in checks_of(results)}


def test_every_promise_is_judged_where_it_was_measured() -> None:
    """The best placement is judged beside the faster number of threads of each peer."""
    assert verdicts() == {
        "a2c-python-16: hive 2-collectors >= 6 x sb3-1-thread": ("6.00 (6.00..6.00)", True),
        "a2c-python-16: hive 2-collectors > plain": ("3.00 (1.50..3.75)", True),
        "a2c-python-16: a bottleneck collector spends >= 85% in environment + policy": ("80.0%", False),
        "a2c-python-16: the runtime of hive 2-collectors takes <= 3% of the CPU": ("5.0% (3.8%..10.0%)", False),
        "a2c-compiled-1024: hive default >= 600,000 steps/s": ("600,000", True),
    }
    slower = verdicts({**RESULTS, "a2c-python-16/2-collectors": run(118.0)})
    assert slower["a2c-python-16: hive 2-collectors >= 6 x sb3-1-thread"] == ("5.90 (5.90..5.90)", False)


def test_a_collector_that_waits_for_others_is_not_checked() -> None:
    found = verdicts({"a2c-python-16/1-collector": run(90.0, share=0.5, waits=0.4)})
    assert found["a2c-python-16: a bottleneck collector spends >= 85% in environment + policy"] == (
        "50.0%, waits 40.0%: not the bottleneck",
        None,
    )


def test_only_the_lower_bound_of_the_runtime_fails_its_check() -> None:
    promise = "a2c-python-16: the runtime of hive 2-collectors takes <= 3% of the CPU"
    found = {
        share: verdicts({"a2c-python-16/2-collectors": run(9.0, runtime=share)})[promise] for share in (0.03, 0.04)
    }
    assert found == {0.03: ("3.0% (2.2%..6.0%)", True), 0.04: ("4.0% (3.0%..8.0%)", None)}


def test_a_table_shows_ratios_to_each_rival_and_how_busy_the_actors_are() -> None:
    lines = lines_of(THOSE, RESULTS, 3, 6.0)
    assert max(map(len, lines)) <= WIDTH
    (shown,) = (line.split("  ") for line in lines if line.startswith("hive 2-collectors"))
    assert [cell.strip() for cell in shown if cell] == [
        *("hive 2-collectors", "120", "60..150", "45", "6.00", "3.00", "90% / – / 25%", "5.0%", "1.00"),
    ]
    assert len([line for line in lines if line.endswith("lag")]) == 2, "a table for each of the two settings"


# --- the ladder


def test_a_ladder_grows_by_one_row_per_setting_and_peer(tmp_path: Path) -> None:
    path, machine = tmp_path / "ladder.csv", {"date": "2026-11-25 09:00:00 +0000", "commit": "abc1234"}
    pairs = [pair for setting in SETTINGS.values() for pair in best_pairs(RESULTS, setting)]
    for change in ("native networks", "rings, faster"):
        append_rows(path, COLUMNS, rows_of(pairs, change, machine))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["change"] for row in rows] == ["native networks"] * 3 + ["rings, faster"] * 3
    assert list(rows[0].values()) == [
        *("2026-11-25", "abc1234", "native networks", "a2c-python-16", "2-collectors", "120"),
        *("sb3-1-thread", "20", "6.00", "6.00", "6.00"),
    ]
    assert (rows[1]["peer"], rows[1]["ratio"], rows[1]["least"], rows[1]["most"]) == ("plain", "3.00", "1.50", "3.75")
    alone = rows[2]
    assert (alone["setting"], alone["peer"], alone["ratio"]) == ("a2c-compiled-1024", "", "")
    assert (alone["hive_steps_per_s"], alone["least"], alone["most"]) == ("600000", "300000", "750000")


# --- the command


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1), (None, 0)])
def test_a_report_is_printed_and_written(
    passed: bool | None, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(["a table"], {"seconds": 2.0}, [Check("it is fast", "9", passed)])
    bench = Bench("sketch", "nothing", "", lambda parser: None, lambda options, machine: report)
    options = argparse.Namespace(json=tmp_path / "out.json", check=True)
    assert run_bench(bench, options) == code
    assert capsys.readouterr().out.startswith("a table\n\nchecks ")
    document = json.loads(options.json.read_text())
    assert {key: document[key] for key in ("bench", "seconds", "checks")} == {
        "bench": "sketch",
        "seconds": 2.0,
        "checks": [{"promise": "it is fast", "measured": "9", "passed": passed}],
    }


@pytest.mark.parametrize(
    "words",
    [["--repeats", "0"], ["--seconds", "0"], ["--seconds", "x"], ["--peers", "us"], ["--python", "sb3=nothing"]],
)
def test_what_cannot_be_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parser().parse_args(["throughput", *words])
    assert end.value.code == 2
    assert "throughput: error" in capsys.readouterr().err


@pytest.mark.full(reason="measures for seconds")
def test_it_measures_a_real_run(tmp_path: Path) -> None:
    """One short run: hive up, two looks, hive down, summary."""
    words = ["throughput", "--repeats", "1", "--seconds", "1", "--no-peers", "--only", "a2c-python-16/single"]
    done = subprocess.run(
        [sys.executable, str(BENCH), *words, "--json", "out.json", "--ladder", "ladder.csv", "--change", "a test"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "hive single" in done.stdout
    document = json.loads((tmp_path / "out.json").read_text())
    (contender,) = document["contenders"]
    (one,) = contender["measurements"]
    assert contender["steps_per_s"]["median"] == one["steps_per_s"] > 0
    assert 0.0 < one["collector_share"] < 1.0
    assert 0.0 < one["runtime_cpu_share"] < 1.0
    assert one["policy_lag"] == 0.0
    assert "a test,a2c-python-16,single" in (tmp_path / "ladder.csv").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"out.json", "ladder.csv"}
