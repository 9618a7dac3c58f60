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
    will = "Its worker is asked to stop it. It ends when its handler heeds that." if running else "It will not run."
    if view.schedule is not None and not running:
        will += " Its schedule goes on."
    return Prospect(f"Cancel {view.id}", [f"It is {view.state}. {will}"], "Cancel it", unsafe=True)


async def _cancel(desk: Desk) -> str:
    return _told(await desk.operate.cancel_async(desk.subject, **desk.said))


async def _look_force_cancel(desk: Desk) -> Prospect:
    heading = f"Cancel {desk.subject} with force"
    try:
        seen = await desk.operate.preview_force_async(desk.subject)
    except Conflict as problem:
        return Prospect(heading, [f"It cannot be done: {problem}"], "", may_go=False)
    held = held_words(seen)
    sample = [Example(run, note) for run, note in held[:SHOWN]]
    sample += [Example(f"and {len(held) - SHOWN:,} more")] if len(held) > SHOWN else []
    return Prospect(heading, forced_words(seen), "Cancel it with force", sample=sample, unsafe=True)


async def _force_cancel(desk: Desk) -> str:
    return _told(await desk.operate.cancel_async(desk.subject, force=True, **desk.said))


async def _look_skip(desk: Desk) -> Prospect:
    return Prospect(f"Skip {desk.subject}", ["It ends as skipped, with your reason. Its schedule goes on."], "Skip it")


async def _skip(desk: Desk) -> str:
    return _told(await desk.operate.skip_async(desk.subject, **desk.said))


async def _look_release(desk: Desk) -> Prospect:
    view = await desk.operate.run_async(desk.subject)
    will = [f"It is held: {view.detail or view.reason or 'for its turn'}.", "It goes to a worker now, against that."]
    return Prospect(f"Let {view.id} go", will, "Let it go", unsafe=True)


async def _release(desk: Desk) -> str:
    return _told(await desk.operate.release_async(desk.subject, **desk.said))


async def _look_retry(desk: Desk) -> Prospect:
    will = "It is tried again now, with its attempts renewed. What is recorded as done is not done again."
    return _with_its_risk(desk, Prospect(f"Retry {desk.subject}", [will], "Retry it"))


def _with_its_risk(desk: Desk, prospect: Prospect) -> Prospect:
    """Who comes by the button that could do harm is told of it, and has to say themselves that they know."""
    if not (desk.form.has("risky") or desk.form.has("override")):
        return prospect
    risk = "It was refused because something may already have happened: it may happen a second time."
    box = Field("override", "I know that, and want it all the same", "", "checkbox", required=True)
    return replace(prospect, will=[*prospect.will, risk], fields=[box], unsafe=True)


async def _retry(desk: Desk) -> str:
    override = desk.form.has("override")
    return _told(await desk.operate.retry_async(desk.subject, override=override, **desk.said))


async def _look_resume(desk: Desk) -> Prospect:
    will = ["It goes on where it stopped: what is recorded as done is not done again."]
    return Prospect(f"Resume {desk.subject}", will, "Resume it")


async def _resume(desk: Desk) -> str:
    return _told(await desk.operate.resume_run_async(desk.subject, **desk.said))


async def _look_rerun(desk: Desk) -> Prospect:
    will = "A new run with the same arguments and the same ledger: effects that are done stay done."
    return _with_its_risk(desk, Prospect(f"Rerun {desk.subject}", [will], "Rerun it"))


async def _rerun(desk: Desk) -> str:
    override = desk.form.has("override")
    return _told(await desk.operate.rerun_async(desk.subject, override=override, **desk.said))


async def _look_repair(desk: Desk) -> Prospect:
    will = ["A new run that is told to write again what was written wrongly."]
    return Prospect(f"Repair {desk.subject}", will, "Rerun it as a repair")


async def _repair(desk: Desk) -> str:
    return _told(await desk.operate.rerun_async(desk.subject, repair=True, **desk.said))


async def _look_verify(desk: Desk) -> Prospect:
    return Prospect(f"Verify {desk.subject}", ["The job's check is asked again. That changes nothing."], "Ask it again")


async def _verify(desk: Desk) -> str:
    return _told(await desk.operate.verify_async(desk.subject, **desk.said))


async def _look_reconcile(desk: Desk) -> Prospect:
    view = await desk.operate.run_async(desk.subject)
    advice = await desk.operate.advice_async(desk.subject)
    effects = [shown_effect(effect) for effect in open_effects(view)]
    will = ["Your answers go into its ledger, with your evidence."] if effects else []
    if effects or is_unfinished(view.effects, view.batches, returned=True):
        will.append("Then the rest of its work is done, or closed as not needed, or it stays parked until you decide.")
    else:
        will.append("It ends as reconciled, with your evidence. It is not run again.")
    if advice is not None:
        will += [*advice.counts, *advice.look]
    fields = [Field(f"effect {name}", f"Did {name} happen?", "", "select", choices=_ANSWERS) for name in effects]
    then = "resume" if effects and view.reason != Reason.POISON else ""
    fields.append(Field("then", "And the rest of its work?", then, "select", choices=_THEN))
    hint = "Where it can be looked up: a statement, a ticket, a log line. It stays with the run."
    fields.append(Field("evidence", "How do you know?", "", hint=hint, required=True))
    return Prospect(f"Settle {view.id}", will, "Settle it", fields)


_ANSWERS = (("", "I do not know"), ("done", "it happened"), ("not_done", "it did not happen"))
_THEN = (
    ("", "leave it parked if any is left"),
    ("resume", "do the rest now"),
    ("close", "the rest is not needed (say why below)"),
)


async def _look_close(desk: Desk) -> Prospect:
    advice = await desk.operate.advice_async(desk.subject)
    will = ["It ends as reconciled. What is not done stays not done, and your reason says why that is right."]
    if advice is not None:
        will += advice.counts
    fields = []
    if str((await desk.operate.run_async(desk.subject)).state) != "settled":
        fields.append(Field("evidence", "How do you know?", "", hint="It stays with the run.", required=True))
    return Prospect(f"Close {desk.subject}", will, "Close it", fields, unsafe=True)


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
    "asked": "its worker was asked to stop it",
    "forced": "its worker stops it, or ends its process",
    "withdrawn": "this tick will be skipped",
    "parked": "an effect of it is open, so it waits for a person now",
    "retried": "it is tried again",
    "rerun": "this new run was made",
    "rechecked": "its check is asked again",
    "reconciled": "it is reconciled; it has ended, and your evidence stays with it",
    "recorded": "your answers are recorded; other effects have none yet",
    "settled": "its effects are settled; a part of its work is not done, and it waits to be resumed or closed",
    "resumed": "its effects are settled, and the rest is done now",
    "closed": "it is closed; what was not done stays not done",
    "released": "it goes to a worker",
    "skipped": "it is skipped",
}


def summary(told: Sequence[Outcome]) -> str:
    """What became of many, in a sentence."""
    counts = Counter(str(one.fate) for one in told)
    problem = next((one.problem for one in told if one.problem), None)
    said = ", ".join(f"{count:,} {fate.replace('_', ' ')}" for fate, count in counts.items()) or "nothing"
    return said + (f" (for one: {problem})" if problem else "")


def examples(runs: Sequence[str]) -> list[Example]:
    shown = [Example(run) for run in runs[:SHOWN]]
    return shown + ([Example(f"and {len(runs) - SHOWN:,} more")] if len(runs) > SHOWN else [])
