"""The GPUs of this machine, as NVIDIA's driver reports them (NVML), without torch and without the use of CUDA.

A process that has used CUDA cannot fork children that use it too. So the fork server, and commands that only look, ask
the driver.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """One GPU. Sizes are in bytes. percent: share of the last second in which a kernel ran. None: unknown."""

    name: str
    total_bytes: int | None
    used_bytes: int | None
    percent: int | None
    driver: str

    def __str__(self) -> str:
        used = ""
        if self.used_bytes is not None and self.total_bytes is not None:
            used = f", {self.used_bytes / 2**30:.1f} of {self.total_bytes / 2**30:.1f} GiB in use"
        busy = "" if self.percent is None else f", {self.percent} % busy"
        return f"{self.name}{used}{busy}"


def gpus_here() -> list[Gpu] | None:
    """Return the GPUs that CUDA shows this process, in its order; None where there is no driver to ask."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        return [_gpu(pynvml, handle, driver) for handle in _visible(pynvml, handles)]
    except pynvml.NVMLError:
        return None
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _visible(nvml: Any, handles: list[Any]) -> list[Any]:
    """Return the handles that CUDA_VISIBLE_DEVICES names, by number or by the beginning of a UUID."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return handles
    uuids = [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    found = []
    for word in (word.strip() for word in chosen.split(",")):
        if word.startswith("MIG-"):  # a part of a GPU, which only its name finds
            found.append(nvml.nvmlDeviceGetHandleByUUID(word))
            continue
        places = [place for place, uuid in enumerate(uuids) if word and uuid.startswith(word)]
        place = int(word) if word.isdecimal() and int(word) < len(handles) else next(iter(places), None)
        if place is None:  # CUDA ignores what follows
            break
        found.append(handles[place])
    return found


def _gpu(nvml: Any, handle: Any, driver: str) -> Gpu:
    total = used = percent = None
    with suppress(nvml.NVMLError):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        total, used = int(memory.total), int(memory.used)
    with suppress(nvml.NVMLError):
        percent = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return Gpu(str(nvml.nvmlDeviceGetName(handle)), total, used, percent, driver)
