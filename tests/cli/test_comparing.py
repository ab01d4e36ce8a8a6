"""`hive compare` and `hive plot` of runs made by hand."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hive.config import load_config, render
from hive.records import RunDirectory

if TYPE_CHECKING:
    from conftest import Place

PNG = b"\x89PNG\r\n\x1a\n"
GOAL = '[env]\nid = "CartPole-v1"\n[run]\nstop_at_return = 100.0\n'


def line(steps: float, **values: Any) -> str:
    axes = {"t": 1.0, "steps": steps, "updates": steps // 10, "seconds": steps / 100}
    return json.dumps(axes | {name.replace("__", "/"): value for name, value in values.items()})


def run_of(place: Place, name: str, seed: int, *returns: float, rate: float = 0.01, ended: bool = True) -> RunDirectory:
    """A run with a mean return at steps 100, 200, ..."""
    run = place.lost(name)
    keys = [f"run.seed={seed}", f"algorithm.learning_rate={rate}"]
    run.resolved_file.write_text(render(load_config(f"{name}.toml", keys, text=GOAL)))
    lines = [line(100 * (n + 1), return__mean_100=value) for n, value in enumerate(returns)]
    run.metrics_file.write_text("".join(f"{text}\n" for text in lines))
    if ended:
        steps = 100 * len(returns)
        last = {"env_steps": steps, "updates": steps // 10, "train_s": steps / 100}
        place.end(run, seed=seed, mean_return_100=returns[-1] if returns else None, **last)
    return run


@pytest.fixture
def two_configs(place: Place) -> Place:
    """Three seeds that end at 100, 110 and 120, and two slow ones that end at 90 and 110."""
    for seed, last in enumerate((100.0, 110.0, 120.0), 1):
        run_of(place, "fast", seed, 50.0, last)
    for seed, last in enumerate((90.0, 110.0), 1):
        run_of(place, "slow", seed, 20.0, 50.0, last, rate=0.001)
    return place


def compared(place: Place, *words: object) -> dict[str, Any]:
    done = place.hive("compare", *words, "--json")
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_compare_two_configs(two_configs: Place) -> None:
    found = compared(two_configs, "fast", "slow")
    fast, slow = found["groups"]
    assert (fast["name"], slow["name"], found["metric"]) == ("fast", "slow", "return/mean_100")
    assert [run["final"] for run in fast["runs"]] == [100.0, 110.0, 120.0]
    assert [run["seed"] for run in fast["runs"]] == [1, 2, 3]
    assert (fast["iqm"]["value"], fast["mean"], fast["median"]) == (110.0, 110.0, 110.0)
    assert (fast["iqm"]["low"], fast["iqm"]["high"]) == (100.0, 120.0)
    assert found["threshold"] == 100.0, "run.stop_at_return"
    assert fast["threshold"] == {"reached": 3, "of": 3, "median_steps": 200.0, "median_seconds": 2.0}
    assert slow["threshold"] == {"reached": 1, "of": 2, "median_steps": None, "median_seconds": None}
    pairs = {(pair["of"], pair["over"]): pair["value"] for pair in found["probability_of_improvement"]}
    assert pairs == {("fast", "slow"): pytest.approx(0.75), ("slow", "fast"): pytest.approx(0.25)}
    assert found["config"] == {"algorithm.learning_rate": [0.01, 0.001]}


def test_lower_values_can_be_better(place: Place) -> None:
    for seed, values in enumerate(((5.0, 1.0), (4.0, 2.0)), 1):
        run_of(place, "small", seed, *values)
    for seed, values in enumerate(((9.0, 5.0), (8.0, 2.0)), 1):
        run_of(place, "large", seed, *values, rate=0.001)
    words = ("small", "large", "--metric", "return/mean_100", "--threshold", "2.0", "--lower-is-better")
    found = compared(place, *words)
    small, large = found["groups"]
    assert found["lower_is_better"] is True
    assert small["threshold"] == {"reached": 2, "of": 2, "median_steps": 200.0, "median_seconds": 2.0}
    assert large["threshold"] | {"reached": 1, "median_steps": None} == large["threshold"]
    pairs = {(pair["of"], pair["over"]): pair["value"] for pair in found["probability_of_improvement"]}
    assert pairs == {("small", "large"): 0.875, ("large", "small"): 0.125}
    assert "lower is better" in found["notes"][0]
    done = place.hive("compare", *words)
    assert "P(BELOW FIRST)" in done.out.splitlines()[0]
    assert compared(place, "small", "large", "--lower-is-better")["threshold"] is None, "a goal is reached from below"


def test_runs_of_unequal_length_are_noted(place: Place) -> None:
    run_of(place, "long", 1, *[50.0] * 8)
    run_of(place, "long", 2, 70.0, 80.0, ended=False)
    notes = compared(place, "long")["notes"]
    assert "long-2 did not finish (lost): it counts with its value at step 200" in notes
    assert "the runs end at different steps, 200 to 800, with their values there" in notes


def test_the_theme_of_pictures(two_configs: Place) -> None:
    found = {}
    for theme in ("light", "dark"):
        for command, option in (("compare", "--png"), ("plot", "-o")):
            path = two_configs.folder / f"{command}.svg"
            assert two_configs.hive(command, "fast", "slow", option, path, "--theme", theme).code == 0
            found[command, theme] = path.read_text().lower()
    for command in ("compare", "plot"):
        light, dark = (found[command, theme] for theme in ("light", "dark"))
        assert "#161b22" in dark
        assert not any(colour in dark for colour in ("#ffffff", "#000000", "#333333")), command
        assert "#ffffff" in light


def test_the_table_and_the_markdown(two_configs: Place) -> None:
    done = two_configs.hive("compare", "fast", "slow", "--threshold", "105")
    assert done.code == 0
    head, fast, slow, blank, keys, rate = done.out.splitlines()
    assert "REACHED 105" in head
    assert "100.0, 110.0, 120.0" in fast
    assert (fast.split()[:2], slow.split()[:2]) == (["fast", "3"], ["slow", "2"])
    assert (blank, keys.split(), rate.split()) == (
        "",
        ["KEY", "fast", "slow"],
        ["algorithm.learning_rate", "0.01", "0.001"],
    )
    assert done.err.startswith("note: final values: return/mean_100")
    marked = two_configs.hive("compare", "fast", "slow", "--markdown").out.splitlines()
    assert marked[1].replace(" ", "").strip("|-") == ""
    assert marked[-1] == "| algorithm.learning_rate | 0.01 | 0.001 |"


def test_evaluations_are_compared_if_every_run_has_them(place: Place) -> None:
    for seed in (1, 2):
        run = run_of(place, "cartpole", seed, 50.0, ended=False)
        with run.metrics_file.open("a") as file:
            file.write(f"{line(90, evaluation__mean_return=70.0 + seed)}\n")
    found = compared(place, "cartpole")
    assert (found["metric"], found["groups"][0]["iqm"]["value"]) == ("evaluation/mean_return", 71.5)
    run_of(place, "cartpole", 3, 60.0)
    assert compared(place, "cartpole")["metric"] == "return/mean_100"


def test_a_run_that_diverged_is_named(place: Place) -> None:
    run = run_of(place, "cartpole", 1, 50.0, ended=False)
    nulls = [line(steps, return__mean_100=None) for steps in (50, 300, 400)]
    run.metrics_file.write_text("\n".join([nulls[0], line(100, return__mean_100=50.0), *nulls[1:], ""]))
    run_of(place, "cartpole", 2, 60.0)
    text = "return/mean_100 of cartpole-1 is not finite from step 300 on: it counts with its value at step 100"
    notes = compared(place, "cartpole")["notes"]
    assert [note for note in notes if "not finite" in note] == [text]


def test_a_seed_that_was_trained_twice_counts_once(place: Place) -> None:
    run_of(place, "cartpole", 1, 50.0)
    run_of(place, "cartpole", 1, 50.0, 60.0)
    found = compared(place, "cartpole")
    assert found["groups"][0]["iqm"] == {"value": 60.0, "low": None, "high": None}
    assert "cartpole-1 is left out: another run has its config and its seed 1" in found["notes"]
    assert any(note.startswith("a group with one run has no interval") for note in found["notes"])


def test_groups_of_one_name_are_told_apart_by_their_keys(place: Place) -> None:
    run_of(place, "cartpole", 1, 50.0)
    run_of(place, "cartpole", 1, 60.0, rate=0.5)
    run_of(place, "cartpole", 2, 70.0)
    found = compared(place, "cartpole-*")
    assert [(group["name"], len(group["runs"])) for group in found["groups"]] == [
        ("cartpole learning_rate=0.01", 2),
        ("cartpole learning_rate=0.5", 1),
    ]
    found = compared(place, "all=cartpole-[12],cartpole-3", "cartpole-2")
    assert [(group["name"], len(group["runs"])) for group in found["groups"]] == [("all", 3), ("cartpole", 1)]


def test_empty_damaged_and_lost_runs(place: Place) -> None:
    run_of(place, "cartpole", 1, 50.0, ended=False)
    run_of(place, "cartpole", 2, ended=False)
    torn = run_of(place, "cartpole", 3, 60.0, ended=False)
    with torn.metrics_file.open("a") as file:
        file.write('not JSON\n{"steps": 1}\n' + line(200, return__mean_100=None) + '\n{"steps": 300, "retu')
    broken = run_of(place, "cartpole", 4, 70.0)
    broken.resolved_file.write_text("[run\n")
    found = compared(place, "all=cartpole")
    assert [run["final"] for run in found["groups"][0]["runs"]] == [50.0, None, 60.0, 70.0]
    notes = found["notes"]
    assert "cartpole-2 is left out: it has no values of return/mean_100" in notes
    assert any(note.startswith("the config of cartpole-4 cannot be read: ") for note in notes)


def test_evaluations_written_out_of_order_are_sorted_and_of_equal_steps_the_newest_counts(place: Place) -> None:
    run = run_of(place, "cartpole", 1, 50.0, ended=False)
    values = ((100, 10.0), (300, 120.0), (200, 60.0), (100, 20.0))
    run.metrics_file.write_text("".join(f"{line(at, evaluation__mean_return=value)}\n" for at, value in values))
    (group,) = compared(place, "cartpole", "--threshold", "20")["groups"]
    assert (group["runs"][0]["final"], group["threshold"]["median_steps"]) == (120.0, 100.0)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["compare", "nothing-*"], "no run matches `nothing-*`"),
        (["compare", "pong"], "no run matches `pong`"),
        (["compare", "empty"], "the selected runs have no returns yet"),
        (["compare", "fast", "--metric", "return/mean_10"], "did you mean `return/mean_100`?"),
        (["compare", "fast", "--png", "curves.pdf"], "`curves.pdf` is not a .png or .svg file"),
        (["plot", "fast", "-o", "missing/curves.png"], "`missing` is not a folder"),
        (["plot", "fast", "-o", "curves.png", "--smooth", "0"], "invalid number of points `0`"),
        (["plot", "empty", "-o", "curves.png"], "no selected run has values of `return/mean_100`"),
    ],
)
def test_errors(two_configs: Place, words: list[str], error: str) -> None:
    run_of(two_configs, "empty", 1, ended=False)
    done = two_configs.hive(*words)
    assert (done.code, done.out) == (2, "")
    assert error in done.err.splitlines()[0]


def test_without_matplotlib_the_error_names_the_extra(two_configs: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = two_configs.hive("plot", "fast", "-o", "curves.png")
    assert (done.code, done.err) == (2, "error: pictures need matplotlib\n\nhint: pip install 'hive-trainer[plot]'\n")


def test_pictures(two_configs: Place) -> None:
    run_of(two_configs, "short", 1, 40.0)
    done = two_configs.hive("plot", "-o", "curves.svg", "*", "--x", "seconds", "--smooth", "2")
    assert (done.code, done.out) == (0, "curves.svg\n")
    drawn = (two_configs.folder / "curves.svg").read_bytes()
    assert drawn.startswith(b"<?xml")
    two_configs.hive("plot", "-o", "curves.svg", "*", "--x", "seconds", "--smooth", "2")
    assert (two_configs.folder / "curves.svg").read_bytes() == drawn, "the same runs give the same file"
    done = two_configs.hive("compare", "fast", "slow", "-o", "compared.png")
    assert done.code == 0
    assert (two_configs.folder / "compared.png").read_bytes().startswith(PNG)


def test_plot_draws_the_newest_run_by_default(two_configs: Place) -> None:
    assert two_configs.hive("plot", "-o", "curves.png").code == 0
    assert (two_configs.folder / "curves.png").read_bytes().startswith(PNG)
