"""Write how a run ended: summary.json as its last file, or, for a resumed run without an update, the previous one."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping

from hive.errors import HiveError, RecordError
from hive.records import Summary, best_facts, list_checkpoints, read_resume_point, write_bytes
from hive.records.checkpoints.folders import Checkpoint
from hive.records.crash import write_failure
from hive.records.documents import parse_object
from hive.records.run_warnings import CALLBACK_FAILED, ENVIRONMENT_FAILED, GLOBAL_DRAWS, NOT_REPEATED
from hive.records.standings import standings
from hive.records.summary import NOT_STARTED, ROUNDS, UPDATE_COUNTS
from hive.runtime.run.live_run import SCALED_RUN, LiveRun
from hive.runtime.supervise.outcome import Outcome


def conclude(run: LiveRun, outcome: Outcome) -> None:
    """Log the end of the run, then write summary.json as the last file; nothing if another process owns it by now."""
    run.concluded = True
    if not run.lock.is_ours():
        return
    resumed = _resumed(run)
    if resumed is not None and _has_not_advanced(run, outcome, resumed):
        _keep_previous(run, outcome)
        run.settle_config(advanced=False)
        return
    run.output.check()
    run.end_warnings()
    results, inexact = _results(outcome, resumed), why_inexact(run, outcome)
    steps = int(results.get("env_steps", 0))
    frames = int(results.get("frames", steps))
    mean_return = results.get("mean_return_100", math.nan)
    summary = Summary(
        name=run.directory.name,
        scheme=run.config.run.scheme,
        state=outcome.state,
        stop_reason=outcome.reason,
        seed=run.config.run.seed,
        exact=not inexact,
        inexact=inexact,
        env_steps=steps,
        frames=frames if frames != steps else None,
        updates=int(results.get("updates", 0)),
        update_counts={name: int(results[name]) for name in UPDATE_COUNTS if name in results},
        native_updates=int(results.get("native_updates", 0)),
        given_steps=int(results.get("replay/given", 0)),
        rounds=ROUNDS[int(results["rounds"])] if "rounds" in results else "",
        episodes=int(results.get("episodes", 0)),
        mean_return_100=mean_return if math.isfinite(mean_return) else None,
        started=run.started,
        wall_s=run.wall_s,
        earlier_s=run.earlier_s,
        train_s=results.get("train_s", 0.0),
        first_steps=int(results.get("first_steps", 0)),
        weights_sha256=outcome.digest,
        channels=outcome.channels,
        restarts=outcome.restarts,
        error=_error(run, outcome).render().removeprefix("error: ") if outcome.error else None,
        best=best_facts(run.directory),
        warnings=[warning.data for warning in run.warnings.values()],
        policies={
            policy.name: {"mean_return_100": policy.mean_return, "updates": policy.updates}
            for policy in standings(run.directory)
        },
    )
    run.directory.release()
    run.event("ended", f"{outcome.state}: {outcome.reason}", {"state": outcome.state})
    summary.write(run.directory.summary_file)
    run.settle_config(advanced=outcome.state == "finished" or run.has_advanced(outcome.results))


def conclude_unbuilt(run: LiveRun) -> Outcome:
    """Conclude a run that received a request to end before it had an actor."""
    assert run.requested is not None
    outcome = Outcome("stopped", run.requested[0], "", "", False, {}, {}, {}, "")
    conclude(run, outcome)
    return outcome


def conclude_unstarted(run: LiveRun, error: HiveError) -> None:
    """Conclude a run that could not start; one that was being resumed gets its previous summary back."""
    if run.previous_summary:
        run.directory.release()
        write_bytes(run.directory.summary_file, run.previous_summary)
        run.settle_config(advanced=False)
    else:
        conclude(run, Outcome("failed", NOT_STARTED, str(error), error.hint, False, {}, {}, {}, ""))


def _resumed(run: LiveRun) -> Checkpoint | None:
    """Return the checkpoint that this run was resumed from; None for a new run, and if it is gone."""
    with contextlib.suppress(RecordError):
        if (point := read_resume_point(run.directory)) is not None:
            saved = list_checkpoints(run.directory.checkpoints)
            return next((checkpoint for checkpoint in saved if checkpoint.update == point.update), None)
    return None


def _has_not_advanced(run: LiveRun, outcome: Outcome, resumed: Checkpoint) -> bool:
    """Return whether a resumed run failed without an update, so that its result is still the previous one."""
    before = parse_object(run.previous_summary)
    if outcome.state != "failed" or run.stage or before is None:
        return False
    updates = resumed.state.get("updates", resumed.update)
    return bool(before.get("updates") == updates and outcome.results.get("updates", 0) <= updates)


def _keep_previous(run: LiveRun, outcome: Outcome) -> None:
    """Write the previous summary again, and the error to failure.json."""
    with contextlib.suppress(HiveError):  # a full disk must not prevent the summary
        write_failure(run.directory, _error(run, outcome))
    run.event("ended", f"{outcome.state}: {outcome.reason}; the summary is that from before", {})
    run.directory.release()
    write_bytes(run.directory.summary_file, run.previous_summary)


def _results(outcome: Outcome, resumed: Checkpoint | None) -> Mapping[str, float]:
    """Return the learner's counters; if it reported none after a resumption, those that the checkpoint has."""
    if resumed is None or outcome.results.get("updates"):
        return outcome.results
    state, mean = resumed.state, resumed.mean_return
    results = {"env_steps": state.get("env_steps", 0), "updates": state.get("updates", resumed.update)}
    return results if mean is None else {**results, "mean_return_100": mean}


def _error(run: LiveRun, outcome: Outcome) -> HiveError:
    """Return the error of a failed run; its hint says where the report is, and how to resume."""
    saved = list_checkpoints(run.directory.checkpoints)
    hints = [outcome.hint] if outcome.hint else []
    hints += [f"the report is in {outcome.report}"] if outcome.report else []
    if saved and saved[-1].update:  # that of update 0 holds initial weights only
        hints.append(f"`hive resume {run.directory.name}` continues from update {saved[-1].update:,}")
    return HiveError(f"{outcome.error}\n{outcome.frames}".rstrip(), hint="; ".join(hints))


def why_inexact(run: LiveRun, outcome: Outcome) -> list[str]:
    """Return why a run with the same seed may end with other weights, one text for each cause; [] if none can."""
    causes = [*run.config.inexact, *run.inexact_plan, *_inexact_resumption(run)]
    restarted = ", ".join(name for name, count in outcome.restarts.items() if count)
    events = {
        f"restarted: {restarted}": bool(restarted),
        SCALED_RUN: run.stage > 0 and SCALED_RUN not in causes,
        "`hive set` changed it": run.was_set,
        "environments of helpers drew global random numbers": GLOBAL_DRAWS in run.facts,
        "an environment failed": ENVIRONMENT_FAILED in (*run.warnings, *run.facts),
        "a round that was made again after a resume was not the same": NOT_REPEATED in (*run.warnings, *run.facts),
        "a callback failed": CALLBACK_FAILED in (*run.warnings, *run.facts),
        f"it has not reached its goal: {outcome.state}": outcome.state != "finished",
    }
    causes += [cause for cause, holds in events.items() if holds]
    causes += [f"{name} was another one on a host, or before" for name in run.code.others]
    return causes if causes or outcome.exact else ["its goal was judged at a time, not at an update"]


def _inexact_resumption(run: LiveRun) -> list[str]:
    try:
        resumed = read_resume_point(run.directory)
    except RecordError as error:
        return [str(error)]  # it cannot be known, and the summary must still be written
    return [resumed.why or "it was resumed"] if resumed and not resumed.exact else []
