"""The verbs that tell a person what happened: one run's story, one day's report, one job's card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from typing import NamedTuple

from foliot.domain.identity import first_of_lineage, run_number
from foliot.domain.instant import HOUR, SECOND, Instant
from foliot.domain.listing import RunFilter
from foliot.domain.members import completeness, is_whole
from foliot.domain.run import Origin, RunView
from foliot.domain.schedule import ScheduleView
from foliot.domain.standing import USEFUL
from foliot.domain.state import PARKED, Reason, State
from foliot.domain.store import AuditRow, EventRow, JobCard, Store
from foliot.errors import InvalidInput, UnknownName
from foliot.operate.acting import Acting
from foliot.operate.advising import traits_of
from foliot.operate.jobs import LISTED, LOOKED_AT, TELLING, Durations, durations
from foliot.operate.report import MOST_TICKS, OVERRIDE, Day, Report, Verdict, report
from foliot.operate.shapes import readable_rule
from foliot.operate.story import Lineage, StoryLine, listed_once, story
from foliot.timing.preview import day_bounds
from foliot.timing.zones import zone

_SPANS = 500
UNTAKEN = ("unknown_job", "missing_labels")
"""Events that say of a job that no live worker takes its runs; told once an hour, for as long as that is so."""
_REPEATING = ("rerun", "repair")
_AGAIN = ("retry", "replay", *_REPEATING)


class JobView(NamedTuple):
    """A job with what its latest runs say about it."""

    card: JobCard
    counts: dict[str, int]
    """Of the latest runs, by state."""
    taken: Durations
    complete: bool = True
    """Not where the search for them was cut short: there may be more, or some where none was found."""


class TellingVerbs(Acting):
    """What is on record, for people."""

    async def lineage_async(self, run: str) -> Lineage:
        """Everything that is on record about a run."""
        store = await self._opened()
        view = await store.run(run)
        audit = await store.audit_of(view.id)
        maker = await _maker(store, view, audit)
        return Lineage(
            view=replace(view, attempts=listed_once(view.attempts)),
            now=await store.now(),
            card=(await store.jobs()).get(view.job),
            events=[*await store.events_of(view.id), *await _why_untaken(store, view)],
            audit=[row for row in audit if row != maker],
            maker=maker,
            slots=None if view.deaths is None else await _most_slots(store),
        )

    async def untaken_async(self) -> list[EventRow]:
        """Of each job that was said to have no worker for its due runs within the last hour, what was said last."""
        store = await self._opened()
        since = await store.now() - HOUR
        found: dict[str, EventRow] = {}
        for job in await store.jobs():
            found |= {one.subject: one for one in await store.events_of(job) if one.kind in UNTAKEN and one.at > since}
        return list(found.values())

    async def story_async(self, run: str) -> list[StoryLine]:
        """A run's whole story, in the order of time."""
        return story(await self.lineage_async(run))

    def story(self, run: str) -> list[StoryLine]:
        return self._call(lambda: self.story_async(run), "story_async")

    async def report_async(
        self, subject: str, on: date | None = None, tz: str | None = None, *, tenant: str | None = None
    ) -> Report:
        """What became of the runs of a job or schedule whose nominal time lies on a day: by default today. `tenant`:
        only of those of one.

        The day is one of the zone `tz`; else of the schedule's own zone, where it is one; else of UTC.
        """
        store = await self._opened()
        cards, now = await store.jobs(), await store.now()
        named = [
            one.id for one in await store.templates() if subject in (one.id, one.job) and tenant in (None, one.tenant)
        ]
        own = [await store.schedule(name) for name in named]
        where = tz or _zone_of([one for one in own if one.schedule.id == subject] or own)
        day = on or zone(where).local(now // SECOND)[0].date()
        start, end = _bounds(day, where)
        found = await store.runs_between(subject, start, end, MOST_TICKS)
        views = [view for view in found if tenant in (None, view.tenant)]
        if not views and not own and subject not in cards:
            raise UnknownName(f"there is no job and no schedule {subject!r}")
        traits = {name: traits_of(card) for name, card in cards.items()}
        tracked = {name for name, one in traits.items() if one.tracked}
        told = Day(
            subject=subject,
            date=day,
            tz=where,
            start=start,
            end=end,
            now=now,
            views=await _with_effects(store, [await _with_members(store, view) for view in views], tracked),
            traits=traits,
            schedules=own,
            in_force_since={one.schedule.id: await _in_force_since(store, one.schedule.id) for one in own},
            overrides=await _overrides(store, views),
        )
        made = report(told)
        if any(one.verdict is Verdict.MISSING for one in made.statements):
            # A row of an earlier day may stand for these ticks: it is looked for only when it is missed.
            return report(replace(told, spans=await _spans(store, own)))
        return made

    def report(self, subject: str, on: date | None = None, tz: str | None = None) -> Report:
        return self._call(lambda: self.report_async(subject, on, tz), "report_async")

    async def job_async(self, name: str) -> JobView:
        store = await self._opened()
        card = (await store.jobs()).get(name)
        if card is None:
            raise UnknownName(f"there is no job {name!r}: no worker has registered it; start a worker that has the job")
        latest = await store.list_runs(RunFilter(job=name), limit=LISTED)
        views = [one.view for one in latest.runs]
        taken = [
            view.finished_at - view.started_at
            for view in views
            if view.state in USEFUL and view.finished_at is not None and view.started_at is not None
        ]
        if len(taken) < TELLING:
            taken = await store.durations(name, LOOKED_AT)
        counts = dict(Counter(str(view.state) for view in views))
        return JobView(card, counts, durations(taken), latest.complete)


async def _why_untaken(store: Store, view: RunView) -> list[EventRow]:
    """What was said of its job since a run is due that waits for a worker."""
    if view.state not in (State.SCHEDULED, State.RETRYING, State.READY, State.VERIFYING):
        return []
    return [one for one in await store.events_of(view.job) if one.kind in UNTAKEN and one.at >= view.fire_at]


async def _maker(store: Store, view: RunView, audit: Sequence[AuditRow]) -> AuditRow | None:
    """Who made it, where a person did. A trigger is written down with its schedule, at the very moment."""
    if view.origin is Origin.RERUN:
        return next((row for row in audit if row.action in _REPEATING), None)
    if view.origin is Origin.MANUAL and view.schedule is not None:
        found = await store.audit_of(view.schedule)
        return next((row for row in found if row.action == "trigger" and row.at == view.nominal), None)
    return None


def _zone_of(schedules: Iterable[ScheduleView]) -> str:
    zones = {rule.tz for one in schedules if (rule := readable_rule(one)) is not None}
    return zones.pop() if len(zones) == 1 else "UTC"


def _bounds(day: date, tz: str) -> tuple[Instant, Instant]:
    if not isinstance(day, date) or not date.min < day < date.max:
        raise InvalidInput(f"{day!r:.80} is not a date; give one such as date(2026, 4, 3)")
    return day_bounds(day, tz)


async def _with_members(store: Store, view: RunView) -> RunView:
    """A tick that ended before all of its members were done, with its members as they are now."""
    interval = (await store.run(view.id)).interval if view.reason == Reason.PARTIAL else None
    if interval is None:
        return view
    reason = None if is_whole(interval.states) else view.reason
    return replace(view, reason=reason, detail=completeness(interval.states))


async def _with_effects(store: Store, views: Sequence[RunView], tracked: set[str]) -> list[RunView]:
    """Those of which the ledger may say something; a lineage's ledger is asked for by its first run."""
    firsts = {view.id: view.number for view in views}
    found = []
    for view in views:
        if view.job in tracked or view.state in PARKED | {State.RECONCILED}:
            first = first_of_lineage(view.id)
            number = firsts.get(first) or run_number(first) or view.number
            view = replace(view, effects=await store.ledger_of(number))
        found.append(view)
    return found


async def _in_force_since(store: Store, schedule: str) -> Instant:
    """When its declaration was last changed; of its ticks before that, the rule of today says nothing."""
    return max((row.at for row in await store.audit_of(schedule) if row.action == "apply"), default=0)


async def _overrides(store: Store, views: Sequence[RunView]) -> dict[str, AuditRow]:
    found = {}
    for view in views:
        if view.attempt > 1 or view.origin is Origin.RERUN:
            for row in await store.audit_of(view.id):
                if row.action in _AGAIN and OVERRIDE in row.note:
                    found[first_of_lineage(view.id)] = row
    return found


async def _spans(store: Store, schedules: Sequence[ScheduleView]) -> list[RunView]:
    spans: list[RunView] = []
    for one in schedules:
        found = await store.runs(states=[State.SKIPPED], schedule=one.schedule.id, limit=_SPANS)
        spans += [view for view in found if view.span_until is not None]
    return spans


async def _most_slots(store: Store) -> int | None:
    return max((one.slots for one in await store.instances() if one.role == "worker"), default=None)
