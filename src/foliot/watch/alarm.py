"""The alarm: looks at what must not be silent, and opens and resolves alerts. One instance does so for all."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from foliot.clock import Clock
from foliot.domain.alerts import KEPT, OF_PARKED, Finding, Kind, Rules, Seen, Verdict, weigh
from foliot.domain.conditions import job_policy
from foliot.domain.instant import HOUR, SECOND, Duration, Instant
from foliot.domain.policy import Overlap
from foliot.domain.state import State
from foliot.domain.store import AlertStore, JobCard
from foliot.domain.survey import Asked, Conclusion, Survey
from foliot.watch import fleet, runs
from foliot.watch.duty import repeat
from foliot.watch.memory import Remembered, remembered
from foliot.watch.schedules import Comparison, stale_jobs

LOOK_EVERY: Duration = 5 * SECOND
DUE_FOR: Duration = 2 * SECOND
AT_WORK_FOR: Duration = SECOND
"""What fell due, or began, later than so long ago is not asked for: of a crowd, thousands of runs that will have ended
in a moment would be read by a process that has others to fire."""
HISTORIES_AT_ONCE = 20
"""Histories of durations that one look reads, of schedules that it has not met before."""
_HISTORY = 30
_MOST_HISTORIES = 5_000
_FORGET_EVERY: Duration = HOUR
_AT_ONCE = 50
"""Schedules that are judged in a millisecond or two."""

Healthy = Callable[[], None]
T = TypeVar("T")


async def _beside(size: int, work: Callable[[], T]) -> T:
    """What takes long is done in a thread: whoever fires shares this event loop, and is never early nor late for us."""
    return await asyncio.to_thread(work) if size > _AT_ONCE else work()


def _newest_scheduler(survey: Survey) -> Instant | None:
    """When the scheduler started that started last, of those that live."""
    living = (one for one in survey.fleet.instances if one.role == "scheduler" and one.ended_at is None)
    return max((one.started_at for one in living), default=None)


class WatchedStore(AlertStore, Protocol):
    """What is needed of a store."""

    async def jobs(self) -> dict[str, JobCard]: ...

    async def last_positions(self) -> tuple[int, int]: ...


class Alarm:
    """Looks every five seconds. A look costs one read and one write, whatever there is; both are bounded.

    What it knows from before is kept in the store, and compared and set there: of two that look at the same time, one
    concludes, and the other begins anew with what that one knows.
    """

    def __init__(
        self,
        store: WatchedStore,
        clock: Clock,
        rules: Rules | None = None,
        healthy: Healthy | None = None,
        page: int = 500,
    ) -> None:
        """`healthy` is called after each look that was concluded. `page`: so many schedules are looked at in one."""
        self._store = store
        self._clock = clock
        self._rules = rules or Rules()
        self._healthy = healthy
        self._page = page
        self._memory: Remembered | None = None
        self._comparison = Comparison()
        self._overlaps: dict[str, Overlap] = {}
        self._wanted: dict[str, tuple[str, bool]] = {}
        """By schedule, its job, and whether it is paused."""
        self._answers: dict[str, tuple[str | None, str | None]] = {}
        """By schedule that names others than its job does: who answers for it, and the runbook."""
        self._met: set[str] | None = None
        """Schedules of this time around; None when that did not begin with the first one."""
        self._been_around = False
        self._durations: OrderedDict[str, list[Duration]] = OrderedDict()
        self._forgot_at: Instant = 0

    async def run_once(self) -> Instant:
        """One look; returns when the next one is wanted.

        1. Remember, if this is the first one, or somebody else has looked.
        2. Look at everything, in one moment. Ask for the rows of ticks that should have some.
        3. Decide. 4. Conclude, if nobody else has meanwhile.
        """
        memory = self._memory or await self._remember()
        self._memory = None  # a look that fails has half of it in here: the next one recalls what the store has
        now = self._clock.now()
        asked = self.asked(memory)
        survey = await self._store.survey(asked)
        cards = await self._store.jobs()
        seen = [await self._schedules(survey)]
        seen += await _beside(max(len(survey.ended), len(survey.due)), partial(self._runs, survey, cards, memory))
        seen += self._fleet(survey, cards, memory)
        seen.append(await self._unusual(survey, cards))
        self._go_on(survey, asked, memory)
        if len(survey.ended) == asked.endings:
            memory.ended, _ = await self._store.last_positions()  # more ends than can be read: a sample will do
        seen.append(self._around(survey))
        seen = [one._replace(findings=[self._addressed(finding) for finding in one.findings]) for one in seen]
        verdict = weigh(survey.alerts, seen, memory.brewing, self._rules, survey.now)
        memory.brewing = verdict.brewing
        # Whoever comes second has concluded nothing, and recalls what the first one knows.
        if await self._store.conclude(survey.version, self._conclusion(verdict, memory)):
            self._memory = memory
            if self._healthy is not None:
                self._healthy()
        return now + LOOK_EVERY

    def asked(self, memory: Remembered) -> Asked:
        now = self._clock.now()
        return Asked(
            memory.schedules_after,
            memory.parked_after,
            memory.ended or 0,
            memory.events or 0,
            due_before=now - DUE_FOR,
            claimed_before=now - AT_WORK_FOR,
            schedules=self._page,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set. Whoever waits for alerts sees how old the last look is."""
        await repeat(
            self.run_once,
            LOOK_EVERY,
            self._clock,
            stop,
            "watch round failed, retrying",
        )

    async def _remember(self) -> Remembered:
        memory = remembered((await self._store.recall()).data)
        if memory.ended is None or memory.events is None:
            memory.ended, memory.events = await self._store.last_positions()
        return memory

    def _conclusion(self, verdict: Verdict, memory: Remembered) -> Conclusion:
        forget = None
        if self._clock.now() - self._forgot_at > _FORGET_EVERY:
            self._forgot_at = self._clock.now()
            forget = self._forgot_at - KEPT
        return Conclusion(memory.encoded(), verdict.opens, verdict.changes, verdict.resolves, forget)

    # What is looked at

    async def _schedules(self, survey: Survey) -> Seen:
        posted = survey.schedules
        ticks = await _beside(len(posted), partial(self._comparison.ticks, posted, survey.now))
        without = await self._store.ticks_without_rows(ticks) if ticks else []
        self._comparison.note(posted, without, survey.now)
        for one in posted:
            self._overlaps[one.schedule.id] = one.schedule.policy.overlap
            self._wanted[one.schedule.id] = one.schedule.job, one.schedule.paused(survey.now)
            if one.schedule.owner or one.schedule.runbook:
                self._answers[one.schedule.id] = one.schedule.owner, one.schedule.runbook
        return await _beside(len(posted), partial(self._comparison.judged, posted, survey.now))

    def _runs(self, survey: Survey, cards: Mapping[str, JobCard], memory: Remembered) -> list[Seen]:
        is_page_all = memory.parked_after == 0 and len(survey.parked) < Asked().runs
        new = runs.newly_parked(survey.parked, memory.parked, survey.alerts, cards, is_all=is_page_all)
        parked = runs.parked(survey.subjects, cards, is_all=len(survey.subjects) < Asked().subjects)
        is_failing = {alert.subject for alert in survey.alerts if alert.kind is Kind.FAILING}  # it goes on counting
        opens = [kind for kind in OF_PARKED if str(kind) not in self._rules.silent and not self._rules.grace(kind)]
        counted = {one.key for one in parked.findings if one.kind in opens and one.subject not in is_failing}
        return [
            parked,
            runs.late(
                survey.due,
                cards,
                survey.now,
                is_all=len(survey.due) < Asked().runs,
                is_paced=survey.pace is not None,
                known=survey.alerts,
                began=_newest_scheduler(survey),
            ),
            runs.stuck(survey.at_work, cards, survey.now),
            runs.overlapping(survey.at_work, self._overlaps, cards),
            runs.checks_overdue(survey.checking, memory.checking, cards, survey.now),
            runs.failing(memory.failures, survey.ended, new, survey.retrying, cards, counted),
            runs.tight(survey.ended, memory.tight, cards),
        ]

    def _fleet(self, survey: Survey, cards: Mapping[str, JobCard], memory: Remembered) -> list[Seen]:
        now, facts = survey.now, survey.fleet
        good = [one for one in survey.ended if one.state in (State.SUCCEEDED, State.VERIFIED)]
        for one in good:
            if one.job in memory.useful:
                memory.useful[one.job] = max(memory.useful[one.job], one.finished_at)
        wanted = {job for job, paused in self._wanted.values() if not paused}
        return [
            fleet.schedulers(facts, survey.due, memory, now, survey.pace or 0),
            fleet.workers(facts, wanted, frozenset(), now),
            fleet.queues(facts, now),
            fleet.clocks(facts.instances, now),
            fleet.early(facts),
            fleet.losses(survey.events),
            fleet.flow(facts, len(good), len(survey.retrying), memory, now),
            self._stale_jobs(cards, memory, now),
        ]

    def _stale_jobs(self, cards: Mapping[str, JobCard], memory: Remembered, now: Instant) -> Seen:
        """Once all schedules were met: a job that has one is judged by that."""
        expecting = {
            name: policy for name, card in cards.items() if (policy := job_policy(card)).expect_every is not None
        }
        for job in expecting:
            memory.useful.setdefault(job, now)
        memory.useful = {job: at for job, at in memory.useful.items() if job in expecting}
        if not expecting or not self._been_around:
            return Seen()
        return stale_jobs(expecting, memory.useful, frozenset(job for job, _ in self._wanted.values()), now)

    async def _unusual(self, survey: Survey, cards: Mapping[str, JobCard]) -> Seen:
        """Of schedules that it has not met yet it reads some histories at each look."""
        size = len(survey.ended)
        subjects = await _beside(size, partial(runs.subjects_of, survey.ended, survey.at_work))
        took = await _beside(size, partial(runs.lengths, survey.ended))
        read = 0
        for name, subject in subjects.items():
            if name in self._durations:
                self._durations.move_to_end(name)
            elif subject.schedule is None:
                self._durations[name] = []
            elif read < HISTORIES_AT_ONCE:
                read += 1
                fresh = len(took.get(name, ()))  # what has just ended is in its history already, and is added below
                self._durations[name] = (await self._store.durations_of(subject.schedule, _HISTORY + fresh))[fresh:]
        while len(self._durations) > _MOST_HISTORIES:
            self._durations.popitem(last=False)
        seen = await _beside(size, partial(self._judged_unusual, survey, cards, subjects))
        for name, lengths in took.items():
            if name in self._durations:
                self._durations[name] = [*reversed(lengths), *self._durations[name]][:_HISTORY]
        return seen

    def _judged_unusual(self, survey: Survey, cards: Mapping[str, JobCard], subjects: Iterable[str]) -> Seen:
        history = {name: runs.usual(self._durations.get(name, ())) for name in subjects}
        return runs.unusual(survey.ended, survey.at_work, history, cards, survey.now)

    def _addressed(self, finding: Finding) -> Finding:
        """What a schedule says of who answers for it goes before what its job says."""
        owner, runbook = self._answers.get(finding.schedule or "", (None, None))
        if owner is None and runbook is None:
            return finding
        return replace(finding, owner=owner or finding.owner, runbook=runbook or finding.runbook)

    # How it goes on

    def _go_on(self, survey: Survey, asked: Asked, memory: Remembered) -> None:
        memory.ended = survey.ended[-1].position if survey.ended else memory.ended
        memory.events = survey.events[-1].position if survey.events else memory.events
        if not asked.schedules_after:
            self._met = set()
        if self._met is not None:
            self._met.update(one.schedule.id for one in survey.schedules)
        memory.schedules_after = survey.schedules[-1].schedule.id if len(survey.schedules) == asked.schedules else ""
        memory.parked_after = survey.parked[-1].number if len(survey.parked) == asked.runs else 0

    def _around(self, survey: Survey) -> Seen:
        """After each time around, what is told of schedules that are gone is cured."""
        if self._met is None or len(survey.schedules) == self._page:
            return Seen()
        met, self._been_around = frozenset(self._met), True
        self._comparison.forget(met)
        self._overlaps = {name: one for name, one in self._overlaps.items() if name in met}
        self._wanted = {name: one for name, one in self._wanted.items() if name in met}
        self._answers = {name: one for name, one in self._answers.items() if name in met}
        gone = fleet.of_no_schedule((alert.subject for alert in survey.alerts), met)
        return Seen(cured=[alert.key for alert in survey.alerts if alert.subject in gone])
