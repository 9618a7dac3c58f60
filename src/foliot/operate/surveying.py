"""The verbs that show all of it at once: lists of runs and schedules, how everything stands, what needs attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from foliot.domain.conditions import Condition
from foliot.domain.identity import member_of_run
from foliot.domain.instant import MINUTE, Duration, Instant, rfc3339
from foliot.domain.listing import ListedRun, Order, RunFilter, RunPage
from foliot.domain.overview import ParkedRun, Pulse, Tally
from foliot.domain.pauses import Pause
from foliot.domain.run import RunView
from foliot.domain.schedule import Schedule
from foliot.domain.standing import IN_A_ROW, ScheduleFilter, Standing, standing
from foliot.domain.state import TERMINAL, State
from foliot.domain.store import ALIVE, Instance, JobCard, Store
from foliot.operate.acting import Acting
from foliot.operate.advising import Step, guidance, open_effects, quoted, shown_effect
from foliot.operate.words import counted, headline, length, one_line

_SCHEDULES = 100
"""Schedules that are looked at for failures in a row."""
_STUCK = 100
_NEXT, _ENDED = 8, 8


class StandingPage(NamedTuple):
    schedules: list[Standing]
    cursor: str | None
    """Where the next page begins; None when there is none."""
    complete: bool
    """False: the search was cut short before the page was full."""
    now: Instant
    pauses: list[Pause]
    """All that there are now."""


class Kind(StrEnum):
    """Why somebody has to look."""

    AMBIGUOUS = "ambiguous"
    SETTLED = "settled"
    """A run's effects are settled, and a part of its work is not done."""
    UNVERIFIED = "unverified"
    DEAD = "dead"
    STUCK = "stuck"
    IN_A_ROW = "in_a_row"
    """A schedule failed three times in a row, or more."""
    SET_ASIDE = "set_aside"
    """A schedule cannot be evaluated."""


def kind_words(kind: Kind) -> str:
    """A kind as people read it."""
    return "failing in a row" if kind is Kind.IN_A_ROW else str(kind).replace("_", " ")


_PARKED = {
    Kind.AMBIGUOUS: State.AMBIGUOUS,
    Kind.SETTLED: State.SETTLED,
    Kind.UNVERIFIED: State.UNVERIFIED,
    Kind.DEAD: State.DEAD,
}


class Need(NamedTuple):
    """Something that waits for a person, and the safe thing to do about it."""

    kind: Kind
    subject: str
    """A run, or a schedule."""
    job: str
    schedule: str | None
    tenant: str | None
    since: Instant | None
    what: str
    """What happened, in a sentence."""
    action: str
    """The safest one."""
    command: str | None
    why: str
    """What that rests on."""
    owner: str | None
    runbook: str | None
    counts: tuple[str, ...] = ()
    """How many items and effects are done, in doubt and not done."""
    look: tuple[str, ...] = ()
    """What to look for first in the systems that the job acts upon."""
    steps: tuple[Step, ...] = ()
    """All that is safe, the safest first."""
    in_doubt: tuple[str, ...] = ()
    """The effects that need an answer, as `name:key`."""
    fix_first: bool = False
    """Its cause must be removed before it is tried again."""


class NeedGroup(NamedTuple):
    """Runs or schedules that need attention for one reason, and likely one cause. The newest speaks for all."""

    newest: Need
    size: int
    since: Instant | None
    """Since when the first of them waits."""
    reason: str | None = None

    @property
    def member(self) -> str | None:
        """Whose runs of a fan-out they are."""
        return _member(self.newest)


class NeedPage(NamedTuple):
    needs: list[Need]
    cursor: str | None
    now: Instant


class Signal(NamedTuple):
    """The health of one part, apart from that of the others."""

    verdict: str
    """`ok`, `warning`, or `wrong`."""
    what: str


