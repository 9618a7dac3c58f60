"""What runs show: late, stuck, overlapping, parked, failing, unlike those before. Decisions; `now` is given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from foliot.domain.alerts import FLEET, OF_PARKED, Alert, Finding, Kind, Seen
from foliot.domain.conditions import crowded, is_stuck, job_policy, lateness, policy_of, series_of, silent_for
from foliot.domain.details import brief
from foliot.domain.identity import run_id, schedule_of_series
from foliot.domain.instant import MINUTE, SECOND, Duration, Instant, spell
from foliot.domain.policy import Overlap, Policy
from foliot.domain.run import LATE, Lane, RunView
from foliot.domain.state import PENDING, Reason, State
from foliot.domain.store import JobCard
from foliot.domain.survey import Ended, ParkedSubject, Tried

IN_A_ROW = 3
RATIO = 0.8
LEAST_KNOWN = 8
"""So many runs must be known before one can be unlike them."""
SPREADS = 6.0
_ROBUST = 1.4826
"""A normal distribution's standard deviation, in median absolute deviations."""
LEAST_APART: Duration = 5 * SECOND
"""Nobody is told of less."""
PAST_TIMEOUT: Duration = MINUTE

MOST_LATE = 20
"""Schedules and jobs with runs late for the same cause that get an alert each. More than these have one together."""
_NAMED = 3
MOST_MET = 50
"""Parked runs of one schedule or job that a look remembers."""
JUST_BEGUN: Duration = 5 * MINUTE

_NOT_LATE = frozenset({Reason.PAUSED, Reason.UPSTREAM})

Cards = Mapping[str, JobCard]


class Subject(NamedTuple):
    """A schedule, or a job without one, and who answers for it."""

    name: str
    job: str
    schedule: str | None

    @classmethod
    def of(cls, job: str, schedule: str | None) -> Subject:
        return cls(f"job:{job}" if schedule is None else f"schedule:{schedule}", job, schedule)


def late(
    due: Sequence[RunView],
    cards: Cards,
    now: Instant,
    *,
    is_all: bool,
    is_paced: bool = False,
    known: Iterable[Alert] = (),
    began: Instant | None = None,
) -> Seen:
    """Runs that are due and have not begun, by schedule or job; many of one cause together. What is paused, queues
    behind that, waits for another's result, or makes up for the past at a rate (`is_paced`), is not late: that is
    intended. `known`: open alerts; `began`: when the newest scheduler started."""
    waiting: defaultdict[Subject, list[RunView]] = defaultdict(list)
    paused = {series_of(view) for view in due if view.state is State.HELD and view.reason == Reason.PAUSED}
    for view in due:
        if view.lane is Lane.BACKFILL or (view.state is State.HELD and view.reason in _NOT_LATE):
            continue
        if view.reason == Reason.OVERLAP and view.schedule is not None and series_of(view) in paused:
            continue
        # Not handed off, and past its time: it belongs to the backlog. Whether anybody fires at all is asked elsewhere.
        if is_paced and view.state in PENDING and now - view.fire_at > LATE:
            continue
        policy = policy_of(view, cards.get(view.job))
        if lateness(view, now) > policy.missed_after and Kind.LATE not in policy.no_alerts:
            waiting[Subject.of(view.job, view.schedule)].append(view)
    findings: list[Finding] = []
    for subject, views in _apart(waiting, known, findings, now, is_all, began).items():
        first = min(views, key=lambda view: view.fire_at)
        policy = policy_of(first, cards.get(first.job))
        others = f" and {len(views) - 1:,} more" if len(views) > 1 else ""
        been = f"{'have' if others else 'has'} been due for {_span(now - first.fire_at)}"
        cause = f"{first.id}{others} {been}, {first.state}"
        findings.append(
            _about(subject, cards, Kind.LATE, cause, since=first.fire_at + policy.missed_after, count=len(views))
        )
    return Seen(findings, judged=(Kind.LATE,) if is_all else ())


