"""What hive says of the GPUs of a machine, as NVIDIA's driver reports them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from hive.gpus import Gpu, gpus_here

GIB = 2**30


class Driver:
    """Two GPUs, by the functions of NVML that hive calls; `fails` raise."""

    def __init__(self, *fails: str) -> None:
        self.fails = fails
        self.open = 0
        self.answers: dict[str, Any] = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda number: number,
            "nvmlSystemGetDriverVersion": lambda: "580.1",
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{'ab'[handle]}-1",
            "nvmlDeviceGetHandleByUUID": lambda uuid: 1,
            "nvmlDeviceGetName": lambda handle: f"H{handle}",
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=80 * GIB, used=handle * GIB),
            "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=40 + handle),
            "nvmlInit": self.begin,
            "nvmlShutdown": self.end,
        }

    def begin(self) -> None:
        self.open += 1

    def end(self) -> None:
        self.open -= 1

    def called(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if name in self.fails:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return self.answers[name](*arguments)

        return call


def driver(monkeypatch: pytest.MonkeyPatch, *fails: str) -> Driver:
    made = Driver(*fails)
    for name in made.answers:
        monkeypatch.setattr(pynvml, name, made.called(name))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return made


FIRST, SECOND = Gpu("H0", 80 * GIB, 0, 40, "580.1"), Gpu("H1", 80 * GIB, GIB, 41, "580.1")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, [FIRST, SECOND]),
        ("1", [SECOND]),
        ("1, 0", [SECOND, FIRST]),
        ("GPU-b", [SECOND]),
        ("MIG-7", [SECOND]),
        ("0,7,1", [FIRST]),  # as CUDA, which ignores what follows a number that is not there
        ("", []),
        ("-1", []),
    ],
)
def test_gpus_are_those_that_cuda_shows_in_its_order(
    visible: str | None, expected: list[Gpu], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = driver(monkeypatch)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus_here() == expected
    assert made.open == 0


def test_without_a_driver_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, "nvmlInit")
    assert gpus_here() is None
    made = driver(monkeypatch, "nvmlDeviceGetCount")
    assert gpus_here() is None
    assert made.open == 0


def test_a_gpu_that_does_not_say_how_busy_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, "nvmlDeviceGetUtilizationRates")
    found = gpus_here()
    assert found is not None
    assert str(found[1]) == "H1, 1.0 of 80.0 GiB in use"
    driver(monkeypatch, "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo")
    assert [str(gpu) for gpu in gpus_here() or ()] == ["H0", "H1"]
    assert str(SECOND) == "H1, 1.0 of 80.0 GiB in use, 41 % busy"
