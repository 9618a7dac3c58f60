"""What a person can tell the business: one statement per run of a day, from records alone. Pure: `now` is an argument.

A run and its reruns are one lineage, and one statement: what matters is whether the work was done, not in how many
tries. Nothing is said that is not on record; where something is not known, that is said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple

from foliot.domain.identity import first_of_lineage, tick_name
from foliot.domain.instant import SECOND, Instant
from foliot.domain.ledger import EffectState, Traits
from foliot.domain.run import Origin, Phase, RunView
from foliot.domain.schedule import ScheduleView
from foliot.domain.state import Reason, State
from foliot.domain.store import AuditRow
from foliot.operate.advising import batch_name, batch_words, open_effects, shown_effect, told_detail
from foliot.operate.limits import held_words
from foliot.operate.shapes import Shape, moment, readable_rule
from foliot.operate.story import how_far
from foliot.operate.words import counted, listed, one_line, to_the_second
from foliot.timing import upcoming
from foliot.timing.zones import zone

MOST_TICKS = 10_000
"""Of a day: beyond that nothing is said to be missing."""
OVERRIDE = "override"
"""How the audit log marks what was done against advice."""


class Verdict(StrEnum):
    """What became of the work of one run."""

    COMPLETE = "complete"
    RECONCILED = "reconciled"
    """A person looked, decided, and left evidence; nothing is left to do, or the rest was declared not needed."""
    MERGED = "merged"
    """Its time was covered by another run."""
    PARTIAL = "partial"
    UNVERIFIED = "unverified"
    FAILED = "failed"
    AMBIGUOUS = "ambiguous"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    MISSING = "missing"
    """The rule says that it should exist, and no row does."""
    RUNNING = "running"
    WAITING = "waiting"


GOOD = frozenset({Verdict.COMPLETE, Verdict.RECONCILED, Verdict.MERGED})


class Statement(NamedTuple):
    run: str
    nominal: Instant
    verdict: Verdict
    text: str
    caveat: str = ""
    """The end of `text`, where it is the same for many runs: a list for people says it once."""

    @property
    def is_good(self) -> bool:
        return self.verdict in GOOD


@dataclass(frozen=True, slots=True)
class Day:
    """Everything on record about one day of a job or a schedule."""

    subject: str
    date: date
    tz: str
    start: Instant
    end: Instant
    now: Instant
    views: Sequence[RunView]
    """Runs whose nominal time lies in it, with batches; of tracked jobs with effects."""
    traits: Mapping[str, Traits]
    """By job."""
    schedules: Sequence[ScheduleView] = ()
    in_force_since: Mapping[str, Instant] | None = None
    """By schedule, since when its rule is what it is now: of ticks before that nothing is said."""
    spans: Sequence[RunView] = ()
    """Skipped rows that may stand for ticks of this day too."""
    overrides: Mapping[str, AuditRow] | None = None
    """By lineage, who last acted against advice."""


class Report(NamedTuple):
    subject: str
    date: date
    tz: str
    statements: list[Statement]

    @property
    def is_good(self) -> bool:
        """Whether all that the day asked for is done."""
        return all(one.is_good for one in self.statements)


def report_shape(report: Report) -> Shape:
    return {
        "subject": report.subject,
        "date": report.date.isoformat(),
        "tz": report.tz,
        "ok": report.is_good,
        "statements": [
            {
                "run": one.run,
                "nominal": moment(one.nominal),
                "verdict": str(one.verdict),
                "ok": one.is_good,
                "text": one.text,
            }
            for one in report.statements
        ],
    }


def report(day: Day) -> Report:
    lineages: dict[str, list[RunView]] = {}
    for view in _without_sums(day.views):
        lineages.setdefault(first_of_lineage(view.id), []).append(view)
    absent = [(schedule, tick) for schedule in day.schedules for tick in _absent(day, schedule)]
    named = Counter([runs[0].schedule for runs in lineages.values() if _is_tick(runs[0])])
    named.update(schedule.schedule.id for schedule, _ in absent)
    once_a_day = {name for name, count in named.items() if count == 1}
    statements = [_Statement(day, runs, once_a_day).made() for runs in lineages.values()]
    statements += [_missing(day, one, tick, once_a_day) for one, tick in absent]
    statements.sort(key=lambda one: (one.nominal, one.run))
    return Report(day.subject, day.date, day.tz, statements)


def _without_sums(views: Sequence[RunView]) -> Iterable[RunView]:
    """A tick over many members says how many were done; what was done is said by the runs of the members."""
    spread = {(view.schedule, view.nominal) for view in views if view.member is not None}
    return (view for view in views if view.member is not None or (view.schedule, view.nominal) not in spread)


# What should exist and does not


def _absent(day: Day, view: ScheduleView) -> Iterable[Instant]:
    """Ticks of the day that the rule names, and of which there is no row: due ones, under the rule that is in force."""
    rule, schedule = readable_rule(view), view.schedule
    if rule is None or rule.delay is not None or len(day.views) >= MOST_TICKS:
        return []
    since = max(schedule.made_at, (day.in_force_since or {}).get(schedule.id, 0), day.start - 1)
    # The tick of this very moment may be on its way.
    until = min(day.end, day.now - schedule.policy.missed_after)
    known = {run.nominal for run in day.views if run.schedule == schedule.id}
    ticks = list(takewhile(lambda tick: tick < until, upcoming(rule, since, MOST_TICKS)))
    if len(ticks) >= MOST_TICKS:
        return []
    return [tick for tick in ticks if tick not in known and not _is_spanned(day, schedule.id, tick)]


def _is_spanned(day: Day, schedule: str, tick: Instant) -> bool:
    """Whether a row that stands for several ticks stands for this one."""
    return any(
        run.schedule == schedule and run.span_until is not None and run.nominal <= tick <= run.span_until
        for run in (*day.views, *day.spans)
    )


def _missing(day: Day, view: ScheduleView, tick: Instant, once_a_day: set[str | None]) -> Statement:
    name = _tick_words(day, view.schedule.id, tick, once_a_day)
    fault = f" The schedule was set aside: {one_line(view.schedule.fault)}." if view.schedule.fault else ""
    text = f"{name} is missing: its tick has no recorded run.{fault}"
    return Statement(tick_name(view.schedule.id, tick), tick, Verdict.MISSING, text)


def _tick_words(day: Day, schedule: str | None, tick: Instant, once_a_day: set[str | None]) -> str:
    clock = "" if schedule in once_a_day else f" {_local(day.tz, tick)}"
    return f"The {day.date.isoformat()}{clock} run of {schedule}"


def _local(tz: str, when: Instant) -> str:
    wall, again = zone(tz).local(when // SECOND)
    text = f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"
    return f"{text} (the second one)" if again else text


def _is_tick(view: RunView) -> bool:
    return view.schedule is not None and view.origin in (Origin.SCHEDULED, Origin.BACKFILL)


# What exists


class _Statement:
    """The statement of one lineage: its last run says how it stands."""

    def __init__(self, day: Day, runs: Sequence[RunView], once_a_day: set[str | None]) -> None:
        self._day = day
        self._runs = sorted(runs, key=lambda view: view.number)
        self._first, self._last = self._runs[0], self._runs[-1]
        self._traits = day.traits.get(self._last.job, Traits())
        self._name = self._called(once_a_day)

    def made(self) -> Statement:
        verdict, text = self._told()
        text = " ".join(f"{self._name} {text}".split())
        caveat = next((one for one in CAVEATS if text.endswith(one)), "")
        return Statement(self._last.id, self._first.nominal, verdict, text, caveat)

    def _called(self, once_a_day: set[str | None]) -> str:
        view = self._first
        tenant = f" for tenant {view.tenant}" if view.tenant else ""
        if _is_tick(view) or (view.origin is Origin.RERUN and view.schedule is not None):
            return _tick_words(self._day, view.schedule, view.nominal, once_a_day) + tenant
        if view.origin is Origin.MANUAL:
            return f"The run of {view.schedule} that was triggered at {_local(self._day.tz, view.nominal)}{tenant}"
        return f"Run {first_of_lineage(view.id)} of {view.job}{tenant}"

    def _told(self) -> tuple[Verdict, str]:
        view = self._last
        match view.state:
            case State.SUCCEEDED | State.VERIFIED:
                return self._completed()
            case State.RECONCILED:
                return self._reconciled()
            case State.SKIPPED:
                merged = view.reason == Reason.COALESCED
                word = "was merged into a later one" if merged else "did not run"
                return (Verdict.MERGED if merged else Verdict.SKIPPED), f"{word}{self._because()}{self._span()}."
            case State.CANCELLED:
                return Verdict.CANCELLED, f"was cancelled{self._because()}.{self._before()}"
            case State.DEAD:
                return Verdict.FAILED, f"failed{self._tries()}{self._because()}.{self._ledger()}{self._batches()}"
            case State.UNVERIFIED:
                return (
                    Verdict.UNVERIFIED,
                    f"finished{self._by()}, and its check rejected the result{self._because()}.{self._ledger()}",
                )
            case State.AMBIGUOUS:
                because = self._because()
                if view.reason == Reason.CHECK:
                    because = f", and its check could not confirm it{because}"
                text = f"has an unknown outcome{because}. A person must find out.{self._ledger()}"
                return Verdict.AMBIGUOUS, text + self._batches()
            case State.SETTLED:
                text = (
                    f"is not complete: a person reconciled its effects{self._evidence()}, and the remaining "
                    "work is not done."
                )
                return Verdict.PARTIAL, f"{text}{self._ledger()}{self._batches()}"
            case State.RUNNING | State.VERIFYING:
                return Verdict.RUNNING, self._running() + self._before()
        return Verdict.WAITING, self._waiting() + self._before()

    def _completed(self) -> tuple[Verdict, str]:
        view = self._last
        short = [batch for batch in view.batches if batch.is_short]
        at = self._at(view.finished_at)
        if short and view.state is State.SUCCEEDED:
            told = "; ".join(batch_words(batch) for batch in short)
            return Verdict.PARTIAL, f"finished at {at}{self._by()}, but not completely: {told}."
        if view.reason == Reason.PARTIAL and view.state is State.SUCCEEDED:
            return Verdict.PARTIAL, f"finished at {at}, but not for all of its members: {view.detail}."
        scope, doubt = self._scope(), self._doubt()
        once = "" if doubt else ", exactly once"
        if view.state is State.VERIFIED:
            return Verdict.COMPLETE, f"completed{scope}{self._by()}{once}, verified {at}.{doubt}{self._words()}"
        word = "finished" if doubt and not view.batches else "completed"
        return Verdict.COMPLETE, f"{word} at {at}{scope}{self._by()}{once}.{doubt}{self._words()}"

    def _words(self) -> str:
        """Which effects are on record because somebody said so, and not because their attempt saw them done."""
        told = [
            f"{shown_effect(effect)} ({one_line(effect.note, 200)})"
            for effect in self._last.effects
            if effect.state is EffectState.DONE and effect.note
        ]
        return f" Confirmed by: {listed(told)}." if told else ""

    def _doubt(self) -> str:
        """Why it cannot be said that it happened exactly once; nothing when it can."""
        override = (self._day.overrides or {}).get(first_of_lineage(self._last.id))
        if override is not None:
            by = f"{override.actor} overrode the advice ({one_line(override.note, 200)})"
            return f" Only a person confirms that it happened exactly once: {by}."
        if found := open_effects(self._last):
            return f" It is not recorded whether {listed([shown_effect(effect) for effect in found])} happened."
        if self._traits.tracked or self._last.reason == Reason.COMMITTED:
            return ""
        if self._last.state is State.VERIFIED:
            return f" {_ONLY_CHECKED}"
        return f" {_ONLY_SEEN}"

    def _reconciled(self) -> tuple[Verdict, str]:
        view = self._last
        text = f"was reconciled by a person at {self._at(view.finished_at)}{self._evidence()}."
        undone = [shown_effect(effect) for effect in view.effects if effect.state is EffectState.NOT_DONE]
        in_doubt = [shown_effect(effect) for effect in open_effects(view)]
        if undone:
            text += f" Recorded as not done: {listed(undone)}."
        if in_doubt:
            text += f" It is not recorded whether {listed(in_doubt)} happened."
        text += self._batches()
        is_short = bool(undone) or any(batch.is_short for batch in view.batches)
        if in_doubt or (is_short and view.reason != Reason.NOT_NEEDED):
            return Verdict.PARTIAL, text
        return Verdict.RECONCILED, text

    def _evidence(self) -> str:
        return f': "{one_line(self._last.detail, 300)}"' if self._last.detail else ""

    def _running(self) -> str:
        view = self._last
        if view.state is State.VERIFYING:
            doubt = view.phase == Phase.DOUBT
            return f"{'has an unknown outcome' if doubt else 'finished'}, and is being checked."
        told = [f"{batch} {batch_name(batch)}" for batch in view.batches] or list(
            filter(None, [how_far(view.progress)])
        )
        since = view.started_at or view.claimed_at
        began = f" since {self._at(since)}" if since is not None else ""
        return f"is running{began}" + (f", at {listed(told)}" if told else "") + "."

    def _waiting(self) -> str:
        view = self._last
        if view.state is State.RETRYING:
            return f"has not succeeded yet{self._because()}; the scheduler retries it at {self._at(view.fire_at)}."
        if view.state is State.HELD:
            return f"is due, and {held_words(view)}."
        if view.fire_at <= self._day.now:
            return "is due, and waits for a worker."
        return f"is due at {self._at(view.fire_at)}."

    def _scope(self) -> str:
        """` for all 412 accounts`."""
        view = self._last
        told = one_line(view.detail, 200) if view.state is State.VERIFIED and view.detail else ""
        counts = re.fullmatch(r"([\d,]+) of ([\d,]+) (\S.*)", told)
        if counts is not None and counts[1] == counts[2]:
            return f" for all {counts[1]} {counts[3]}"
        if told:
            return f" for {told}"
        whole = [f"all {batch.done:,} {batch_name(batch)}" for batch in view.batches if not batch.is_short]
        return f" for {listed(whole)}" if whole else ""

    def _by(self) -> str:
        """How many tries it took, where it took more than one."""
        view = self._last
        is_checked = view.state in (State.VERIFIED, State.UNVERIFIED)  # checks are attempts too, and may be several
        tries = f" on attempt {view.attempt}" if view.attempt > 1 and not is_checked else ""
        if view.origin is not Origin.RERUN:
            return tries
        what = "by a repair" if view.repair else "by a rerun"
        return f" {what}, {view.id},{tries}".rstrip(",")

    def _tries(self) -> str:
        view = self._last
        rerun = f" in its rerun {view.id}" if view.origin is Origin.RERUN else ""
        return rerun + (f" after {counted(view.attempt, 'attempt')}" if view.attempt else "")

    def _because(self) -> str:
        view = self._last
        # Which effect it is, is told by the ledger.
        detail = "" if view.reason == Reason.EFFECT else told_detail(view.detail)
        words = _REASONS.get(view.reason or "", (view.reason or "").replace("_", " "))
        return "".join(f": {text}" for text in (words, detail) if text)

    def _before(self) -> str:
        """What an earlier run of the lineage had come to."""
        earlier = [view for view in self._runs[:-1] if view.state in (State.SUCCEEDED, State.VERIFIED)]
        return f" An earlier run of it, {earlier[-1].id}, had completed." if earlier else ""

    def _span(self) -> str:
        view = self._last
        return f" ({view.span_count:,} ticks)" if view.span_count > 1 else ""

    def _ledger(self) -> str:
        """What is on record of its effects, when it did not end well."""
        effects = self._last.effects
        done = [shown_effect(effect) for effect in effects if effect.state is EffectState.DONE]
        unsettled = [shown_effect(effect) for effect in open_effects(self._last)]
        undone = [shown_effect(effect) for effect in effects if effect.state is EffectState.NOT_DONE]
        text = f" Recorded as done: {_counted_list(done)}." if done else ""
        text += f" Started, without a recorded outcome: {_counted_list(unsettled)}." if unsettled else ""
        return text + (f" Recorded as not done: {_counted_list(undone)}." if undone else "")

    def _batches(self) -> str:
        return "".join(f" {batch_words(batch)}." for batch in self._last.batches)

    def _at(self, when: Instant | None) -> str:
        """The time alone where it is the day's own."""
        if when is None:
            return "an unknown time"
        text = to_the_second(when)
        return text.removeprefix(f"{self._day.date.isoformat()}T")


