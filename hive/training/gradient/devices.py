"""Where gradients are computed: the device of `gradients.device`, its start in a process, and its memory.

The run's other processes never use CUDA. The device is chosen before any process is forked, from what the driver says
(hive.gpus), because a process that has used CUDA cannot be forked for another one that does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from typing import Any

import torch
from numpy.typing import NDArray

from hive.config import Config
from hive.errors import MemoryShort, PlatformError, TopologyError
from hive.experience import Purpose, stream_seed
from hive.free_memory import size_text
from hive.gpus import Gpu, gpus_here
from hive.networks.weights.device import pinned, prepare_device
from hive.records import JSON
from hive.runtime import Actor
from hive.runtime.process.user_code.throwaway import forks, in_child

NO_DETERMINISTIC_KERNEL = "does not have a deterministic implementation"  # torch's words


def chosen_device(name: str) -> torch.device | None:
    """Return the device that `gradients.device` names; None for the CPU, on which networks compute in place.

    Raises TopologyError for a GPU that this torch or this machine does not have.
    """
    if name == "cpu":
        return None
    found = _seen_gpus()
    built = torch.version.cuda is not None or torch.version.hip is not None
    if name == "auto":
        return torch.device("cuda", 0) if built and found else None
    if not built:
        raise TopologyError(
            f'gradients.device = "{name}" needs a torch that is built for GPUs, and this is {torch.__version__}',
            hint='install the build for your driver (pytorch.org lists them), or set gradients.device = "cpu"',
        )
    number = int(name.partition(":")[2] or 0)
    if found is not None and number >= len(found):
        shown = f"this machine shows {len(found)}" if found else "this machine shows none"
        raise TopologyError(
            f'gradients.device = "{name}": there is no GPU with number {number}; {shown}',
            hint='`hive doctor` lists GPUs, and CUDA_VISIBLE_DEVICES hides them; gradients.device = "auto" takes what '
            "there is",
        )
    return torch.device("cuda", number)


def _seen_gpus() -> list[Gpu] | None:
    """Return what the driver shows, asked from a child where the process must stay safe to fork."""
    if not forks():
        return gpus_here()
    found = in_child(lambda: None if (gpus := gpus_here()) is None else [asdict(gpu) for gpu in gpus], "the GPU driver")
    return None if found is None else [Gpu(**gpu) for gpu in found]


def begin_device(actor: Actor, config: Config, device: torch.device) -> None:
    """Start CUDA in the process of an actor, and log the device, its versions and how long that took.

    Raises PlatformError if it cannot be used.
    """
    begun = time.monotonic()
    try:
        prepare_device(device, deterministic=not config.asynchronous)
        torch.zeros(1, device=device)  # starts CUDA
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        raise PlatformError(
            f"{device} cannot be used: {first}", hint='see `hive doctor`, or set gradients.device = "cpu"'
        ) from None
    facts = device_facts(device)
    seconds = time.monotonic() - begun
    versions = ", ".join(f"{name} {facts[name]}" for name in ("driver", "cuda", "cudnn", "torch") if facts.get(name))
    actor.note("device", f"gradients on {device}, {facts['name']} ({versions}); ready after {seconds:.1f} s", **facts)


def device_facts(device: torch.device) -> dict[str, JSON]:
    """Return what decides the bits of a computation there: device, driver and libraries."""
    if device.type != "cuda":
        return {"device": str(device), "name": "the CPU", "torch": torch.__version__}
    properties = torch.cuda.get_device_properties(device)
    found = gpus_here() or []
    cudnn: Any = torch.backends.cudnn.version()
    return {
        "device": str(device),
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
        "driver": found[0].driver if found else None,
        "cuda": torch.version.cuda or torch.version.hip,
        "cudnn": cudnn,
        "torch": torch.__version__,
    }


def seed_forward(seed: int, worker: int, sequence: int, device: torch.device | None) -> None:
    """Seed what a forward pass of gradient `sequence` may draw, such as dropout, wherever it is computed."""
    drawn = stream_seed(seed, Purpose.training_forward, worker, sequence)
    torch.default_generator.manual_seed(drawn)
    if device is not None and device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(drawn)


def pin(config: Config, device: torch.device | None, *arrays: NDArray[Any] | None) -> None:
    """Let the device read and write these arrays of slots or boards without a copy in between; None is ignored.

    Called only in a process that ends with its run. Memory that came over ZeroMQ is freed before, so it is left out.
    """
    if device is not None and device.type == "cuda" and config.run.carrier == "slots":
        for array in arrays:
            if array is not None:
                pinned.register(array)


@contextmanager
def device_errors(device: torch.device | None, what: Callable[[], str], smaller: str) -> Iterator[None]:
    """Name the sizes where a device runs out of memory, and the way out where a kernel is not deterministic.

    what: describes the work. smaller: how to make it smaller. Both errors would recur, so they end the run.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        free, total = torch.cuda.mem_get_info(device) if device is not None else (0, 0)
        own = torch.cuda.memory_allocated(device) if device is not None else 0
        raise _final(
            MemoryShort(
                f"{device} has no memory for {what()}: this process uses {size_text(own)}, and {size_text(free)} of "
                f"{size_text(total)} are free",
                hint=f"make a gradient smaller ({smaller}), or end what else uses the GPU",
            )
        ) from error
    except RuntimeError as error:
        if NO_DETERMINISTIC_KERNEL not in str(error):
            raise
        first = str(error).partition(NO_DETERMINISTIC_KERNEL)[0].strip()
        raise _final(
            PlatformError(
                f"{first} has no deterministic kernel on {device}, so a run there could not be repeated",
                hint='use another layer, set gradients.device = "cpu", or give up repeatable runs: '
                'collection.communication = "asynchronous"',
            )
        ) from error


def one_thread(device: torch.device | None) -> AbstractContextManager[Any]:
    """Let this thread compute backward passes alone; on the CPU it does anyway.

    Otherwise torch has a thread of its own for a device. Where a loss in host memory uses an output of the network
    several times, as SAC's uses the policy's, both threads would add to its gradient in the order in which they come,
    so its last bits would be chance.
    """
    return nullcontext() if device is None else torch.autograd.set_multithreading_enabled(False)


def _final(error: PlatformError) -> PlatformError:
    error.permanent = True
    return error
