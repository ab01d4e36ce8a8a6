"""Which ways of collecting go together, in library mode: checked when an object is made, never when it runs.

    execution     Central: in the process and thread of the parent     Parallel: several workers at once
    communication synchronous: a round of everybody                    asynchronous: whatever is ready

    Central, synchronous     no remote worker        Parallel, synchronous     1 remote worker or more, may be cut short
    Central, asynchronous    no remote worker        Parallel, asynchronous    1 remote worker or more

(A run has a third communication, "pipelined": [collection] of a config.)
"""

from __future__ import annotations

from hive.errors import TopologyError

__all__ = ["COMMUNICATIONS", "EXECUTIONS", "check_device", "check_modes", "check_word"]

EXECUTIONS = ("Central", "Parallel")
COMMUNICATIONS = ("synchronous", "asynchronous")


def check_word(name: str, value: object, words: tuple[str, ...]) -> None:
    """Raises TopologyError if `value` is none of `words`."""
    if value not in words:
        near = [word for word in words if isinstance(value, str) and word.lower().startswith(value.lower()[:4])]
        hint = f"did you mean `{near[0]}`?" if near and value else f"one of: {', '.join(words)}"
        if value == "pipelined":
            hint = "pipelined is a communication of runs: `communication` in [collection] of a config"
        raise TopologyError(f"{name} is {value!r}, and can be {' or '.join(words)}", hint=hint)


def check_device(device: str | None) -> None:
    """Raises TopologyError for a device that gradients are not computed on."""
    if device not in (None, "cpu"):
        raise TopologyError(f"no gradients are computed on `{device}`", hint='device="cpu" is all that there is yet')


def check_modes(
    execution: str,
    communication: str,
    remote_workers: int,
    fraction_workers: float = 1.0,
    broadcast_interval: int = 1,
) -> None:
    """Raises TopologyError, and says what does not go with what."""
    check_word("col_execution", execution, EXECUTIONS)
    check_word("col_communication", communication, COMMUNICATIONS)
    if execution == "Parallel" and not remote_workers:
        raise TopologyError(
            "col_execution is Parallel, and there is no remote collection worker",
            hint='give the set of collection workers num_workers >= 1, or say col_execution="Central"',
        )
    if execution == "Central" and remote_workers:
        raise TopologyError(
            f"col_execution is Central, and there are {remote_workers} remote collection workers that would idle",
            hint='give the set of collection workers num_workers=0, or say col_execution="Parallel"',
        )
    if not 0.0 < fraction_workers <= 1.0:
        raise TopologyError(f"col_fraction_workers is {fraction_workers}, and must be in (0, 1]")
    if fraction_workers < 1.0 and (execution, communication) != ("Parallel", "synchronous"):
        raise TopologyError(
            f"col_fraction_workers is {fraction_workers}, and {execution} {communication} collection has no rounds of "
            "several workers to cut short",
            hint='it goes with col_execution="Parallel" and col_communication="synchronous"',
        )
    if type(broadcast_interval) is not int or broadcast_interval < 1:
        raise TopologyError(f"broadcast_interval is {broadcast_interval!r}, and must be an integer of at least 1")
