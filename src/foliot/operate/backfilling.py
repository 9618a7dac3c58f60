"""The verbs for backfills: preview, start, pause, resume, change the pace, cancel, and see how far one has come."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from itertools import islice
from statistics import median
from typing import Any, NamedTuple, TypedDict, Unpack

from foliot.domain.backfill import (
    MOST_AT_ONCE,
    MOST_IN_A_ROW,
    MOST_TICKS,
    Backfill,
    BackfillProgress,
    BackfillState,
    NewBackfill,
    Pace,
    Preview,
    Taken,
    Window,
    time_needed,
    window,
)
from foliot.domain.gates import Rate
from foliot.domain.instant import LAST, Duration, Instant, instant, rfc3339
from foliot.domain.policy import Overlap
from foliot.domain.rule import Rule
from foliot.domain.schedule import Schedule
from foliot.domain.store import Store
from foliot.errors import InvalidInput, UnknownName
from foliot.operate.acting import Acting, acting, stated
from foliot.timing import decode
from foliot.timing.interval import Interval
from foliot.timing.preview import day_bounds
from foliot.timing.window import checked_window, ends_at

Edge = datetime | date | Instant
"""An edge of an interval; a date is its midnight in the rule's zone."""

_PAGE = 5_000
_SAMPLED = 50
"""Runs of the job that tell how long one takes."""


class PaceChosen(TypedDict, total=False):
    """What a pace is made of, as a person says it."""

    rate: str | None
    at_once: int
    window: str | None
    tz: str


class PreviewChosen(PaceChosen, total=False):
    most: int


class BackfillChosen(PreviewChosen, total=False):
    newest_first: bool
    stop_after: int | None
    revision: int | None


class BackfillView(NamedTuple):
    """How far a backfill has come, and when it will have ended if all goes on like this."""

    progress: BackfillProgress
    ends_at: Instant | None

    @property
    def backfill(self) -> Backfill:
        return self.progress.backfill


