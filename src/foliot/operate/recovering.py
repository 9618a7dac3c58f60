"""The verbs for runs that came to no good end. What advice calls unsafe needs an override, and its reason is kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from foliot.domain.instant import Instant
from foliot.domain.ledger import EffectState, Settled, Then
from foliot.domain.recovery import Action, Recovery
from foliot.domain.replay import Fate
from foliot.domain.run import Kept, Lane, Origin, RunView
from foliot.domain.state import PARKED, TERMINAL, State
from foliot.domain.store import JobCard, Store
from foliot.errors import Conflict, InvalidInput, Refused
from foliot.operate.acting import Acting, acting, as_instant, evident, not_a_placeholder, stated
from foliot.operate.advising import Guidance, guidance, quoted, refusal, shown_effect, traits_of
from foliot.operate.replaying import Outcome, Progress, spacing
from foliot.operate.report import OVERRIDE
from foliot.operate.settling import Reconciled, Words, left_open, settled, settled_state, then_of
from foliot.operate.words import listed

MOST_AT_ONCE = 10_000


class RecoveryVerbs(Acting):
    """Retry, resume, rerun, verify, reconcile: refused where the ledger says that they could do harm."""

    async def retry_async(self, run: str, *, reason: str, actor: str, override: bool = False) -> Kept:
        """Makes a dead or unverified run due again now, with its attempts renewed.

        Conflict when advice calls that unsafe (an effect may have happened), unless `override`.
        """
        store, who, why = await self._opened(), acting(actor), stated(reason)
        view, told = await self._advised(store, run)
        against = _refuse_unsafe(view, told, Action.RETRY, override)
        return await store.retry(view.id, actor=who, note=_noted(why, against), override=override)

    def retry(self, run: str, *, reason: str, actor: str, override: bool = False) -> Kept:
        return self._call(lambda: self.retry_async(run, reason=reason, actor=actor, override=override), "retry_async")

    async def resume_run_async(self, run: str, *, reason: str, actor: str) -> Kept:
        """Has a run go on where it stopped. Conflict unless what it did is on record, or it had done nothing."""
        store, who, why = await self._opened(), acting(actor), stated(reason)
        view, told = await self._advised(store, run)
        if told is not None and told.advice.recovery not in (Recovery.RESUMABLE, Recovery.CLEAN):
            raise Conflict(
                f"{view.id} cannot be resumed: {told.advice.why}. "
                f"For its safe steps: foliot runs show {quoted(view.id)}"
            )
        _refuse_unsafe(view, told, Action.RETRY, override=False)
        return await store.retry(view.id, actor=who, note=why, override=False, action="resume")

    def resume_run(self, run: str, *, reason: str, actor: str) -> Kept:
        return self._call(lambda: self.resume_run_async(run, reason=reason, actor=actor), "resume_run_async")

    async def rerun_async(
        self,
        run: str,
        *,
        reason: str,
        actor: str,
        repair: bool = False,
        repeat: Iterable[str] = (),
        override: bool = False,
    ) -> Kept:
        """Repeats the intent of a run that ended, or waits for a person: a new run with its arguments and its ledger.

        What is done stays done, but for the effects that `repeat` names: that needs `override`. `repair` tells the
        handler that it is to write again what was written wrongly.
        """
        store, who, why = await self._opened(), acting(actor), stated(reason)
        names = [repeat] if isinstance(repeat, str) else list(repeat)
        return await self._rerun(store, run, _Rerun(who, why, repair, names, override))

    async def _rerun(self, store: Store, run: str, wish: _Rerun) -> Kept:
        view, told = await self._advised(store, run)
        offered = () if told is None else (told.advice.action, *told.advice.also)
        against = False
        if not (wish.repair and Action.REPAIR in offered):
            against = _refuse_unsafe(view, told, Action.RERUN, wish.override)
        if wish.repeat and not wish.override:
            raise Conflict(f"{view.id}: {listed(wish.repeat)} would happen again; give an override and a reason")
        if wish.dry_run:
            return Kept(view.number, view.name, "would", view.state, max(wish.due_at, await store.now()))
        return await store.rerun(
            view.id,
            repair=wish.repair,
            repeat=wish.repeat,
            override=wish.override,
            actor=wish.actor,
            note=_noted(wish.note, against or bool(wish.repeat), wish.repeat),
            lane=wish.lane,
            due_at=wish.due_at,
        )

    def rerun(
        self,
        run: str,
        *,
        reason: str,
        actor: str,
        repair: bool = False,
        repeat: Iterable[str] = (),
        override: bool = False,
    ) -> Kept:
        return self._call(
            lambda: self.rerun_async(run, reason=reason, actor=actor, repair=repair, repeat=repeat, override=override),
            "rerun_async",
        )

    async def rerun_many_async(
        self,
        runs: Iterable[str],
        *,
        reason: str,
        actor: str,
        repair: bool = False,
        override: bool = False,
        rate: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> list[Outcome]:
        """Reruns many, each by itself, in the lane backfill, so many in a time as `rate` says. One that cannot be rerun
        is reported, and never stops the rest. A dry run changes nothing, and tells what it would do."""
        store, who, every = await self._opened(), acting(actor), spacing(rate)
        wish = _Rerun(who, "" if dry_run else stated(reason), repair, [], override, Lane.BACKFILL, dry_run)
        found: list[Outcome] = []
        due_at = await store.now()
        for run in dict.fromkeys(runs):
            try:
                kept = await self._rerun(store, run, wish._replace(due_at=due_at))
            except Refused as problem:
                found.append(Outcome(run, Fate.REFUSED, str(problem)))
            else:
                fate, made = (Fate.WOULD, None) if dry_run else (Fate.RERUN, kept.id)
                found.append(Outcome(run, fate, None, kept.fire_at, made))
                due_at = kept.fire_at + every
            if progress is not None:
                progress(len(found))
        return found

    def rerun_many(
        self,
        runs: Iterable[str],
        *,
        reason: str,
        actor: str,
        repair: bool = False,
        override: bool = False,
        rate: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> list[Outcome]:
        return self._call(
            lambda: self.rerun_many_async(
                runs,
                reason=reason,
                actor=actor,
                repair=repair,
                override=override,
                rate=rate,
                dry_run=dry_run,
                progress=progress,
            ),
            "rerun_many_async",
        )

    async def ended_between_async(
        self,
        name: str,
        since: datetime | Instant,
        until: datetime | Instant,
        *,
        states: Collection[State] = (),
        limit: int = MOST_AT_ONCE,
    ) -> list[RunView]:
        """Runs of a job, or of a schedule of that name, that can be rerun, with a nominal time in `[since, until)`:
        those that ended or wait for a person, in these states if any are given; and no reruns."""
        store = await self._opened()
        found = await store.runs_between(name, as_instant(since), as_instant(until), limit)
        wanted = set(states) or PARKED | TERMINAL
        return [view for view in found if view.state in wanted & (PARKED | TERMINAL) and view.origin != Origin.RERUN]

    async def verify_async(self, run: str, *, reason: str, actor: str) -> Kept:
        """Has the job's check look again at an unverified or ambiguous run; a tick over many members counts them anew.
        It changes nothing but the verdict."""
        store, who, why = await self._opened(), acting(actor), stated(reason)
        view, card = await self._known(store, run)
        if not traits_of(card).checked and view.interval is None:
            raise Conflict(f"{view.id}: its job {view.job!r} has no check (@job.verify); reconcile the run instead")
        return await store.recheck(view.id, actor=who, note=why)

    def verify(self, run: str, *, reason: str, actor: str) -> Kept:
        return self._call(lambda: self.verify_async(run, reason=reason, actor=actor), "verify_async")

    async def reconcile_async(
        self,
        run: str,
        *,
        evidence: str = "",
        actor: str,
        effects: Words = (),
        reason: str = "",
        then: str | None = None,
    ) -> Kept:
        """Records a person's answers about effects, with the evidence, and decides about the rest of the run's work.

        `effects`: `{("payout", "7"): "done"}` or `["payout:7=not_done"]`. `then="resume"` does the rest; `then="close"`
        declares the rest not needed, with a `reason`. Without `then` the run ends if nothing is left to do, and else
        stays parked: as `settled` once every effect has an answer. A settled run is closed without further evidence.
        """
        store, who, what = await self._opened(), acting(actor), then_of(then)
        view = await store.run(run)
        answers = settled(view, effects)
        is_known = view.state is State.SETTLED and not answers and what is not None
        how = "" if is_known and not evidence else evident(evidence)
        note = _why(reason, what)
        return await store.reconcile(view.id, settled=answers, actor=who, evidence=how, note=note, then=what)

    def reconcile(
        self,
        run: str,
        *,
        evidence: str = "",
        actor: str,
        effects: Words = (),
        reason: str = "",
        then: str | None = None,
    ) -> Kept:
        return self._call(
            lambda: self.reconcile_async(
                run, evidence=evidence, actor=actor, effects=effects, reason=reason, then=then
            ),
            "reconcile_async",
        )

    async def reconcile_many_async(
        self,
        *,
        evidence: str,
        actor: str,
        job: str | None = None,
        effect: str | None = None,
        state: str | None = None,
        reason: str = "",
        then: str | None = None,
        limit: int = 1_000,
        dry_run: bool = False,
    ) -> list[Reconciled]:
        """Settles every run that waits for a person with such an effect open, each by itself.

        `state` says what became of those effects: `done` or `not_done`; None only with `then="close"`, which leaves
        them as they are. `then` is that of `reconcile`. One that cannot be settled is reported, and never stops the
        rest. A dry run changes nothing, and answers what it would do.
        """
        if not 1 <= limit <= MOST_AT_ONCE:
            raise InvalidInput(f"limit={limit!r:.40}: give a whole number from 1 to {MOST_AT_ONCE:,}")
        if job is None and effect is None:
            raise InvalidInput("no filter is given: give a job, an effect, or both")
        wanted, what = None if state is None else settled_state(state), then_of(then)
        if wanted is None and what is not Then.CLOSE:
            raise InvalidInput(
                "no answer is given: set the state of these effects with state=done or state=not_done, or close "
                "the runs with then=close"
            )
        store, who = await self._opened(), acting(actor)
        how, note = "" if dry_run else evident(evidence), "" if dry_run and not reason else _why(reason, what)
        found: dict[str, list[tuple[str, str]]] = {}
        for run, line in await store.maybes(job, effect, limit):
            found.setdefault(run, []).append((line.name, line.key))
        word = _Word(wanted, who, how, note, what, dry_run)
        return [await _settle_one(store, run, names, word) for run, names in found.items()]

    def reconcile_many(
        self,
        *,
        evidence: str,
        actor: str,
        job: str | None = None,
        effect: str | None = None,
        state: str | None = None,
        reason: str = "",
        then: str | None = None,
        limit: int = 1_000,
        dry_run: bool = False,
    ) -> list[Reconciled]:
        return self._call(
            lambda: self.reconcile_many_async(
                evidence=evidence,
                actor=actor,
                job=job,
                effect=effect,
                state=state,
                reason=reason,
                then=then,
                limit=limit,
                dry_run=dry_run,
            ),
            "reconcile_many_async",
        )

    async def advice_async(self, run: str) -> Guidance | None:
        """What is safe to do about a run, and what to type; None when nothing needs to be done."""
        return (await self._advised(await self._opened(), run))[1]

    def advice(self, run: str) -> Guidance | None:
        return self._call(lambda: self.advice_async(run), "advice_async")

    async def _advised(self, store: Store, run: str) -> tuple[RunView, Guidance | None]:
        view, card = await self._known(store, run)
        return view, guidance(view, card, await store.now())

    async def _known(self, store: Store, run: str) -> tuple[RunView, JobCard | None]:
        view = await store.run(run)
        return view, (await store.jobs()).get(view.job)


class _Rerun(NamedTuple):
    """What one person wants of a rerun, or of many."""

    actor: str
    note: str
    repair: bool
    repeat: Sequence[str]
    override: bool
    lane: Lane = Lane.LIVE
    dry_run: bool = False
    due_at: Instant = 0


class _Word(NamedTuple):
    """What one person says of many runs."""

    state: EffectState | None
    actor: str
    evidence: str
    note: str
    then: Then | None
    dry_run: bool


async def _settle_one(store: Store, run: str, names: Sequence[tuple[str, str]], word: _Word) -> Reconciled:
    shown = tuple(f"{name}:{key}" for name, key in names)
    answers = [] if word.state is None else [Settled(name, key, word.state) for name, key in names]
    try:
        others = [] if word.state is None else left_open(await store.run(run), answers)
        if others:
            told = listed([shown_effect(one) for one in others])
            return Reconciled(
                run, shown, "refused", f"the run has other ambiguous effects: {told}; reconcile the run separately"
            )
        if word.dry_run:
            return Reconciled(run, shown, "would")
        kept = await store.reconcile(
            run, settled=answers, actor=word.actor, evidence=word.evidence, note=word.note, then=word.then
        )
    except Refused as problem:  # one bad row never stops the rest
        return Reconciled(run, shown, "refused", str(problem))
    return Reconciled(run, shown, kept.outcome)


def _why(reason: str, then: Then | None) -> str:
    """The reason of a reconciliation: required to close a run, because its rest is never asked for again."""
    if then is not Then.CLOSE:
        return stated(reason) if reason else ""
    if not reason.strip():
        raise InvalidInput("reason is missing: then=close needs the reason why the remaining work is not needed")
    return not_a_placeholder(stated(reason), "reason", "why the remaining work is not needed")


def _refuse_unsafe(view: RunView, told: Guidance | None, action: Action, override: bool) -> bool:
    """Whether `action` goes against advice; Conflict, with the advice in it, when nobody answers for that.

    The look and the act are two transactions: what the ledger says is checked again by the store, in the second.
    """
    against = told is not None and action in told.advice.unsafe
    if told is not None and against and not override:
        raise Conflict(refusal(view, told))
    return against


def _noted(reason: str, against: bool, repeat: Sequence[str] = ()) -> str:
    """The reason as the audit log keeps it: what went against advice is marked, because reports look for it."""
    if not against:
        return reason
    return f"{OVERRIDE}, {listed(repeat, 20)} repeated: {reason}" if repeat else f"{OVERRIDE}: {reason}"
