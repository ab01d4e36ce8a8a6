"""scripts/chaos --ends: what it reads of a run, and one trial. Its programs are real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chaotic.ends import FORMS, Trials, falls_in, said_in, saved_in

from hive.records import RunDirectory

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("stopped by SIGTERM; saved at 37,632 steps, 5,879 updates", 37_632),
        ("recorder  checkpoint 005879 at 7,632 steps\nrecorder  checkpoint 5880 at 8,000 steps", 8000),
        ("the best policy is that of update 3 at 900 steps", 0),
    ],
)
def test_what_an_output_said_to_be_saved(text: str, steps: int) -> None:
    assert said_in(text) == steps


def test_what_a_run_said_to_be_saved_and_where_its_metrics_fall(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    events = [{"kind": "saved", "text": f"checkpoint 1 at {n} steps"} for n in ("1,000", "2,000")]
    run.events_file.write_text("".join(json.dumps(event) + "\n" for event in events))
    run.metrics_file.write_text('{"steps": 1}\n{"steps": 5}\n{"steps": 3}\n')
    assert saved_in(run) == 2000
    assert falls_in(run) == "from 5 to 3"


@pytest.mark.full(reason="a calm run, and one trial of each form")
@pytest.mark.parametrize("form", [form for form in FORMS if form != "namespaces"])
def test_a_trial_keeps_all_promises(form: str) -> None:
    trials = Trials(ROOT / "examples/cartpole.toml", [])
    try:
        assert trials.run(form, 1).broken == []
    finally:
        trials.close()
