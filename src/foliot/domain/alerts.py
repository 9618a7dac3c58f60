"""Alerts: what people must be told, because it will not say so itself. Values, and the pure decision about them.

A detector finds that something is the case (a `Finding`). An alert opens once when that has lasted for the grace of its
kind, and resolves once when it has been gone for as long as its kind takes to settle: what flaps is one alert.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import quote

from foliot.domain.instant import DAY, MINUTE, SECOND, Duration, Instant


class Severity(StrEnum):
    """How soon somebody has to look."""

    CRITICAL = "critical"
    """Promises are being broken: now."""
    WARNING = "warning"
    """Somebody has to act: today."""
    NOTICE = "notice"
    """Worth knowing."""


class Kind(StrEnum):
    """What an alert is about, in the order in which people are told."""

    SCHEDULER_SILENT = "scheduler_silent"
    WATCH_SILENT = "watch_silent"
    EARLY = "early"
    MISSING = "missing"
    FAULTED = "faulted"
    STALE = "stale"
    AMBIGUOUS = "ambiguous"
    SETTLED = "settled"
    DEAD = "dead"
    UNVERIFIED = "unverified"
    LATE = "late"
    NO_WORKER = "no_worker"
    UNKNOWN_REQUIRED = "unknown_required"
    STUCK = "stuck"
    FAILING = "failing"
    DEAD_LETTERS = "dead_letters"
    COMPLETIONS = "completions"
    SATURATED = "saturated"
    QUEUE_AGE = "queue_age"
    CHECK_OVERDUE = "check_overdue"
    OVERLAPPING = "overlapping"
    LOST = "lost"
    CLOCK = "clock"
    RETRIES = "retries"
    RATIO = "ratio"
    DURATION = "duration"


class Traits(NamedTuple):
    """What holds of all alerts of a kind; docs/alerts.md is written from this."""

    severity: Severity
    grace: Duration
    """It must have lasted for so long before an alert opens."""
    settle: Duration
    """It must have been gone for so long before the alert resolves."""
    means: str
    opens: str
    resolves: str
    act: str
    """What to do, when nothing better is known."""


_C, _W, _N = Severity

KINDS: dict[Kind, Traits] = {
    Kind.SCHEDULER_SILENT: Traits(
        _C,
        15 * SECOND,
        15 * SECOND,
        "scheduling has stopped: no live scheduler, shards without an owner, or due runs that are not handed off",
        "no live scheduler, a shard that no scheduler holds, or a run that is due for a minute without a decision",
        "live schedulers hold all shards and hand off due runs",
        "start a scheduler (foliot scheduler), or read its log; foliot doctor lists live processes",
    ),
    Kind.WATCH_SILENT: Traits(
        _C,
        MINUTE,
        0,
        "the watch has stopped; alerts may be out of date",
        "the last watch round is more than a minute old; workers, the command line and the pages check its age",
        "the watch runs again",
        "start a scheduler (foliot scheduler), which runs the watch; until then other alerts may be out of date",
    ),
    Kind.EARLY: Traits(
        _C,
        0,
        0,
        "a run started before its time; this must never happen",
        "an attempt of the last day started before its fire time, by the store's clock",
        "no attempt of the last day started early",
        "keep the store unchanged, compare the clocks (foliot doctor), and report a bug",
    ),
    Kind.MISSING: Traits(
        _C,
        30 * SECOND,
        0,
        "the rule has a tick without a run",
        "a tick has no live, ended or skipped run; or the next tick has no pending run",
        "the run exists, or a past tick is a day old",
        "foliot schedules show NAME; restart a scheduler to create missing runs, or run it now: foliot schedules "
        "trigger NAME",
    ),
    Kind.FAULTED: Traits(
        _C,
        0,
        0,
        "a schedule was set aside: its rule or settings are unreadable, or its zone data ends",
        "the schedule has a fault",
        "the fault is gone",
        "read the fault, fix the declaration, and apply it again",
    ),
    Kind.STALE: Traits(
        _C,
        0,
        0,
        "too long without a useful result: a verified run, or a succeeded run of a job without a check",
        "`expect_every` has passed since the last useful completion, or `expect_within` since a tick",
        "a useful completion",
        "inspect the last runs: foliot runs list",
    ),
    Kind.AMBIGUOUS: Traits(
        _C,
        0,
        0,
        "a run may have caused an external effect, and no record proves whether it did",
        "a run of the schedule, or of the job, is `ambiguous`",
        "no run is `ambiguous`: each was verified, retried, rerun or reconciled",
        "foliot runs show RUN lists the facts to check, and the safe steps",
    ),
    Kind.SETTLED: Traits(
        _W,
        0,
        0,
        "the effects of a run are settled, and part of its work is not done",
        "a run of the schedule, or of the job, is `settled`",
        "no run is `settled`: each was resumed, rerun or closed",
        (
            "foliot runs resume RUN does the remaining work; foliot runs reconcile RUN --then close declares it not "
            "needed"
        ),
    ),
    Kind.DEAD: Traits(
        _W,
        0,
        0,
        "a run failed for good",
        "a run of the schedule, or of the job, is `dead`",
        "no run is `dead`: each was retried, replayed, rerun or reconciled",
        "foliot runs show RUN shows the cause and the safe steps",
    ),
    Kind.UNVERIFIED: Traits(
        _W,
        0,
        0,
        "a run finished, and its check rejected the result",
        "a run of the schedule, or of the job, is `unverified`",
        "no run is `unverified`: each was verified, retried, rerun or reconciled",
        "foliot runs show RUN shows the cause and the safe steps",
    ),
    Kind.LATE: Traits(
        _W,
        MINUTE,
        30 * SECOND,
        "runs are due and have not started",
        "a run has not started `missed_after` plus a minute after its time",
        "no run of the schedule or job waits that long",
        (
            "foliot queues list and foliot workers list show which workers serve which queues; foliot runs list "
            "--state ready lists waiting runs"
        ),
    ),
    Kind.NO_WORKER: Traits(
        _W,
        2 * MINUTE,
        0,
        "no live worker can claim the waiting runs",
        "a schedule or waiting run has a job or queue that no live worker serves",
        "a live worker serves the job and queue",
        "start a worker that has the job and serves its queue",
    ),
    Kind.UNKNOWN_REQUIRED: Traits(
        _W,
        2 * MINUTE,
        0,
        "a schedule requires a schedule that does not exist",
        "`requires` names a schedule that the store does not have, and the schedule is not paused",
        "the required schedule exists, or `requires` names another schedule or none",
        "declare the required schedule, or name another schedule: foliot schedules edit NAME --set requires=OTHER",
    ),
    Kind.STUCK: Traits(
        _W,
        0,
        30 * SECOND,
        "an attempt makes no progress, or continues past its timeout",
        "no progress for longer than `stall_after`; or a minute past `timeout`",
        "each stuck attempt makes progress or has ended",
        "foliot runs show RUN shows the progress; foliot runs cancel RUN requests cancellation, --force ends the run",
    ),
    Kind.FAILING: Traits(
        _W,
        0,
        0,
        "three failures in a row",
        "three attempts or runs of a schedule or job failed, without a useful one in between; parked "
        "runs that another alert counts open none",
        "a useful result",
        "read the last error and fix its cause; retries alone will not help",
    ),
    Kind.DEAD_LETTERS: Traits(
        _W,
        0,
        10 * MINUTE,
        "dead letters grow",
        "at least ten more dead letters in an hour",
        "fewer than ten more dead letters in an hour",
        "foliot dead list shows the causes; remove them, then retry the runs with foliot dead replay",
    ),
    Kind.COMPLETIONS: Traits(
        _W,
        2 * MINUTE,
        2 * MINUTE,
        "fewer runs succeed while runs wait",
        "fewer than half as many runs succeeded in ten minutes as in the ten before (at least 20), and runs wait",
        "at least half as many runs succeed as before, no run waits, or the lower rate has lasted an hour",
        "inspect workers and destinations: foliot workers list, foliot limits list",
    ),
    Kind.SATURATED: Traits(
        _N,
        2 * MINUTE,
        MINUTE,
        "all slots are busy, and work waits",
        "no worker of the queue has a free slot, and runs of the queue wait",
        "a slot is free, or no run waits",
        "start more workers, or raise --slots",
    ),
    Kind.QUEUE_AGE: Traits(
        _W,
        MINUTE,
        30 * SECOND,
        "runs of a queue wait too long",
        "the oldest run in the queue has waited for a worker for more than a minute",
        "no run in the queue has waited for more than a minute",
        "foliot queues list shows the workers of the queue; start another worker for it",
    ),
    Kind.CHECK_OVERDUE: Traits(
        _W,
        5 * MINUTE,
        0,
        "a run's check is overdue",
        "a run has waited for its check for longer than its job may take",
        "every overdue check has ended",
        "find out whether a worker has the job's check: foliot workers list",
    ),
    Kind.OVERLAPPING: Traits(
        _W,
        5 * SECOND,
        5 * SECOND,
        "two runs of one schedule are running, and its overlap policy does not allow that",
        "two runs of the schedule are running; released runs count",
        "one of the runs has ended",
        "foliot runs list --state running lists the runs; cancel one of them",
    ),
    Kind.LOST: Traits(
        _N,
        0,
        10 * MINUTE,
        "workers were lost during attempts",
        "an attempt was lost in the last ten minutes",
        "no attempt was lost for ten minutes",
        "read the logs of the worker and of its host: killed, out of memory, disconnected",
    ),
    Kind.CLOCK: Traits(
        _W,
        10 * SECOND,
        30 * SECOND,
        "a host's clock is wrong: its workers claim no more runs",
        "the whole interval of the measured clock offset lies outside 100 ms",
        "the offset lies within 100 ms again, or no process runs on the host",
        "fix the host's time synchronisation (NTP)",
    ),
    Kind.RETRIES: Traits(
        _N,
        MINUTE,
        5 * MINUTE,
        "the number of retries grows",
        "at least 20 runs wait for a retry, and twice as many as ten minutes ago",
        "fewer than 20 runs wait for a retry, or less than twice as many as ten minutes ago",
        "foliot runs list --state retrying shows these runs and their errors",
    ),
    Kind.RATIO: Traits(
        _N,
        0,
        0,
        "runs take nearly as long as the interval of their schedule",
        "the last two runs took more than 80 percent of their interval",
        "a run takes at most 80 percent of its interval",
        "shorten the job, lengthen the interval of the schedule, or set its overlap policy",
    ),
    Kind.DURATION: Traits(
        _N,
        0,
        0,
        "a run took far longer or far shorter than earlier ones",
        (
            "its duration differs from the median of the last runs by more than six times their spread, and by more "
            "than half"
        ),
        "a run takes its usual time",
        "inspect the run: foliot runs show RUN",
    ),
}

OF_RUNS = frozenset({Kind.AMBIGUOUS, Kind.SETTLED, Kind.DEAD, Kind.UNVERIFIED, Kind.STUCK, Kind.CHECK_OVERDUE})
"""Kinds about single runs: one alert for each schedule, with its members, or job counts them."""
OF_PARKED = frozenset({Kind.AMBIGUOUS, Kind.SETTLED, Kind.DEAD, Kind.UNVERIFIED})
COUNTED = OF_RUNS | {Kind.LATE}
"""Kinds whose count is a number of runs: their message is repeated when it doubles."""
FLEET = "fleet"
"""The subject of what is about all of it."""
EVENTFUL = frozenset({Kind.FAILING, Kind.DURATION, Kind.RATIO, Kind.LOST})
"""Kinds that are told by what happened, at the moment when it did: they have no grace."""
WRITTEN_EVERY: Duration = 30 * SECOND
"""What is known of an open alert is written down no more often."""
FORGOTTEN_AFTER: Duration = 30 * MINUTE
"""What brews is remembered for so long beyond twice its grace, if nobody finds it again: every schedule and every
parked run has its turn in that time."""
REPEATED_AFTER: Duration = 10 * MINUTE
"""The message about a count that doubles is repeated no more often."""
REMINDED_AFTER: Duration = DAY
"""The message about an open alert, notices apart, is repeated when none was sent for so long."""
KEPT: Duration = 90 * DAY
"""How long alerts are remembered that are resolved."""
_MOST_CAUSE = 300


@dataclass(frozen=True, slots=True)
class Finding:
    """Something is the case."""

    kind: Kind
    subject: str
    """`schedule:X`, `job:X`, `queue:X`, `host:X`, or `fleet`."""
    cause: str
    """One sentence."""
    since: Instant | None = None
    """Since when, where the facts tell that; else since it was first seen."""
    count: int = 1
    """Of how many things it is told."""
    action: str | None = None
    """What is safe to do; None: what its kind says."""
    job: str | None = None
    schedule: str | None = None
    run: str | None = None
    tenant: str | None = None
    owner: str | None = None
    runbook: str | None = None
    number: int | None = None
    """Of the run, which is the newest where `count` is larger than 1."""

    @property
    def key(self) -> tuple[str, str]:
        return str(self.kind), self.subject


class Stage(StrEnum):
    """Which message about an alert is due."""

    OPENED = "opened"
    AGAIN = "again"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert as the store holds it."""

    number: int
    kind: Kind
    subject: str
    severity: Severity
    cause: str
    action: str
    opened_at: Instant
    seen_at: Instant
    """When that was last so, as far as it was written down."""
    count: int = 1
    resolved_at: Instant | None = None
    snoozed_until: Instant | None = None
    job: str | None = None
    schedule: str | None = None
    run: str | None = None
    """Of several, the newest."""
    tenant: str | None = None
    owner: str | None = None
    runbook: str | None = None
    told_at: Instant | None = None
    """When people were told that it opened."""
    told_resolved_at: Instant | None = None
    told_count: int | None = None
    """The count of the last message; or the lowest one since, if that is lower."""
    repeated_at: Instant | None = None
    """When the last message was sent, if it was a repetition."""

    @property
    def key(self) -> tuple[str, str]:
        return str(self.kind), self.subject

    @property
    def is_open(self) -> bool:
        return self.resolved_at is None

    @property
    def stage(self) -> Stage:
        """Of the message that is due, if one is."""
        return Stage.RESOLVED if not self.is_open else Stage.OPENED if self.told_at is None else Stage.AGAIN

    @property
    def runs(self) -> int | None:
        """How many runs it counts; None for a kind that counts no runs."""
        return self.count if self.kind in COUNTED else None

    def snoozed(self, now: Instant) -> bool:
        return self.snoozed_until is not None and now < self.snoozed_until