class BackfillVerbs(Acting):
    """Manufactured history: bounded, previewed, at a pace of its own."""

    async def preview_backfill_async(
        self,
        schedule: str,
        start: Edge,
        end: Edge,
        *,
        rate: str | None = None,
        at_once: int = 1,
        window: str | None = None,
        tz: str = "UTC",
        most: int = MOST_TICKS,
    ) -> Preview:
        """The ticks of `[start, end)`, those that have a run already, and about how long the rest will take.

        InvalidInput when there are none, or more than `most`, or when the interval reaches ticks that are the
        schedule's own: those that it has not decided upon yet.
        """
        store, pace = await self._opened(), checked_pace(rate, at_once, window, tz)
        return await _preview(store, schedule, start, end, pace, most)

    def preview_backfill(self, schedule: str, start: Edge, end: Edge, **more: Unpack[PreviewChosen]) -> Preview:
        return self._call(lambda: self.preview_backfill_async(schedule, start, end, **more), "preview_backfill_async")

    async def backfill_async(
        self,
        schedule: str,
        start: Edge,
        end: Edge,
        *,
        reason: str,
        actor: str,
        rate: str | None = None,
        at_once: int = 1,
        window: str | None = None,
        tz: str = "UTC",
        newest_first: bool = False,
        stop_after: int | None = MOST_IN_A_ROW,
        most: int = MOST_TICKS,
        revision: int | None = None,
    ) -> Backfill:
        """Has one run made for every tick of `[start, end)` that has none, oldest first, in the lane `backfill`.

        `rate`: so many runs are made, as `10/m`. `at_once`: so many of them may be unfinished. `window`, `tz`: only in
        these hours, as `22:00-06:00`. `stop_after`: so many failures in a row pause it; None: none do. `revision`: of
        the schedule that was previewed; Conflict when it is another by now.
        """
        store, who, why = await self._opened(), acting(actor), stated(reason)
        pace = checked_pace(rate, at_once, window, tz)
        _check_stop_after(stop_after)
        seen = await _preview(store, schedule, start, end, pace, most)
        wanted = NewBackfill(
            schedule,
            seen.revision if revision is None else revision,
            seen.start,
            seen.end,
            seen.total,
            newest_first,
            pace,
            stop_after,
        )
        return await store.start_backfill(wanted, actor=who, note=why)

    def backfill(
        self, schedule: str, start: Edge, end: Edge, *, reason: str, actor: str, **more: Unpack[BackfillChosen]
    ) -> Backfill:
        return self._call(
            lambda: self.backfill_async(schedule, start, end, reason=reason, actor=actor, **more), "backfill_async"
        )

    async def pause_backfill_async(self, number: int, *, reason: str, actor: str) -> Backfill:
        """No further runs are made until it is resumed; those that were made go on."""
        return await self._turn(number, BackfillState.PAUSED, reason, actor)

    def pause_backfill(self, number: int, *, reason: str, actor: str) -> Backfill:
        return self._call(lambda: self.pause_backfill_async(number, reason=reason, actor=actor), "pause_backfill_async")

    async def resume_backfill_async(self, number: int, *, reason: str, actor: str) -> Backfill:
        """It goes on where it stopped; what failed before counts no more."""
        return await self._turn(number, BackfillState.RUNNING, reason, actor)

    def resume_backfill(self, number: int, *, reason: str, actor: str) -> Backfill:
        return self._call(
            lambda: self.resume_backfill_async(number, reason=reason, actor=actor), "resume_backfill_async"
        )

    async def cancel_backfill_async(self, number: int, *, reason: str, actor: str) -> Backfill:
        """Ends it. Its runs that were not begun end as cancelled; those that were go on."""
        return await self._turn(number, BackfillState.CANCELLED, reason, actor)

    def cancel_backfill(self, number: int, *, reason: str, actor: str) -> Backfill:
        return self._call(
            lambda: self.cancel_backfill_async(number, reason=reason, actor=actor), "cancel_backfill_async"
        )

    async def pace_backfill_async(
        self,
        number: int,
        *,
        reason: str,
        actor: str,
        rate: str | None = None,
        at_once: int | None = None,
        window: str | None = None,
        tz: str = "UTC",
    ) -> Backfill:
        """Changes what is given; `any` for a rate or a window takes it away."""
        store, who, why = await self._opened(), acting(actor), stated(reason)
        changes: dict[str, Any] = {}
        if rate is not None:
            changes["rate"] = _rate(rate)
        if at_once is not None:
            changes["at_once"] = _at_once(at_once)
        if window is not None:
            changes["window"] = _window(window, tz)
        if not changes:
            raise InvalidInput("no change is given: give rate, at_once or window")
        return await store.change_backfill(number, pace=changes, actor=who, note=why)

    def pace_backfill(self, number: int, *, reason: str, actor: str, **changes: Unpack[PaceChosen]) -> Backfill:
        return self._call(
            lambda: self.pace_backfill_async(number, reason=reason, actor=actor, **changes), "pace_backfill_async"
        )

    async def _turn(self, number: int, state: BackfillState, reason: str, actor: str) -> Backfill:
        store = await self._opened()
        return await store.change_backfill(number, state=state, actor=acting(actor), note=stated(reason))

    async def backfills_async(self, *, schedule: str | None = None, limit: int = 50) -> list[Backfill]:
        return await (await self._opened()).backfills(schedule=schedule, limit=limit)

    async def backfill_progress_async(self, number: int) -> BackfillView:
        """With its runs by state, and when it will have ended."""
        store = await self._opened()
        progress = await store.backfill_progress(number)
        return BackfillView(progress, await _expected_end(store, progress))

    def backfill_progress(self, number: int) -> BackfillView:
        return self._call(lambda: self.backfill_progress_async(number), "backfill_progress_async")


# ------------------------------------------------------------------------------------------------------------- preview


