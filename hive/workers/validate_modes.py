"""Validates combinations of collection modes in library mode, when an object is made.

    execution     Central: in the process and thread of the parent     Parallel: several workers at once
    communication synchronous: rounds of all workers                   asynchronous: any rollout that is ready

    Central, synchronous     no remote worker        Parallel, synchronous     1 remote worker or more, may end early
    Central, asynchronous    no remote worker        Parallel, asynchronous    1 remote worker or more

A run has a third communication, "pipelined", in [collection] of its config.
"""

from __future__ import annotations

from hive.errors import TopologyError

__all__ = ["COMMUNICATIONS", "EXECUTIONS", "check_device", "check_modes", "check_word"]

EXECUTIONS = ("Central", "Parallel")
COMMUNICATIONS = ("synchronous", "asynchronous")


def check_word(name: str, value: object, words: tuple[str, ...]) -> None:
    """Raise TopologyError unless `value` is one of `words`. The hint names the closest one."""
    if value not in words:
        near = [word for word in words if isinstance(value, str) and word.lower().startswith(value.lower()[:4])]
        hint = f"did you mean `{near[0]}`?" if near and value else f"one of: {', '.join(words)}"
        if value == "pipelined":
            hint = "only runs can be pipelined: set `communication` in [collection] of a config"
        raise TopologyError(f"{name} is {value!r}: expected {' or '.join(words)}", hint=hint)


def check_device(device: str | None) -> None:
    """Raise TopologyError for a device other than the CPU."""
    if device not in (None, "cpu"):
        raise TopologyError(
            f"gradients cannot be computed on `{device}`", hint="leave it out, and set gradients.device in the config"
        )


def check_modes(
    execution: str,
    communication: str,
    remote_workers: int,
    fraction_workers: float = 1.0,
    broadcast_interval: int = 1,
) -> None:
    """Raise TopologyError for an invalid combination of modes; the message names it."""
    check_word("col_execution", execution, EXECUTIONS)
    check_word("col_communication", communication, COMMUNICATIONS)
    if execution == "Parallel" and not remote_workers:
        raise TopologyError(
            "col_execution is Parallel, but the set has no remote collection worker",
            hint='set num_workers >= 1 for the collection workers, or col_execution="Central"',
        )
    if execution == "Central" and remote_workers:
        raise TopologyError(
            f"col_execution is Central, so the {remote_workers} remote collection workers would be idle",
            hint='set num_workers=0 for the collection workers, or col_execution="Parallel"',
        )
    if not 0.0 < fraction_workers <= 1.0:
        raise TopologyError(f"col_fraction_workers is {fraction_workers}: expected a number in (0, 1]")
    if fraction_workers < 1.0 and (execution, communication) != ("Parallel", "synchronous"):
        raise TopologyError(
            f"col_fraction_workers is {fraction_workers}, but {execution} {communication} collection has no rounds of "
            "several workers to end early",
            hint='it requires col_execution="Parallel" and col_communication="synchronous"',
        )
    if type(broadcast_interval) is not int or broadcast_interval < 1:
        raise TopologyError(f"broadcast_interval is {broadcast_interval!r}: expected an integer of at least 1")