class AlertFilter(NamedTuple):
    """Which alerts are wanted; None says nothing."""

    kind: str | None = None
    subject: str | None = None
    tenant: str | None = None
    everything: bool = False
    """Those that are resolved, too."""


class Seen(NamedTuple):
    """What one detector saw."""

    findings: Sequence[Finding] = ()
    judged: Collection[Kind] = ()
    """Kinds of which it has seen all there is: what is not among the findings is gone."""
    cured: Collection[tuple[str, str]] = ()
    """Alerts, by kind and subject, whose cause it has seen to be gone. Whatever was not looked at stays as it is."""


@dataclass(slots=True)
class Brewing:
    """What is not an alert yet, and what is nearly none any more. Kept with the rest of the watch's memory."""

    since: dict[tuple[str, str], Instant] = field(default_factory=dict)
    """By key, since when it is the case, of what has no alert yet."""
    gone: dict[tuple[str, str], Instant] = field(default_factory=dict)
    """By key, since when it is not the case any more, of what has an open alert."""


class Verdict(NamedTuple):
    """What one look comes to."""

    opens: list[Finding]
    changes: list[tuple[int, Finding]]
    """Open alerts whose cause or count is another one now."""
    resolves: list[int]
    brewing: Brewing


class Rules(NamedTuple):
    """What operators chose about alerts."""

    silent: frozenset[str] = frozenset()
    """Kinds that nobody wants to hear of: none of them opens."""
    graces: Mapping[str, Duration] = {}

    def grace(self, kind: Kind) -> Duration:
        return self.graces.get(str(kind), KINDS[kind].grace)