def _apart(
    waiting: Mapping[Subject, list[RunView]],
    known: Iterable[Alert],
    findings: list[Finding],
    now: Instant,
    is_all: bool,
    began: Instant | None,
) -> dict[Subject, list[RunView]]:
    """The schedules and jobs that get an alert each. Adds a finding for each cause that more than MOST_LATE of the
    others share: one that has an open alert keeps that, so that nothing is resolved while it lasts."""
    open_ones = {alert.subject for alert in known if alert.kind is Kind.LATE}
    by_cause: defaultdict[str, dict[Subject, list[RunView]]] = defaultdict(dict)
    alone: dict[Subject, list[RunView]] = {}
    for subject, views in waiting.items():
        if subject.name in open_ones:
            alone[subject] = views
        else:
            first = min(views, key=lambda view: view.fire_at)
            # What has a worker's queue to wait in was handed off.
            cause = f"queue:{first.queue}" if first.state is State.READY else FLEET
            by_cause[cause][subject] = views
    for cause, subjects in by_cause.items():
        if len(subjects) <= MOST_LATE and cause not in open_ones:
            alone |= subjects
        else:
            findings.append(_many_late(cause, subjects, now, is_all, began))
    return alone


def _many_late(
    cause: str, subjects: Mapping[Subject, list[RunView]], now: Instant, is_all: bool, began: Instant | None
) -> Finding:
    runs = sorted((view for views in subjects.values() for view in views), key=lambda view: view.fire_at)
    names = [subject.schedule or subject.job for subject in subjects]
    examples = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")
    count = f"{len(runs):,} run{'' if len(runs) == 1 else 's'}" if is_all else f"{len(runs):,} runs or more"
    if cause != FLEET:
        why = f"they were handed off, and no worker of {cause.replace(':', ' ', 1)} has started them"
    elif began is not None and now - began < JUST_BEGUN:
        why = f"a scheduler started {_span(now - began)} ago and is handing off older runs"
    else:
        why = "they were not handed off"
    return Finding(
        Kind.LATE, cause, f"{count} are late: {why}: {examples}", since=runs[0].fire_at + LATE, count=len(runs)
    )


def stuck(at_work: Sequence[RunView], cards: Cards, now: Instant) -> Seen:
    """By schedule or job, how many attempts do not move."""
    silent: defaultdict[Subject, list[tuple[RunView, str]]] = defaultdict(list)
    for view in at_work:
        policy = policy_of(view, cards.get(view.job))
        begun = view.started_at
        if Kind.STUCK in policy.no_alerts or begun is None:
            continue
        if is_stuck(view, policy, now):
            silence = silent_for(view, now) or 0
            cause = f"{view.id} sends heartbeats, and has not reported progress for {_span(silence)}"
        elif now - begun > policy.timeout + PAST_TIMEOUT:
            cause = (
                f"{view.id} is still running {_span(now - begun - policy.timeout)} past its timeout of "
                f"{spell(policy.timeout)}"
            )
        else:
            continue
        silent[Subject.of(view.job, view.schedule)].append((view, cause))
    act = 'foliot runs cancel "{run}" --reason "..."'
    listed = "foliot runs list --condition stuck"
    findings = [_together(runs, cards, Kind.STUCK, "are stuck", act, listed) for runs in silent.values()]
    return Seen(findings, judged=(Kind.STUCK,))


def _together(
    runs: Sequence[tuple[RunView, str]], cards: Cards, kind: Kind, verb: str, act: str, listed: str
) -> Finding:
    """A finding about the runs of one schedule or job, each with its own words; those of the newest are given."""
    views = [view for view, _ in runs]
    newest, words = max(runs, key=lambda run: run[0].number)
    if len(runs) == 1:
        return _of_runs(views, cards, kind, words, act.format(run=newest.id))
    name = newest.schedule or newest.job
    option = "--schedule" if newest.schedule is not None else "--job"
    return _of_runs(
        views, cards, kind, f"{name}: {len(runs):,} runs {verb}; the newest: {words}", f'{listed} {option} "{name}"'
    )


def overlapping(at_work: Sequence[RunView], overlaps: Mapping[str, Overlap], cards: Cards) -> Seen:
    """`overlaps`: what schedules say; those that are not known are not judged."""
    findings = []
    busy = crowded(at_work)
    for schedule, member in sorted(busy, key=str):
        if schedule is None or overlaps.get(schedule, Overlap.ALLOW) is Overlap.ALLOW:
            continue
        views = [view for view in at_work if series_of(view) == (schedule, member)]
        cause = f"{len(views)} runs are running at the same time: {', '.join(view.id for view in views[:3])}"
        subject = Subject.of(views[0].job, schedule)
        findings.append(_about(subject, cards, Kind.OVERLAPPING, cause, count=len(views)))
    return Seen(findings, judged=(Kind.OVERLAPPING,))


