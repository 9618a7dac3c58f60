"""What can be done about runs: one by one, and many at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from foliot.domain.ledger import is_unfinished
from foliot.domain.run import Kept
from foliot.domain.state import Reason
from foliot.errors import Conflict
from foliot.operate.advising import open_effects, shown_effect
from foliot.operate.cancelling import forced_words, held_words
from foliot.operate.replaying import Outcome
from foliot.web.pages.acting import Acts, Desk, Example, Field, Prospect

SHOWN = 12
"""So many of those that are chosen are named."""


def add_run_acts(acts: Acts) -> None:
    acts.add("runs", "cancel", _look_cancel, _cancel)
    acts.add("runs", "force_cancel", _look_force_cancel, _force_cancel, is_for_all=True)
    acts.add("runs", "skip", _look_skip, _skip)
    acts.add("runs", "release", _look_release, _release)
    acts.add("runs", "retry", _look_retry, _retry)
    acts.add("runs", "resume", _look_resume, _resume)
    acts.add("runs", "rerun", _look_rerun, _rerun)
    acts.add("runs", "repair", _look_repair, _repair)
    acts.add("runs", "verify", _look_verify, _verify)
    acts.add("runs", "reconcile", _look_reconcile, _reconcile)
    acts.add("runs", "close", _look_close, _close)


async def _look_cancel(desk: Desk) -> Prospect:
    view = await desk.operate.run_async(desk.subject)
    running = str(view.state) == "running"
    will = "Foliot requests cancellation; the handler must check `ctx.cancelled`." if running else "It will not run."
    if view.schedule is not None and not running:
        will += " Its schedule continues."
    return Prospect(f"Cancel {view.id}", [f"The run is {view.state}. {will}"], "Cancel run", unsafe=True)


async def _cancel(desk: Desk) -> str:
    return _told(await desk.operate.cancel_async(desk.subject, **desk.said))


async def _look_force_cancel(desk: Desk) -> Prospect:
    heading = f"Force cancel {desk.subject}"
    try:
        seen = await desk.operate.preview_force_async(desk.subject)
    except Conflict as problem:
        return Prospect(heading, [f"Not possible: {problem}"], "", may_go=False)
    held = held_words(seen)
    sample = [Example(run, note) for run, note in held[:SHOWN]]
    sample += [Example(f"and {len(held) - SHOWN:,} more")] if len(held) > SHOWN else []
    return Prospect(heading, forced_words(seen), "Force cancel", sample=sample, unsafe=True)


async def _force_cancel(desk: Desk) -> str:
    return _told(await desk.operate.cancel_async(desk.subject, force=True, **desk.said))


async def _look_skip(desk: Desk) -> Prospect:
    will = ["The run ends as skipped, with your reason. Its schedule continues."]
    return Prospect(f"Skip {desk.subject}", will, "Skip run")


async def _skip(desk: Desk) -> str:
    return _told(await desk.operate.skip_async(desk.subject, **desk.said))


async def _look_release(desk: Desk) -> Prospect:
    view = await desk.operate.run_async(desk.subject)
    will = [f"The run is held: {view.detail or view.reason or 'no reason recorded'}."]
    will.append("The scheduler hands it to a worker now despite the hold.")
    return Prospect(f"Release {view.id}", will, "Release run", unsafe=True)


async def _release(desk: Desk) -> str:
    return _told(await desk.operate.release_async(desk.subject, **desk.said))


async def _look_retry(desk: Desk) -> Prospect:
    will = (
        "The scheduler retries the run now with a full number of attempts. Recorded effects and items are not repeated."
    )
    return _with_its_risk(desk, Prospect(f"Retry {desk.subject}", [will], "Retry run"))


def _with_its_risk(desk: Desk, prospect: Prospect) -> Prospect:
    """Who comes by the button that could do harm is told of it, and has to say themselves that they know."""
    if not (desk.form.has("risky") or desk.form.has("override")):
        return prospect
    risk = "Foliot refuses the retry because an effect may have happened already. It may happen a second time."
    box = Field("override", "I accept that an effect may happen twice", "", "checkbox", required=True)
    return replace(prospect, will=[*prospect.will, risk], fields=[box], unsafe=True)


async def _retry(desk: Desk) -> str:
    override = desk.form.has("override")
    return _told(await desk.operate.retry_async(desk.subject, override=override, **desk.said))


async def _look_resume(desk: Desk) -> Prospect:
    will = ["The run continues where it stopped. Recorded effects and items are not repeated."]
    return Prospect(f"Resume {desk.subject}", will, "Resume run")


async def _resume(desk: Desk) -> str:
    kept = await desk.operate.resume_run_async(desk.subject, **desk.said)
    return f"{kept.id}: resumed; recorded effects and items are not repeated"


async def _look_rerun(desk: Desk) -> Prospect:
    will = "Creates a new run with the same arguments and ledger. Effects recorded as done are not repeated."
    return _with_its_risk(desk, Prospect(f"Rerun {desk.subject}", [will], "Create rerun"))


async def _rerun(desk: Desk) -> str:
    override = desk.form.has("override")
    return _told(await desk.operate.rerun_async(desk.subject, override=override, **desk.said))


async def _look_repair(desk: Desk) -> Prospect:
    will = ["Creates a new run with `ctx.repair` set: the handler rewrites its output."]
    return Prospect(f"Repair {desk.subject}", will, "Create repair run")


async def _repair(desk: Desk) -> str:
    return _told(await desk.operate.rerun_async(desk.subject, repair=True, **desk.said))


async def _look_verify(desk: Desk) -> Prospect:
    will = ["A worker runs the job's check again. The check must not change data."]
    return Prospect(f"Verify {desk.subject}", will, "Verify run")


async def _verify(desk: Desk) -> str:
    return _told(await desk.operate.verify_async(desk.subject, **desk.said))


async def _look_reconcile(desk: Desk) -> Prospect:
    view = await desk.operate.run_async(desk.subject)
    advice = await desk.operate.advice_async(desk.subject)
    effects = [shown_effect(effect) for effect in open_effects(view)]
    will = ["Foliot records your answers and your evidence in the ledger of the run."] if effects else []
    if effects or is_unfinished(view.effects, view.batches, returned=True):
        will.append("The unfinished items are then resumed, closed as not needed, or left parked until you decide.")
    else:
        will.append("The run ends as reconciled, with your evidence. It does not run again.")
    if advice is not None:
        will += [*advice.counts, *advice.look]
    fields = [Field(f"effect {name}", f"Did {name} happen?", "", "select", choices=_ANSWERS) for name in effects]
    then = "resume" if effects and view.reason != Reason.POISON else ""
    fields.append(Field("then", "Unfinished items", then, "select", choices=_THEN))
    hint = "A reference: statement, ticket or log line. Stored with the run."
    fields.append(Field("evidence", "Evidence", "", hint=hint, required=True))
    return Prospect(f"Reconcile {view.id}", will, "Reconcile run", fields)


_ANSWERS = (("", "unknown"), ("done", "it happened"), ("not_done", "it did not happen"))
_THEN = (
    ("", "leave parked if any remain"),
    ("resume", "resume them now"),
    ("close", "close as not needed (give the reason below)"),
)


async def _look_close(desk: Desk) -> Prospect:
    advice = await desk.operate.advice_async(desk.subject)
    will = ["The run ends as reconciled. Unfinished items stay unfinished; your reason must explain why."]
    if advice is not None:
        will += advice.counts
    fields = []
    if str((await desk.operate.run_async(desk.subject)).state) != "settled":
        fields.append(Field("evidence", "Evidence", "", hint="Stored with the run.", required=True))
    return Prospect(f"Close {desk.subject}", will, "Close run", fields, unsafe=True)


async def _close(desk: Desk) -> str:
    evidence = desk.form.get("evidence")
    return _told(await desk.operate.reconcile_async(desk.subject, evidence=evidence, then="close", **desk.said))


async def _reconcile(desk: Desk) -> str:
    words = [
        f"{name.removeprefix('effect ')}={desk.form.get(name)}"
        for name in desk.form.values
        if name.startswith("effect ") and desk.form.get(name)
    ]
    kept = await desk.operate.reconcile_async(
        desk.subject,
        evidence=desk.form.get("evidence"),
        effects=words,
        then=desk.form.get("then") or None,
        **desk.said,
    )
    return _told(kept)


def _told(kept: Kept) -> str:
    return f"{kept.id}: {_OUTCOMES.get(kept.outcome, kept.outcome)}"


_OUTCOMES = {
    "cancelled": "it will not run",
    "asked": "cancellation requested; the handler must check ctx.cancelled",
    "forced": "its worker stops the attempt or ends its own process",
    "withdrawn": "the tick will be skipped",
    "parked": "parked, because one of its effects is ambiguous",
    "retried": "retry scheduled",
    "rerun": "rerun created",
    "rechecked": "check scheduled",
    "reconciled": "reconciled and ended; your evidence is stored",
    "recorded": "answers recorded; other effects are still ambiguous",
    "settled": "effects settled; unfinished items wait to be resumed or closed",
    "resumed": "effects settled; unfinished items are resumed",
    "closed": "closed; unfinished items stay unfinished",
    "released": "released to a worker",
    "skipped": "skipped",
}


def summary(told: Sequence[Outcome]) -> str:
    """What became of many, in a sentence."""
    counts = Counter(str(one.fate) for one in told)
    problem = next((one.problem for one in told if one.problem), None)
    said = ", ".join(f"{count:,} {fate.replace('_', ' ')}" for fate, count in counts.items()) or "nothing"
    return said + (f" (for example: {problem})" if problem else "")


def examples(runs: Sequence[str]) -> list[Example]:
    shown = [Example(run) for run in runs[:SHOWN]]
    return shown + ([Example(f"and {len(runs) - SHOWN:,} more")] if len(runs) > SHOWN else [])