class AlertSettings(NamedTuple):
    """What a process knows of how people want to be told. Addresses are secrets."""

    urls: tuple[str, ...] = ()
    """Addresses that Apprise knows."""
    ping: str | None = None
    """An outside watcher that is pinged while all of this works."""
    rules: Rules = Rules()
    public_url: str | None = None
    """Where people open the dashboard: messages link to it."""


def weigh(open_alerts: Iterable[Alert], seen: Sequence[Seen], before: Brewing, rules: Rules, now: Instant) -> Verdict:
    """What opens, what changes, what resolves.

    1. What is found and has no alert opens once it has lasted for its grace; until then it is remembered.
    2. What is found and has one keeps it, with what is known now.
    3. An alert whose cause is known to be gone resolves once that has lasted for as long as its kind takes to settle.
    4. One whose cause nobody looked at stays as it is, and so does what brews; that is forgotten in the end.
    """
    found = {one.key: one for part in seen for one in part.findings if one.kind not in rules.silent}
    judged = {str(kind) for part in seen for kind in part.judged} | set(rules.silent)
    cured = {key for part in seen for key in part.cured} - found.keys()
    known = {alert.key: alert for alert in open_alerts}
    verdict = Verdict([], [], [], Brewing())
    for key, finding in found.items():
        alert = known.get(key)
        if alert is not None:
            is_counted = finding.kind in OF_RUNS and alert.count != finding.count
            changed = (alert.cause, alert.count) != (shortened(finding.cause), finding.count)
            if is_counted or (changed and now - alert.seen_at >= WRITTEN_EVERY):
                verdict.changes.append((alert.number, finding))
            continue
        since = finding.since if finding.since is not None else before.since.get(key, now)
        if now - since >= rules.grace(finding.kind):
            verdict.opens.append(finding)
        else:
            verdict.brewing.since[key] = since
    for key, since in before.since.items():
        # What would be an alert by now if it had been found again is gone, or begins anew when it is back.
        is_old = now - since > 2 * rules.grace(Kind(key[0])) + FORGOTTEN_AFTER
        if key not in found and key not in cured and key[0] not in judged and not is_old:
            verdict.brewing.since[key] = since  # nobody looked
    for key, alert in known.items():
        if key in found:
            continue
        if key in cured or key[0] in judged or key in before.gone:
            since = before.gone.get(key, now)
            if now - since >= KINDS[alert.kind].settle:
                verdict.resolves.append(alert.number)
            else:
                verdict.brewing.gone[key] = since
    return verdict