def checks_overdue(checking: Sequence[RunView], since: dict[int, Instant], cards: Cards, now: Instant) -> Seen:
    """A check has as long as its job, from when it is first seen to wait (kept in `since`, by number): a run's own
    times are those of its work. A tick over many members takes as long as they do; see `expect_within`."""
    overdue: defaultdict[Subject, list[tuple[RunView, str]]] = defaultdict(list)
    waiting = [view for view in checking if view.phase is not None]
    known = {view.number: since.get(view.number, now) for view in waiting}
    since.clear()
    since.update(known)
    for view in waiting:
        policy = policy_of(view, cards.get(view.job))
        waits = now - since[view.number]
        if Kind.CHECK_OVERDUE in policy.no_alerts or waits <= policy.timeout:
            continue
        cause = f"{view.id} has waited for its check for {_span(waits)}"
        overdue[Subject.of(view.job, view.schedule)].append((view, cause))
    act, listed = 'foliot runs show "{run}"', "foliot runs list --state verifying"
    findings = [
        _together(runs, cards, Kind.CHECK_OVERDUE, "wait too long for their checks", act, listed)
        for runs in overdue.values()
    ]
    return Seen(findings, judged=(Kind.CHECK_OVERDUE,))


_PARKED_AS = {
    State.DEAD: Kind.DEAD,
    State.UNVERIFIED: Kind.UNVERIFIED,
    State.AMBIGUOUS: Kind.AMBIGUOUS,
    State.SETTLED: Kind.SETTLED,
}


def parked(subjects: Sequence[ParkedSubject], cards: Cards, *, is_all: bool = True) -> Seen:
    """Runs that wait for a person: one finding for each state, and schedule or job, with the number of runs. Runs whose
    settings want no such alert are not counted. `is_all`: these are all that there are."""
    findings = []
    for subject in subjects:
        kind, view = _PARKED_AS[subject.state], subject.newest
        base = policy_of(replace(view, options=None), cards.get(view.job))
        of_quiet = [(policy_of(replace(view, options=options), cards.get(view.job)), n) for options, n in subject.quiet]
        size = 0 if kind in base.no_alerts else subject.size - sum(n for _, n in subject.quiet)
        size += sum(n for policy, n in of_quiet if kind not in policy.no_alerts)
        if size:
            findings.append(_of_parked(subject, kind, size, cards))
    return Seen(findings, judged=OF_PARKED if is_all else ())


def _of_parked(subject: ParkedSubject, kind: Kind, size: int, cards: Cards) -> Finding:
    view = subject.newest
    action = f'foliot runs show "{view.id}"'
    words = _parked_words(view)
    if size > 1:
        name = view.schedule or view.job
        option = f'--schedule "{name}"' if view.schedule is not None else f'--job "{name}"'
        action = f"foliot dead list {option}" if kind is Kind.DEAD else f"foliot runs list --state {kind} {option}"
        members = f" of {subject.members:,} members" if subject.members > 1 else ""
        words = f"{name}: {size:,} runs{members} are {view.state}; the newest is {view.id}, {_parked_why(view)}"
    return replace(_of_runs([view], cards, kind, words, action), count=size, tenant=subject.tenant)


def newly_parked(
    views: Sequence[RunView], known: dict[str, list[int]], alerts: Iterable[Alert], cards: Cards, *, is_all: bool
) -> list[RunView]:
    """The parked runs that no look has met before. Records in `known`, by subject, the newest ones that were met.

    A run that is older than all of these counts as met, if there are MOST_MET of them. `is_all`: these are all parked
    runs, so that those which are not among them are forgotten, and are new if they are parked again.
    """
    before = {alert.key for alert in alerts}  # releases before had an alert for each run
    new: list[RunView] = []
    present: defaultdict[str, list[int]] = defaultdict(list)
    for view in views:
        kind, subject = _PARKED_AS[view.state], Subject.of(view.job, view.schedule).name
        numbers = known.get(subject, [])
        present[subject].append(view.number)
        is_met = view.number in numbers or (len(numbers) >= MOST_MET and view.number < numbers[0])
        if is_met or (str(kind), f"run:{view.id}") in before or kind in policy_of(view, cards.get(view.job)).no_alerts:
            continue
        new.append(view)
    if is_all:
        known.clear()
    for subject, numbers in present.items():
        known[subject] = sorted({*known.pop(subject, ()), *numbers})[-MOST_MET:]
    _forget_oldest(known)
    return new


