"""The file of `hive export` is checked before torch is imported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hive.errors import UsageError
from hive.records.export_files import check_export_file


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UsageError, match=r"policy\.onnx` needs the package onnx") as error:
        check_export_file(tmp_path / "policy.onnx")
    assert error.value.hint.startswith("pip install 'hive-trainer[export]'; ")
    check_export_file(tmp_path / "policy.safetensors")


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("policy.pt", "has no suffix of a format"),
        ("there.safetensors", "already exists"),
        ("missing/policy.safetensors", "is not a folder"),
    ],
)
def test_a_path_that_cannot_be_written(tmp_path: Path, name: str, cause: str) -> None:
    (tmp_path / "there.safetensors").touch()
    with pytest.raises(UsageError, match=cause):
        check_export_file(tmp_path / name)