class Overview(NamedTuple):
    pulse: Pulse
    needs: Mapping[Kind, int]
    """How many of each kind; of stuck ones and schedules, no more than are looked at."""
    next: list[RunView]
    ended: list[RunView]
    """Of the latest runs, those that are over."""
    schedulers: list[Instance]
    workers: list[Instance]
    scheduling: Signal
    working: Signal

    @property
    def queue_delay(self) -> Duration | None:
        """For how long the first run that was handed off has waited for a worker; None: none waits."""
        oldest = self.pulse.oldest
        return None if oldest is None else max(self.pulse.now - oldest, 0)


class SurveyVerbs(Acting):
    """How everything stands."""

    async def run_page_async(
        self, wanted: RunFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> RunPage:
        """Runs that are wanted, each with its conditions."""
        return await (await self._opened()).list_runs(wanted or RunFilter(), cursor=cursor, limit=limit)

    def run_page(self, wanted: RunFilter | None = None, *, cursor: str | None = None, limit: int = 50) -> RunPage:
        return self._call(lambda: self.run_page_async(wanted, cursor=cursor, limit=limit), "run_page_async")

    async def schedule_page_async(
        self, wanted: ScheduleFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> StandingPage:
        """Schedules that are wanted, each as its latest runs say that it stands."""
        store = await self._opened()
        page = await store.schedule_page(wanted or ScheduleFilter(), cursor=cursor, limit=limit)
        now = await store.now()
        standings = [standing(one, now) for one in page.schedules]
        return StandingPage(standings, page.cursor, page.complete, now, await store.pauses())

    def schedule_page(
        self, wanted: ScheduleFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> StandingPage:
        return self._call(lambda: self.schedule_page_async(wanted, cursor=cursor, limit=limit), "schedule_page_async")

    async def standing_async(self, schedule: str) -> Standing:
        """One schedule, with failures by tenant and what backfills have before them."""
        store = await self._opened()
        return standing(await store.schedule_facts(schedule), await store.now())

    def standing(self, schedule: str) -> Standing:
        return self._call(lambda: self.standing_async(schedule), "standing_async")

    async def overview_async(self) -> Overview:
        """How promises were kept, what waits and runs, what comes, who is there, and what needs attention."""
        store = await self._opened()
        pulse = await store.pulse()
        failing = [standing(one, pulse.now) for one in await store.failing(_SCHEDULES)]
        stuck = (await store.list_runs(RunFilter(conditions=(Condition.STUCK,)), limit=_STUCK)).runs
        coming = RunFilter(order=Order.SOONEST, fire_from=pulse.now + 1)
        instances = await store.instances()
        schedulers = [one for one in instances if one.role == "scheduler"]
        workers = [one for one in instances if one.role == "worker"]
        ended = await store.list_runs(RunFilter(states=tuple(TERMINAL)), limit=_ENDED)
        return Overview(
            pulse=pulse,
            needs={kind: pulse.parked.get(state, 0) for kind, state in _PARKED.items()}
            | {
                Kind.STUCK: len(stuck),
                Kind.IN_A_ROW: sum(one.in_a_row >= IN_A_ROW for one in failing),
                Kind.SET_ASIDE: sum(one.schedule.fault is not None for one in failing),
            },
            next=[one.view for one in (await store.list_runs(coming, limit=_NEXT)).runs],
            ended=sorted((one.view for one in ended.runs), key=lambda view: view.finished_at or 0, reverse=True),
            schedulers=schedulers,
            workers=workers,
            scheduling=scheduling(pulse, schedulers, store.shard_count),
            working=working(pulse, workers),
        )

    async def kept_by_minute_async(self, minutes: int = 60) -> list[tuple[int, Tally]]:
        """How promises were kept, by the minute (since 1970) in which runs ended or failed, oldest first."""
        return await (await self._opened()).kept_by_minute(minutes)

    def overview(self) -> Overview:
        return self._call(self.overview_async, "overview_async")

    async def needs_person_async(
        self, kinds: Sequence[Kind] = (), *, tenant: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> NeedPage:
        """What waits for a person, with the safe thing to do: schedules and stuck runs first, then runs, newest first.
        The cursor goes on with the runs."""
        store, asked = await self._opened(), frozenset(kinds) or frozenset(Kind)
        now, cards = await store.now(), await store.jobs()
        found: list[Need] = []
        if cursor is None:
            found += await _schedules_in_need(store, asked, tenant, now)
            if Kind.STUCK in asked:
                wanted = RunFilter(conditions=(Condition.STUCK,), tenant=tenant)
                found += await _runs_in_need(store, (await store.list_runs(wanted, limit=limit)).runs, cards, now)
        states = tuple(state for kind, state in _PARKED.items() if kind in asked)
        if not states:
            return NeedPage(found, None, now)
        page = await store.list_runs(
            RunFilter(states=states, needs_person=True, tenant=tenant), cursor=cursor, limit=limit
        )
        return NeedPage(found + await _runs_in_need(store, page.runs, cards, now), page.cursor, now)

    async def need_groups_async(self, *, limit: int = 50) -> list[NeedGroup]:
        """What `needs_person` lists, as one entry for each schedule and member, or job, and reason; counted whole.
        Schedules and stuck runs come first, then the groups with the newest runs."""
        store = await self._opened()
        now, cards = await store.now(), await store.jobs()
        unusual = await self.needs_person_async((Kind.STUCK, Kind.IN_A_ROW, Kind.SET_ASIDE), limit=_STUCK)
        groups = await store.parked_groups(limit)
        ends = sorted({number for group in groups for number in (group.first, group.newest)})
        known = {one.view.number: one for one in await store.parked(ends)}
        found = _grouped(unusual.needs)
        for group in groups:
            newest, first = known.get(group.newest), known.get(group.first)
            need = None if newest is None else need_of(newest, cards.get(newest.view.job), now)
            if need is not None:
                since = need.since if first is None else first.parked_at
                found.append(NeedGroup(need, group.size, since, group.reason))
        return found

    def needs_person(
        self, kinds: Sequence[Kind] = (), *, tenant: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> NeedPage:
        return self._call(
            lambda: self.needs_person_async(kinds, tenant=tenant, cursor=cursor, limit=limit), "needs_person_async"
        )


# What needs attention


def _grouped(needs: Sequence[Need]) -> list[NeedGroup]:
    """Schedules by themselves; stuck runs by schedule and member, or by job."""
    groups: dict[tuple[str | None, ...], list[Need]] = {}
    for need in needs:
        about = (need.subject,) if need.kind is not Kind.STUCK else (need.schedule or need.job, _member(need))
        groups.setdefault((need.kind, need.tenant, *about), []).append(need)
    return [
        NeedGroup(group[0], len(group), min((one.since for one in group if one.since is not None), default=None))
        for group in groups.values()
    ]


def _member(need: Need) -> str | None:
    return None if need.schedule is None else member_of_run(need.subject) or None


async def _schedules_in_need(store: Store, asked: frozenset[Kind], tenant: str | None, now: Instant) -> list[Need]:
    if not asked & {Kind.IN_A_ROW, Kind.SET_ASIDE}:
        return []
    standings = [standing(one, now) for one in await store.failing(_SCHEDULES, tenant)]
    found = [need for one in standings for need in _needs_of(one)]
    return [need for need in found if need.kind in asked]


def _needs_of(one: Standing) -> list[Need]:
    schedule, found = one.schedule, []
    if schedule.fault is not None:
        what = f"The schedule was set aside: {one_line(headline(schedule.fault), 300)}"
        command = f"foliot schedules show {quoted(schedule.id)}"
        why = "the rule or settings cannot be read; no tick fires until they are fixed"
        found.append(_of_schedule(Kind.SET_ASIDE, schedule, None, what, "repair", command, why))
    if one.in_a_row >= IN_A_ROW:
        pause = f'foliot schedules pause {quoted(schedule.id)} --reason "..."'
        what = f"The last {one.in_a_row:,} runs failed in a row."
        why = "the next run will probably also fail; the failed runs are listed separately"
        since = None if one.failures is None else one.failures.since
        found.append(_of_schedule(Kind.IN_A_ROW, schedule, since, what, "pause", pause, why))
    return found


def _of_schedule(
    kind: Kind, schedule: Schedule, since: Instant | None, what: str, action: str, command: str, why: str
) -> Need:
    owner, runbook = schedule.owner, schedule.runbook
    return Need(
        kind, schedule.id, schedule.job, schedule.id, schedule.tenant, since, what, action, command, why, owner, runbook
    )


async def _runs_in_need(
    store: Store, runs: Sequence[ListedRun], cards: Mapping[str, JobCard], now: Instant
) -> list[Need]:
    known = await store.parked([one.view.number for one in runs])
    return [need for one in known if (need := need_of(one, cards.get(one.view.job), now)) is not None]


def need_of(known: ParkedRun, card: JobCard | None, now: Instant) -> Need | None:
    """None for one that went on meanwhile."""
    view, told = known.view, guidance(known.view, card, now, known)
    if told is None:
        return None
    first = next((step for step in told.steps if step.command), None)
    return Need(
        kind=Kind.STUCK if view.state is State.RUNNING else Kind(str(view.state)),
        subject=view.id,
        job=view.job,
        schedule=view.schedule,
        tenant=view.tenant,
        since=view.started_at if view.state is State.RUNNING else known.parked_at,
        what=told.lead,
        action=str(told.advice.action),
        command=None if first is None else first.command,
        why=told.advice.why,
        owner=None if card is None else card.owner,
        runbook=None if card is None else card.runbook,
        counts=told.counts,
        look=told.look,
        steps=told.steps,
        in_doubt=tuple(map(shown_effect, open_effects(view))),
        fix_first=told.advice.fix_first,
    )


# Health, as two signals: a fleet of workers can be well while nothing fires, and the other way round.


def scheduling(pulse: Pulse, schedulers: Sequence[Instance], shard_count: int) -> Signal:
    alive = [one for one in schedulers if pulse.now - one.beat_at < ALIVE]
    held = sum(one.shard >= 0 for one in pulse.holdings)
    late = 0 if pulse.overdue_since is None else pulse.now - pulse.overdue_since
    if not alive:
        heard = max((one.beat_at for one in schedulers), default=None)
        detail = "no live scheduler" if heard is None else f"no scheduler heartbeat since {rfc3339(heard)}"
        return Signal("wrong", f"{detail}: no run becomes due")
    if pulse.early:
        return Signal("wrong", f"{counted(pulse.early, 'early start')}")
    if all(one.fenced for one in alive):
        return Signal("wrong", "the clocks of all schedulers are wrong: no run becomes due")
    if late > MINUTE:
        return Signal("warning", f"{pulse.overdue:,} due and not handed off, the oldest for {length(late)}")
    if held < shard_count:
        return Signal("warning", f"{held} of {shard_count} shards are held")
    tick = "" if pulse.last_tick is None else f", last tick {length(pulse.now - pulse.last_tick)} ago"
    return Signal("ok", f"{counted(len(alive), 'scheduler')}, {held} of {counted(shard_count, 'shard')} held{tick}")


def working(pulse: Pulse, workers: Sequence[Instance]) -> Signal:
    alive = [one for one in workers if pulse.now - one.beat_at < ALIVE]
    delay = 0 if pulse.oldest is None else pulse.now - pulse.oldest
    if not alive:
        heard = max((one.beat_at for one in workers), default=None)
        detail = "no live worker" if heard is None else f"no worker heartbeat since {rfc3339(heard)}"
        return Signal("wrong", f"{detail}: no run starts")
    if all(one.fenced for one in alive):
        return Signal("wrong", "the clocks of all workers are wrong: they claim no more runs")
    busy, slots = pulse.running, sum(one.slots for one in alive)
    detail = f"{counted(len(alive), 'worker')}, {busy:,} of {counted(slots, 'slot')} busy"
    if delay > MINUTE:
        return Signal("warning", f"{detail}; {pulse.waiting:,} waiting, the oldest for {length(delay)}")
    return Signal("ok", detail)
