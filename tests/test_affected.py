"""`pytest --affected` runs what changes can reach."""

from __future__ import annotations

import pytest
from affected import EVERYTHING, TESTS, affected, defining, file_of, imported


@pytest.mark.rotates
@pytest.mark.parametrize(
    ("changed", "reached", "spared"),
    [
        ("hive/records/owner.py", ["records/test_owner.py", "live/test_resume.py"], ["networks/test_dense.py"]),
        ("hive/runtime/carriers/zmq.py", ["runtime/carriers/test_zmq.py"], ["records/test_owner.py"]),
        ("hive/monitor/line.py", ["monitor/test_poller.py"], ["training/test_best_policy.py"]),
        ("native/src/replay.cpp", ["experience/test_replay.py"], ["monitor/test_poller.py"]),
        ("tests/simulation/fakes.py", ["schemes/test_simulated_trainer.py"], ["records/test_owner.py"]),
        ("tests/records/test_owner.py", ["records/test_owner.py"], ["records/test_program.py"]),
        ("examples/guide/learning.md", ["guide/test_programs.py"], ["records/test_owner.py"]),
        ("scripts/parity", ["scripts/test_bench.py"], ["records/test_owner.py"]),
    ],
)
def test_a_change_reaches_its_room_and_what_imports_it(changed: str, reached: list[str], spared: list[str]) -> None:
    found = affected([changed])
    assert found is not None
    assert {TESTS / name for name in reached} <= found
    assert not {TESTS / name for name in spared} & found
    assert TESTS / "test_house.py" in found


@pytest.mark.parametrize("changed", EVERYTHING)
def test_what_all_tests_need_reaches_all(changed: str) -> None:
    assert affected([changed]) is None


def test_a_name_that_a_package_passes_on_leads_to_its_module() -> None:
    assert [*defining("hive.records", "RunDirectory")] == [file_of("hive.records.directory")]
    assert file_of("hive.records.owner") in imported(TESTS / "records" / "test_owner.py")
    assert file_of("torch") is None