async def _preview(store: Store, name: str, start: Edge, end: Edge, pace: Pace, most: int) -> Preview:
    """1. The rule, and the interval in its zone. 2. Its ticks, which must be the past's. 3. Those that have a run."""
    schedule = (await store.schedule(name)).schedule
    rule = decode(schedule.rule)
    if rule.delay is not None:
        raise InvalidInput(
            f"{name!r} has a fixed delay, so it has no past ticks: the end of each run determines the next tick"
        )
    interval = Interval(_edge(start, rule, "start"), _edge(end, rule, "end"))
    now = await store.now()
    _check_past(interval, schedule, rule, now)
    first: Instant | None = None
    last: Instant | None = None
    total, taken = 0, list[Taken]()
    for page in _pages(interval, rule):
        total += len(page)
        if total > most:
            raise InvalidInput(
                f"{name!r} has more than {most:,} ticks in this interval; give a shorter interval, or confirm it "
                "with --yes"
            )
        first, last = page[0] if first is None else first, page[-1]
        taken += await store.taken_ticks(name, page)
    if total == 0:
        raise InvalidInput(
            f"{name!r} has no tick from {rfc3339(interval.start)} to {rfc3339(interval.end)}; its rule: "
            f"{rule.explain()}"
        )
    abreast = schedule.policy.overlap is Overlap.ALLOW
    lasting = time_needed(total - len(taken), pace, usual=await _usual(store, schedule.job), abreast=abreast)
    ended = None if lasting is None else ends_at(pace.window, now, lasting)
    return Preview(
        name, schedule.revision, interval.start, interval.end, total, first, last, pace, taken, lasting, ended
    )


def _pages(interval: Interval, rule: Rule) -> Iterator[list[Instant]]:
    ticks = (tick for tick, _ in interval.forward(rule))
    while page := list(islice(ticks, _PAGE)):
        yield page


def _edge(given: Edge, rule: Rule, what: str) -> Instant:
    if isinstance(given, datetime):
        return instant(given)
    if isinstance(given, date):
        return day_bounds(given, rule.tz)[0]
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= LAST:
        return given
    raise InvalidInput(f"{what}={given!r:.80}: give an aware datetime, or a date")


def _check_past(interval: Interval, schedule: Schedule, rule: Rule, now: Instant) -> None:
    """What the schedule has not decided upon yet is its own to make."""
    if interval.start >= interval.end:
        raise InvalidInput(
            f"the interval from {rfc3339(interval.start)} to {rfc3339(interval.end)} is empty; its end must be "
            "after its start"
        )
    decided = schedule.made_at if schedule.evaluated_through is None else schedule.evaluated_through
    own = rule.next(decided)
    if interval.end > now:
        raise InvalidInput(
            f"the interval ends at {rfc3339(interval.end)}, which is in the future: now is {rfc3339(now)}; "
            f"give an earlier end"
        )
    if own is not None and own < interval.end:
        raise InvalidInput(
            f"the interval reaches {rfc3339(own)}, a tick that {schedule.id!r} has not fired yet; end the interval "
            "there"
        )


# ---------------------------------------------------------------------------------------------------------------- pace


def checked_pace(rate: str | None, at_once: int, window: str | None, tz: str) -> Pace:
    """What a person chose, or a clear refusal."""
    return Pace(
        None if rate is None else _rate(rate), _at_once(at_once), None if window is None else _window(window, tz)
    )


def _rate(given: str) -> Rate | None:
    return None if given == "any" else Rate.parse(given)


def _window(given: str, tz: str) -> Window | None:
    return None if given == "any" else checked_window(window(given, tz))


def _at_once(given: int) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MOST_AT_ONCE:
        raise InvalidInput(f"at_once={given!r:.40}: give a whole number from 1 to {MOST_AT_ONCE:,}")
    return given


def _check_stop_after(given: int | None) -> None:
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MOST_TICKS):
        raise InvalidInput(
            f"stop_after={given!r:.40}: give a whole number from 1 to {MOST_TICKS:,}; None: never pause for failures"
        )