def _parked_words(view: RunView) -> str:
    return f"{view.id} ({view.job}) is {view.state}, {_parked_why(view)}"


def _parked_why(view: RunView) -> str:
    error = brief(view.detail)
    return f"{view.reason or view.state}" + (f": {error}" if error else "")


# ------------------------------------------------------------------------------------------------------- three in a row


def failing(
    failures: dict[str, tuple[int, int]],
    ended: Sequence[Ended],
    new: Sequence[RunView],
    retrying: Sequence[Tried],
    cards: Cards,
    counted: Container[tuple[str, str]],
) -> Seen:
    """Counts in `failures`, by schedule or job, what failed since the last useful result.

    `counted`: kind and subject of alerts that count parked runs. Such runs alone open no second alert.

    A schedule's run that is being tried for the fourth time has failed three times in a row by itself. Of a job whose
    runs are independent of one another, one that fails says nothing: there only parked ones count.
    """
    useful = {_subject(one).name for one in ended if one.state in (State.SUCCEEDED, State.VERIFIED)}
    for name in useful & failures.keys():
        failures[name] = 0, failures[name][1]
    seen = {}
    # A run that a person settled failed before that, and was counted then.
    for view in sorted((view for view in new if view.state is not State.SETTLED), key=lambda view: view.number):
        subject = Subject.of(view.job, view.schedule)
        before, last = failures.get(subject.name, (0, 0))
        spent = max(view.spent, 1) if view.schedule is not None else 1
        failures[subject.name] = before + spent, max(last, view.number)
        if (str(_PARKED_AS[view.state]), subject.name) not in counted:
            seen[subject.name] = subject, view.detail
    for one in retrying:
        schedule = None if one.series is None else schedule_of_series(one.series)
        subject = Subject.of(one.job, schedule)
        if schedule is not None and one.spent >= IN_A_ROW and subject.name not in useful:
            count, last = failures.get(subject.name, (0, 0))
            failures[subject.name] = max(count, one.spent), max(last, one.number)
            seen[subject.name] = subject, one.detail
    findings = []
    for name, (subject, detail) in seen.items():
        count = failures.get(name, (0, 0))[0]
        if count >= IN_A_ROW and Kind.FAILING not in _policy(cards, subject.job).no_alerts:
            error = brief(detail)
            cause = f"{count} failures in a row, and no useful result in between" + (f": {error}" if error else "")
            findings.append(_about(subject, cards, Kind.FAILING, cause, count=count))
    _forget_oldest(failures)
    return Seen(findings, cured=[(str(Kind.FAILING), name) for name in useful])


def _forget_oldest(by_subject: dict[str, Any], most: int = 2_000) -> None:
    for name in list(by_subject)[: max(len(by_subject) - most, 0)]:
        del by_subject[name]


# ----------------------------------------------------------------------------------------- longer or shorter than usual


class Usual(NamedTuple):
    """How long runs usually take."""

    median: Duration
    spread: Duration
    """Whatever lies further from the median than this is unusual."""


def usual(durations: Sequence[Duration]) -> Usual | None:
    """By the median, and the median of the distances from it: a few odd ones change neither. None: too few known."""
    if len(durations) < LEAST_KNOWN:
        return None
    middle = median(durations)
    apart = median(abs(length - middle) for length in durations)
    return Usual(int(middle), int(max(SPREADS * _ROBUST * apart, middle / 2, LEAST_APART)))


def unusual(
    ended: Sequence[Ended], at_work: Sequence[RunView], history: Mapping[str, Usual | None], cards: Cards, now: Instant
) -> Seen:
    """Of each schedule or job, its last run that ended well; and what is at work for longer than is usual."""
    verdicts: dict[Subject, str | None] = {}
    for one in ended:
        subject = _subject(one)
        if one.state not in (State.SUCCEEDED, State.VERIFIED) or one.started_at is None:
            continue
        took = one.finished_at - one.started_at
        verdicts[subject] = _unusual_words(run_id(one.number, one.name), took, history.get(subject.name), "took")
    for view in at_work:
        subject = Subject.of(view.job, view.schedule)
        known = history.get(subject.name)
        if known is None or view.started_at is None or now - view.started_at <= known.median:
            continue
        told = _unusual_words(view.id, now - view.started_at, known, "runs for")
        if told is not None:
            verdicts[subject] = told
    findings = [
        _about(subject, cards, Kind.DURATION, told)
        for subject, told in verdicts.items()
        if told is not None and Kind.DURATION not in _policy(cards, subject.job).no_alerts
    ]
    return Seen(findings, cured=[(str(Kind.DURATION), subject.name) for subject, told in verdicts.items() if not told])


