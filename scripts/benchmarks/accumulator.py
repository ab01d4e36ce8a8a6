"""`bench accumulator`: reduce K gradients of a model to their mean, its global norm and a check for finite values.

Two tasks, each done in several ways that give the same result, with one thread each:

    reduce   the K gradients are in memory. Compares hive's accumulator, which holds them as rounds; its C++ pass alone;
             three ways in torch over the same memory; and a plain C loop (plain_sum.c), which shows the limit of the
             memory and computes no norm. Pass and loop are each one call from Python, so C is compared with C
    whole    the K gradients come one after another from a model's `.grad`. Compares accumulate() and mean_reduce() with
             RLPack's scheme (clone, check for NaN, divide, add) written in torch, and with torch's running sum

A ratio is how many times faster hive is. Required speed:

    reduce   hive's C++ pass >= 0.85 x the plain C loop, which computes no norm
             hive >= 1.3 x the best way in torch at 25 M and K >= 4, >= 1.1 x at 25 M and K = 2, >= 1 x elsewhere
    whole    hive >= 5 x RLPack's scheme

Each repetition times every way once, in alternating directions. A timing covers as many calls as take some 20 ms, after
one call that is not timed. Results are written to existing memory wherever the way allows it.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harness import (
    Bench,
    Check,
    Report,
    Spread,
    add_repetitions,
    aligned,
    interleaved,
    load_warning,
    ratio_of,
    say,
    spread_cells,
    spread_of,
    spread_text,
)
from benchmarks.machine import load_average
from benchmarks.programs import BenchError, here
from hive.compat.rlpack import GradAccumulator, MapOfTensors

COUNTS = (2, 4, 8)
SIZES: dict[str, list[tuple[int, ...]]] = {
    "0.3 M": [(30, 50)] * 200,
    "1.7 M": [
        *((32, 4, 8, 8), (32,), (64, 32, 4, 4), (64,), (64, 64, 3, 3), (64,)),
        *((512, 3136), (512,), (18, 512), (18,)),
    ],
    "25 M": [(2048, 2048), (2048,)] * 6,
}
"""The shapes of the parameters: many small ones, a network for Atari, six wide layers."""

CALL_ELEMENTS = 50e6  # elements that the calls of one timing read: some 20 ms

Way = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """K gradients of a model of this size."""

    size: str
    count: int

    @property
    def parameters(self) -> int:
        return sum(torch.Size(shape).numel() for shape in SIZES[self.size])


def measure_case(case: Case, repetitions: int) -> dict[str, list[float]]:
    """Return milliseconds per call of every way, one value for each repetition; keys: `reduce/...` and `whole/...`.

    Raises BenchError where a way cannot run.
    """
    torch.set_num_threads(1)  # the native part has one thread, so every other way gets one too
    ways = {**_reducing(case), **_whole(case)}
    calls = max(1, round(CALL_ELEMENTS / (case.parameters * case.count)))
    for way in ways.values():  # touches all memory, and finds what cannot run
        way()

    def milliseconds(name: str, repetition: int) -> float:
        ways[name]()  # not timed: fills the caches with this way's own data instead of the previous way's
        start = time.perf_counter()
        for _ in range(calls):
            ways[name]()
        return (time.perf_counter() - start) / calls * 1e3

    return interleaved(list(ways), repetitions, milliseconds)[0]


def _model(case: Case) -> nn.ParameterList:
    torch.manual_seed(case.count)
    model = nn.ParameterList([nn.Parameter(torch.empty(shape)) for shape in SIZES[case.size]])
    for parameter in model:
        parameter.grad = torch.randn(parameter.shape)
    return model


def _norm_of(tensors: Sequence[Tensor]) -> tuple[float, bool]:
    norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(tensors)))))
    return norm, norm - norm == 0.0


def _norm_of_one(tensor: Tensor) -> tuple[float, bool]:
    norm = float(torch.linalg.vector_norm(tensor))
    return norm, norm - norm == 0.0


def _reducing(case: Case) -> dict[str, Way]:
    count, model = case.count, _model(case)
    accumulator = GradAccumulator(None, count)
    named = list(model.named_parameters())
    for _ in range(count):
        accumulator.accumulate(named)
    rounds = list(accumulator)
    flat = [one.block.memory.view(torch.float32) for one in rounds]
    parts = [list(one.values()) for one in rounds]
    out: MapOfTensors = accumulator.mean_reduce()
    sums, result = [torch.empty_like(part) for part in parts[0]], torch.empty_like(flat[0])
    stacked = torch.empty(count, len(result))

    arrays, into = [one.block.array for one in rounds], out.block.array
    weights, native = [1.0] * count, accumulator.c_grad_accumulator

    def foreach() -> object:
        torch._foreach_copy_(sums, parts[0])
        for part in parts[1:]:
            torch._foreach_add_(sums, part)
        torch._foreach_div_(sums, count)
        return _norm_of(sums)

    def flat_add() -> object:
        torch.add(flat[0], flat[1], out=result)
        for one in flat[2:]:
            torch.add(result, one, out=result)
        result.div_(count)
        return _norm_of_one(result)

    def stack() -> object:
        torch.stack(flat, out=stacked)
        torch.sum(stacked, 0, out=result)
        result.div_(count)
        return _norm_of_one(result)

    return {
        "reduce/hive": lambda: accumulator.mean_reduce(out=out),
        "reduce/hive's pass": lambda: native.reduce(arrays, weights, float(count), into),
        "reduce/plain C": _plain(flat, result),
        "reduce/foreach_add": foreach,
        "reduce/flat add": flat_add,
        "reduce/stack.sum": stack,
    }


def _plain(blocks: Sequence[Tensor], out: Tensor) -> Way:
    library = _library()
    addresses = (ctypes.c_void_p * len(blocks))(*[block.data_ptr() for block in blocks])
    arguments: tuple[Any, ...] = (addresses, len(blocks), out.data_ptr(), 1 / len(blocks), len(out))

    def plain() -> object:
        if library.plain_sum(*arguments):
            raise BenchError(f"plain_sum.c has no loop for {len(blocks)} blocks")
        return blocks

    return plain


def _library() -> Any:
    """Compile plain_sum.c for this processor and load it. Raises BenchError."""
    compiler = os.environ.get("CC") or shutil.which("cc")
    if not compiler:
        raise BenchError("no C compiler was found: install one or set CC")
    with tempfile.TemporaryDirectory(prefix="hive-bench-") as folder:
        target = Path(folder) / "plain_sum.so"
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", here("plain_sum.c"), "-o", target]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"plain_sum.c could not be compiled\n{done.stderr}")
        library = ctypes.CDLL(str(target))
    pointer = ctypes.c_void_p
    library.plain_sum.argtypes = [pointer, ctypes.c_int, pointer, ctypes.c_float, ctypes.c_size_t]
    return library


def _whole(case: Case) -> dict[str, Way]:
    count = case.count
    named = list(_model(case).named_parameters())
    gradients = [parameter.grad for _, parameter in named if parameter.grad is not None]
    sums = [torch.zeros_like(gradient) for gradient in gradients]

    def with_hive(accumulator: GradAccumulator) -> Way:
        for _ in range(count):
            accumulator.accumulate(named)
        out = accumulator.mean_reduce()

        def whole() -> object:
            accumulator.clear()
            for _ in range(count):
                accumulator.accumulate(named)
            return accumulator.mean_reduce(out=out)

        return whole

    def foreach() -> object:
        torch._foreach_copy_(sums, gradients)
        for _ in range(count - 1):
            torch._foreach_add_(sums, gradients)
        torch._foreach_div_(sums, count)
        return _norm_of(sums)

    def rlpack() -> object:
        rounds = []
        for _ in range(count):
            clones = [gradient.detach().clone() for gradient in gradients]
            if any(bool(torch.isnan(clone).all()) for clone in clones):
                raise BenchError("the gradients are NaN")
            rounds.append(clones)
        reduced = [gradient / count for gradient in rounds[0]]
        for one in rounds[1:]:
            for total, gradient in zip(reduced, one, strict=True):
                total += gradient / count
        return _norm_of(reduced)

    return {
        "whole/hive": with_hive(GradAccumulator(None, count)),
        "whole/hive, running": with_hive(GradAccumulator(None, count, store="running")),
        "whole/foreach_add": foreach,
        "whole/RLPack's scheme": rlpack,
    }


# --- report

LEAST_OF_PLAIN, LEAST_OF_RLPACK = 0.85, 5.0
LEAST_OF_TORCH = {("25 M", 2): 1.1, ("25 M", 4): 1.3, ("25 M", 8): 1.3}
TORCH = ("reduce/foreach_add", "reduce/flat add", "reduce/stack.sum")

Timings = Mapping[str, Sequence[float]]  # milliseconds of every way, by repetition


def measure(options: argparse.Namespace, machine: Mapping[str, object]) -> Report:
    lines = [
        "K gradients to their mean, its norm and a check for finite values; the plain loop computes the mean only.",
        f"Milliseconds, medians of {options.repetitions} interleaved repetitions, one thread each; "
        "x: how much faster hive is.",
    ]
    documents, checks = [], []
    for case in [Case(size, rounds) for size in options.size or SIZES for rounds in options.rounds or COUNTS]:
        say(f"{case.size}, K = {case.count}")
        timings = measure_case(case, options.repetitions)
        faster = {name: times_faster(timings, name) for name in timings}
        rows = [
            (f"  {name.replace('/', ': ')}", *spread_cells(values, 3), spread_text(faster[name]))
            for name, values in timings.items()
        ]
        head = (f"{case.size} ({case.parameters:,} parameters), K = {case.count}", "ms", "least..most", "x")
        lines += ["", *aligned(head, rows)]
        checks += checks_of(case, timings)
        documents.append(
            {
                "size": case.size,
                "parameters": case.parameters,
                "rounds": case.count,
                "measured_ms": timings,
                "times_faster": {name: dataclasses.asdict(spread) for name, spread in faster.items()},
            }
        )
    figures = {"repetitions": options.repetitions, "threads": 1, "cases": documents}
    return Report([*lines, *load_warning(load_average())], figures, checks)


def times_faster(timings: Timings, name: str, ours: str = "hive") -> Spread:
    """Return how many times faster `ours` is than `name` at the same task."""
    return ratio_of(timings[name], timings[f"{name.partition('/')[0]}/{ours}"])


def checks_of(case: Case, timings: Timings) -> list[Check]:
    best = min(TORCH, key=lambda name: spread_of(timings[name]).median)
    checks = []
    for ours, name, least in (
        ("hive's pass", "reduce/plain C", LEAST_OF_PLAIN),
        ("hive", best, LEAST_OF_TORCH.get((case.size, case.count), 1.0)),
        ("hive", "whole/RLPack's scheme", LEAST_OF_RLPACK),
    ):
        spread = times_faster(timings, name, ours)
        promise = f"{case.size}, K = {case.count}: {ours} >= {least:g} x {name.partition('/')[2]}"
        checks.append(Check(promise, spread_text(spread), spread.median >= least))
    return checks


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", action="append", choices=list(SIZES), default=[], help="default: each of them")
    parser.add_argument("--rounds", action="append", type=int, choices=COUNTS, default=[], help="default: each of them")
    add_repetitions(parser, 15)


BENCH = Bench(
    "accumulator",
    "K gradients to their mean, norm and finite check: hive, torch in several ways, a plain C loop",
    "example: scripts/bench accumulator --size '25 M' --rounds 4 --json accumulator.json --check",
    _options,
    measure,
)