def shortened(cause: str) -> str:
    line = " ".join(cause.split())
    return line if len(line) <= _MOST_CAUSE else line[: _MOST_CAUSE - 1] + "…"


def action_of(finding: Finding) -> str:
    return finding.action or KINDS[finding.kind].act


def about(subject: str) -> str:
    """The subject as events and people know it: a run's, schedule's or job's own name."""
    kind, _, name = subject.partition(":")
    return name if kind in ("run", "schedule", "job") else subject


def page_of(alert: Alert) -> str | None:
    """The path of the dashboard's page about it; None where it is about no run, schedule or job."""
    of = f"schedule={_quoted(alert.schedule)}" if alert.schedule else f"job={_quoted(alert.job)}" if alert.job else None
    if alert.run and alert.count == 1:
        return f"/runs/{_quoted(alert.run)}"
    if alert.kind in OF_PARKED and of is not None:
        return f"/runs?state={alert.kind}&{of}" + ("" if alert.schedule else "&schedule=-")  # those without one
    if alert.schedule:
        return f"/schedules/{_quoted(alert.schedule)}"
    return None if of is None else f"/runs?{of}"


def _quoted(name: str | None) -> str:
    return quote(name or "", safe="")


def urgency(alert: Alert) -> tuple[int, int, int]:
    """What people see first: by severity, by kind, then the oldest."""
    return list(Severity).index(alert.severity), list(Kind).index(alert.kind), alert.number