def _unusual_words(run: str, took: Duration, known: Usual | None, verb: str) -> str | None:
    if known is None or abs(took - known.median) <= known.spread:
        return None
    more = "longer" if took > known.median else "shorter"
    return f"{run} {verb} {_span(took)}, far {more} than the median of {_span(known.median)}"


def tight(ended: Sequence[Ended], counts: dict[str, int], cards: Cards) -> Seen:
    """Runs that take nearly all of the time to the next one, two in a row."""
    findings, cured = [], []
    for one in ended:
        subject = _subject(one)
        if subject.schedule is None or one.since is None or one.started_at is None or one.nominal <= one.since:
            continue
        took, interval = one.finished_at - one.started_at, one.nominal - one.since
        if took <= RATIO * interval:
            counts.pop(subject.name, None)
            cured.append((str(Kind.RATIO), subject.name))
            continue
        counts[subject.name] = counts.get(subject.name, 0) + 1
        if counts[subject.name] >= 2 and Kind.RATIO not in _policy(cards, subject.job).no_alerts:
            cause = f"its runs take {_span(took)}, and its interval is {_span(interval)}"
            findings.append(_about(subject, cards, Kind.RATIO, cause))
    last = {finding.key: finding for finding in findings if finding.subject in counts}
    return Seen(list(last.values()), cured=[key for key in cured if key not in last])


# ---------------------------------------------------------------------------------------------------------------- words


def _subject(one: Ended) -> Subject:
    return Subject.of(one.job, None if one.series is None else schedule_of_series(one.series))


def lengths(ended: Sequence[Ended]) -> dict[str, list[Duration]]:
    """By subject, how long its runs took that ended well, in their order."""
    found: defaultdict[str, list[Duration]] = defaultdict(list)
    for one in ended:
        if one.state in (State.SUCCEEDED, State.VERIFIED) and one.started_at is not None:
            found[_subject(one).name].append(one.finished_at - one.started_at)
    return found


def subjects_of(ended: Sequence[Ended], at_work: Sequence[RunView]) -> dict[str, Subject]:
    """By name, whose history has to be known for `unusual`."""
    found = [_subject(one) for one in ended] + [Subject.of(view.job, view.schedule) for view in at_work]
    return {subject.name: subject for subject in found}


def _policy(cards: Cards, job: str) -> Policy:
    return job_policy(cards.get(job))


def _about(
    subject: Subject, cards: Cards, kind: Kind, told: str, *, since: Instant | None = None, count: int = 1
) -> Finding:
    card = cards.get(subject.job)
    return Finding(
        kind,
        subject.name,
        f"{subject.schedule or subject.job}: {told}",
        since=since,
        count=count,
        job=subject.job,
        schedule=subject.schedule,
        owner=None if card is None else card.owner,
        runbook=None if card is None else card.runbook,
    )


def _of_runs(views: Sequence[RunView], cards: Cards, kind: Kind, told: str, action: str) -> Finding:
    """About runs of one schedule or job."""
    newest = max(views, key=lambda view: view.number)
    card, tenants = cards.get(newest.job), {view.tenant for view in views}
    return Finding(
        kind,
        Subject.of(newest.job, newest.schedule).name,
        told,
        count=len(views),
        action=action,
        job=newest.job,
        schedule=newest.schedule,
        run=newest.id,
        tenant=newest.tenant if len(tenants) == 1 else None,
        owner=None if card is None else card.owner,
        runbook=None if card is None else card.runbook,
        number=newest.number,
    )


def _span(length: Duration) -> str:
    """Coarse, so that an alert's words do not change with every look."""
    if length < 2 * SECOND:
        return spell(length // 1_000 * 1_000)
    if length < 2 * MINUTE:
        return f"{length // SECOND} s"
    if length < 120 * MINUTE:
        return f"{length // MINUTE} min"
    return f"{length // (60 * MINUTE)} h"
