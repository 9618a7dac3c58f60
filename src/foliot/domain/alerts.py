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
        "nothing fires: no scheduler lives, a part of the runs has no owner, or what is due is not handed off",
        "no live scheduler, or a shard that nobody holds, or a run that is due for a minute and was not looked at",
        "every shard is held by a live scheduler, and what is due goes out",
        "start a scheduler (foliot scheduler), or read its log; foliot doctor says who lives",
    ),
    Kind.WATCH_SILENT: Traits(
        _C,
        MINUTE,
        0,
        "nobody watches: whoever reads alerts sees how old the last look is",
        "the last look of the watch is more than a minute old; told by workers and by whoever lists alerts",
        "the watch looks again",
        "start a scheduler (foliot scheduler), which has the watch; until then no other alert can be trusted",
    ),
    Kind.EARLY: Traits(
        _C,
        0,
        0,
        "a run began before its time; this must never happen",
        "an attempt of the last day began before its fire time, by the store's clock",
        "no such attempt for a day",
        "keep the store as it is, compare the clocks (foliot doctor), and report it: this is a bug",
    ),
    Kind.MISSING: Traits(
        _C,
        30 * SECOND,
        0,
        "the rule says that a run should exist, and no row does",
        "a tick has no run, live or ended, and lies in no span of skipped ones; or nothing waits for the next tick",
        "the run exists; or a day has passed, for a tick of the past",
        "foliot schedules show NAME; a scheduler that starts again makes what is missing, or run it now: foliot "
        "schedules trigger NAME",
    ),
    Kind.FAULTED: Traits(
        _C,
        0,
        0,
        "a schedule was set aside because its rule or its settings cannot be read, or its tables end",
        "the schedule has a fault",
        "it has none any more",
        "read the fault, mend the declaration, and apply it again",
    ),
    Kind.STALE: Traits(
        _C,
        0,
        0,
        "too long without a useful result: no verified run, or where there is no check, no succeeded one",
        "`expect_every` has passed since the last useful completion, or `expect_within` since a tick",
        "a useful completion",
        "look at what became of its last runs: foliot runs list",
    ),
    Kind.AMBIGUOUS: Traits(
        _C,
        0,
        0,
        "a run may have acted on the world outside, and nothing proves whether it did",
        "a run of the schedule, or of the job, is `ambiguous`",
        "none of them is: each was verified, retried, rerun or reconciled",
        "foliot runs show RUN says what to find out, and what is safe",
    ),
    Kind.SETTLED: Traits(
        _W,
        0,
        0,
        "the effects of a run are settled, and a part of its work is not done",
        "a run of the schedule, or of the job, is `settled`",
        "none of them is: each was resumed, rerun or closed",
        "foliot runs resume RUN does the rest; foliot runs reconcile RUN --then close declares it not needed",
    ),
    Kind.DEAD: Traits(
        _W,
        0,
        0,
        "a run was given up",
        "a run of the schedule, or of the job, is `dead`",
        "none of them is: each was retried, replayed, rerun or reconciled",
        "foliot runs show RUN says why, and what is safe",
    ),
    Kind.UNVERIFIED: Traits(
        _W,
        0,
        0,
        "a run finished, and its check says no",
        "a run of the schedule, or of the job, is `unverified`",
        "none of them is: each was verified, retried, rerun or reconciled",
        "foliot runs show RUN says why, and what is safe",
    ),
    Kind.LATE: Traits(
        _W,
        MINUTE,
        30 * SECOND,
        "runs are due and have not begun",
        "a run waits longer after its time than `missed_after`, and for a minute more",
        "none of the schedule, or of the job, waits so long",
        "foliot queues and foliot workers list say who takes what; foliot runs list --state ready says what waits",
    ),
    Kind.NO_WORKER: Traits(
        _W,
        2 * MINUTE,
        0,
        "work waits that no live worker can take",
        "a schedule or a waiting run has a job, or a queue, that no live worker knows",
        "a worker lives that does",
        "start a worker whose code has the job, and that serves its queue",
    ),
    Kind.UNKNOWN_REQUIRED: Traits(
        _W,
        2 * MINUTE,
        0,
        "a schedule requires a schedule that does not exist",
        "`requires` names a schedule that the store does not have; not while the schedule is paused",
        "that schedule exists, or `requires` names another one or none",
        "declare the required schedule, or name another one: foliot schedules edit NAME --set requires=OTHER",
    ),
    Kind.STUCK: Traits(
        _W,
        0,
        30 * SECOND,
        "an attempt lives and does not move, or goes on past its timeout",
        "no progress for longer than `stall_after`; or a minute past `timeout`",
        "each moves, or has ended",
        "foliot runs show RUN says how far it is; foliot runs cancel RUN asks it to stop, --force ends it",
    ),
    Kind.FAILING: Traits(
        _W,
        0,
        0,
        "three failures in a row",
        "three attempts or runs of a schedule, or of a job, failed and none was of use in between",
        "one is of use",
        "read the last error; the cause lasts, and retrying alone will not mend it",
    ),
    Kind.DEAD_LETTERS: Traits(
        _W,
        0,
        10 * MINUTE,
        "dead letters grow",
        "ten more than an hour ago",
        "fewer than ten more than an hour ago",
        "foliot dead list groups them by cause; foliot dead replay sends them again, once that is removed",
    ),
    Kind.COMPLETIONS: Traits(
        _W,
        2 * MINUTE,
        2 * MINUTE,
        "completions fall while work is still triggered",
        "less than half as many runs ended well in ten minutes as before they fell (at least 20), and work waits",
        "half as many end again, or nothing waits, or fewer have been usual for an hour",
        "look at workers and destinations: foliot workers list, foliot limits list",
    ),
    Kind.SATURATED: Traits(
        _N,
        2 * MINUTE,
        MINUTE,
        "all slots are busy, and work waits",
        "no worker of the queue has a free slot, and runs wait in it",
        "a slot is free, or nothing waits",
        "start more workers, or give them more slots",
    ),
    Kind.QUEUE_AGE: Traits(
        _W,
        MINUTE,
        30 * SECOND,
        "a queue is not worked off",
        "the first run in it has waited for a worker for more than a minute",
        "the first one has waited less",
        "foliot queues says who serves it; start a worker that does",
    ),
    Kind.CHECK_OVERDUE: Traits(
        _W,
        5 * MINUTE,
        0,
        "a run's check is overdue",
        "a run waits for its check, and longer than its job may take",
        "every such check was made",
        "see whether a worker has the job's check: foliot workers list",
    ),
    Kind.OVERLAPPING: Traits(
        _W,
        5 * SECOND,
        5 * SECOND,
        "two runs of one schedule are at work at the same time, and its overlap does not allow that",
        "both are running; one that an operator released counts, too",
        "one of them has ended",
        "foliot runs list --state running; cancel the one that is not wanted",
    ),
    Kind.LOST: Traits(
        _N,
        0,
        10 * MINUTE,
        "workers vanished in the middle of their work",
        "an attempt was lost in the last minutes",
        "none was for ten minutes",
        "read the worker's log and the host's: killed, out of memory, cut off?",
    ),
    Kind.CLOCK: Traits(
        _W,
        10 * SECOND,
        30 * SECOND,
        "a host's clock is wrong: what runs there takes nothing new",
        "the whole interval of its measured offset lies outside 100 ms",
        "it lies inside again, or nothing runs there",
        "see to the host's time synchronisation (NTP)",
    ),
    Kind.RETRIES: Traits(
        _N,
        MINUTE,
        5 * MINUTE,
        "more and more runs are tried again",
        "at least 20 runs wait for a retry, and twice as many as ten minutes ago",
        "fewer than that",
        "foliot runs list --state retrying shows their errors",
    ),
    Kind.RATIO: Traits(
        _N,
        0,
        0,
        "a run takes nearly as long as the time to the next one",
        "the last two took more than four fifths of their interval",
        "one takes less",
        "make it faster or rarer, or choose what overlap does with it",
    ),
    Kind.DURATION: Traits(
        _N,
        0,
        0,
        "a run takes far longer, or far shorter, than those before it",
        "further from the median of the last runs than six times their usual spread, and than half of it",
        "one is as usual",
        "look at what it did: foliot runs show RUN",
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
    told = f"{age // 60} min" if age >= 120 else f"{age} s"
    return Finding(
        Kind.WATCH_SILENT,
        FLEET,
        f"the watch has not looked for {told}: no scheduler lives, or it is stuck",
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