def is_silent(looked_at: Instant | None, now: Instant, grace: Duration = KINDS[Kind.WATCH_SILENT].grace) -> bool:
    """Whether nobody watches: the last look is too old. One from the future was made by a clock that was set back."""
    return looked_at is not None and now - looked_at > grace


def silence(looked_at: Instant | None, now: Instant) -> Finding | None:
    """The alert that the watch cannot raise itself: that it does not watch. Derived by whoever reads."""
    if looked_at is None or not is_silent(looked_at, now):
        return None
    age = (now - looked_at) // SECOND
    cause = f"{age // 60} min" if age >= 120 else f"{age} s"
    return Finding(
        Kind.WATCH_SILENT,
        FLEET,
        f"no watch round for {cause}: no live scheduler, or the watch is stuck",
        looked_at,
    )


def brewing_from(data: Any) -> Brewing:
    """As `brewing_to` wrote it; what cannot be read is forgotten."""
    made = Brewing()
    if isinstance(data, dict):
        for name in ("since", "gone"):
            for row in data.get(name, ()):
                if isinstance(row, list) and len(row) == 3 and row[0] in KINDS and isinstance(row[2], int):
                    getattr(made, name)[str(row[0]), str(row[1])] = row[2]
    return made


def brewing_to(brewing: Brewing) -> dict[str, list[tuple[str, str, Instant]]]:
    return {
        name: [(kind, subject, at) for (kind, subject), at in getattr(brewing, name).items()]
        for name in ("since", "gone")
    }