_ONLY_CHECKED = "It declares no effects: its check confirms the result, not that it happened exactly once."
_ONLY_SEEN = "It finished without a check or declared effects, so it is not recorded whether it happened exactly once."
CAVEATS = {
    _ONLY_CHECKED: "declare no effects: their checks confirm the results, not that they happened exactly once",
    _ONLY_SEEN: "have no check or declared effects, so it is not recorded whether they happened exactly once",
}
"""By the sentence that ends the text of one run, the words for several."""
_REASONS: dict[str, str] = {
    Reason.OVERLAP: "an earlier run was busy",
    Reason.MISFIRE: "it was missed and not caught up",
    Reason.TOO_LATE: "it was too late to be useful",
    Reason.PAUSED: "the schedule was paused",
    Reason.COALESCED: "",
    Reason.REPLACED: "a newer run replaced it",
    Reason.OPERATOR: "by an operator",
    Reason.REVISED: "the schedule was changed",
    Reason.REQUESTED: "on request",
    Reason.ATTEMPTS: "",
    Reason.PERMANENT: "permanent error",
    Reason.POISON: "its isolated process crashed each time",
    Reason.LOST: "its worker was lost",
    Reason.EFFECT: "an effect started and has no recorded outcome",
    Reason.CHECK: "",
    Reason.CHECK_FAILED: "the check raised an error",
}
_NAMED = 5


def _counted_list(names: Sequence[str]) -> str:
    """`payout:7 and payout:8`; how many, where there are more than a few."""
    return listed(names) if len(names) <= _NAMED else f"{len(names):,} effects ({names[0]} to {names[-1]})"