# ------------------------------------------------------------------------------------------------------------- the end


async def _usual(store: Store, job: str) -> Duration | None:
    """How long a run of the job takes: half of the latest took less."""
    taken = await store.durations(job, _SAMPLED)
    return round(median(taken)) if taken else None


async def _expected_end(store: Store, progress: BackfillProgress) -> Instant | None:
    backfill = progress.backfill
    if backfill.state is not BackfillState.RUNNING:
        return backfill.ended_at
    try:
        overlap = (await store.schedule(backfill.schedule)).schedule.policy.overlap
    except UnknownName:  # it was removed meanwhile
        overlap = Overlap.ALLOW
    left, usual = backfill.left + progress.unfinished, await _usual(store, backfill.job)
    lasting = time_needed(left, backfill.pace, usual=usual, abreast=overlap is Overlap.ALLOW)
    return None if lasting is None else ends_at(backfill.pace.window, progress.at, lasting)


# -------------------------------------------------------------------------------------------------------------- shapes


def preview_shape(preview: Preview) -> dict[str, Any]:
    return {
        "schedule": preview.schedule,
        "from": rfc3339(preview.start),
        "to": rfc3339(preview.end),
        "ticks": preview.total,
        "new": preview.new,
        "first": _moment(preview.first),
        "last": _moment(preview.last),
        **_pace_shape(preview.pace),
        "seconds": None if preview.lasting is None else preview.lasting / 1_000_000,
        "ends_at": _moment(preview.ends_at),
        "taken": [
            {"nominal": rfc3339(one.nominal), "run": one.run, "state": str(one.state), "reason": one.reason}
            for one in preview.taken
        ],
    }


def backfill_shape(backfill: Backfill) -> dict[str, Any]:
    return {
        "id": backfill.number,
        "schedule": backfill.schedule,
        "job": backfill.job,
        "state": str(backfill.state),
        "reason": backfill.reason,
        "from": rfc3339(backfill.start),
        "to": rfc3339(backfill.end),
        "newest_first": backfill.newest_first,
        "ticks": backfill.total,
        "made": backfill.made,
        "existed": backfill.existed,
        "left": backfill.left,
        **_pace_shape(backfill.pace),
        "stop_after": backfill.stop_after,
        "revision": backfill.revision,
        "actor": backfill.actor,
        "note": backfill.note,
        "started_at": rfc3339(backfill.made_at),
        "ended_at": _moment(backfill.ended_at),
    }


def progress_shape(view: BackfillView) -> dict[str, Any]:
    progress = view.progress
    return backfill_shape(view.backfill) | {
        "unfinished": progress.unfinished,
        "settled": progress.settled,
        "states": {str(state): count for state, count in sorted(progress.states.items())},
        "expected_end": _moment(view.ends_at),
    }


def _pace_shape(pace: Pace) -> dict[str, Any]:
    return {
        "rate": None if pace.rate is None else str(pace.rate),
        "at_once": pace.at_once,
        "window": None if pace.window is None else pace.window.hours,
        "tz": None if pace.window is None else pace.window.tz,
    }


def _moment(when: Instant | None) -> str | None:
    return None if when is None else rfc3339(when)


def pace_words(pace: Pace) -> str:
    """`10/m, 1 at a time, only 22:00-06:00 Europe/Paris`."""
    said = [] if pace.rate is None else [str(pace.rate)]
    said.append(f"{pace.at_once:,} at a time")
    said += [] if pace.window is None else [f"only {pace.window}"]
    return ", ".join(said)


def taken_words(preview: Preview) -> str:
    """What becomes of ticks that have a run already."""
    count = len(preview.taken)
    return (
        f"{count:,} of these ticks {'has' if count == 1 else 'have'} a run already; the backfill creates "
        "no other. To repeat a run, use foliot runs rerun"
    )
