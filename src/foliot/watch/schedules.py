"""What schedules promise, compared with what is there: missing runs, faults, stale results. Decisions; `now` is given.

Every schedule is looked at in its turn, a page at a look. The rule is asked again what it says, and that is compared
with rows: whoever made those may be the one who is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from foliot.domain.alerts import Finding, Kind, Seen
from foliot.domain.instant import DAY, MINUTE, Duration, Instant, rfc3339, spell
from foliot.domain.policy import AtCutoff, Policy
from foliot.domain.rule import Rule
from foliot.domain.schedule import Schedule
from foliot.domain.survey import Posted, Tick
from foliot.errors import InvalidRule
from foliot.timing import decode
from foliot.timing.tables import not_again, stamp_of

MOST_TICKS = 200
"""Ticks of one schedule that are compared at one look; the next one goes on behind them."""
RECHECKED = 50
"""How many of its newest ticks are compared again, for a schedule with an expectation."""
RECHECK_EVERY: Duration = MINUTE
REMEMBERED: Duration = DAY
"""For so long a tick that has no row is told of, unless it gets one."""

_KINDS = (Kind.MISSING, Kind.FAULTED, Kind.STALE, Kind.UNKNOWN_REQUIRED)


@dataclass(slots=True)
class _Compared:
    """How far one schedule's ticks were compared with rows."""

    revision: int
    tables: str | None
    through: Instant
    promised: tuple[str, Duration | None, Duration | None]
    """The rule, and what is expected of it."""
    gaps: list[Instant] = field(default_factory=list)
    """Ticks without a row."""
    asked: list[Instant] = field(default_factory=list)
    """What was asked for at this look."""
    since: Instant = 0
    """Where the comparison began."""
    rechecked_at: Instant = 0
    begins: Instant = 0
    """Nothing is expected of what lies before: something else was promised then, or claims were paused."""
    is_revised: bool = False
    """Something else is promised since the last look."""


@dataclass(slots=True)
class Comparison:
    """What is known of all schedules, for as long as the process lives: one that starts begins where they stand."""

    compared: dict[str, _Compared] = field(default_factory=dict)

    def ticks(self, posted: Iterable[Posted], now: Instant) -> list[Tick]:
        """Ticks that should have rows by now: those since the last look, those that the pending one lies behind, those
        that had none, and once a minute those within the time in which a result is expected."""
        asked: list[Tick] = []
        for one in posted:
            known = self._known(one.schedule)
            again: list[Instant] = []
            try:
                known.asked = _expected(one, known)
                if not 0 <= now - known.rechecked_at < RECHECK_EVERY:
                    again, known.rechecked_at = _compared_before(one, known, now), now
            except InvalidRule:
                known.asked = []  # the scheduler sets it aside when it comes to it, and that is told as its fault
            asked += (Tick(one.schedule.id, tick) for tick in {*known.gaps, *known.asked, *again})
        return asked

    def note(self, posted: Iterable[Posted], without: Sequence[Tick], now: Instant) -> None:
        """`without`: of the ticks that were asked for, those that have no row."""
        missing: dict[str, list[Instant]] = {}
        for tick in without:
            missing.setdefault(tick.schedule, []).append(tick.nominal)
        for one in posted:
            known = self._known(one.schedule)
            known.gaps = sorted(tick for tick in set(missing.get(one.schedule.id, ())) if tick > now - REMEMBERED)
            compared = known.asked[-1] if len(known.asked) == MOST_TICKS else _through(one)
            known.through = max(known.through, min(_through(one), compared))
            if one.claims_paused or known.is_revised:
                known.begins, known.is_revised = now, False

    def judged(self, posted: Iterable[Posted], now: Instant) -> Seen:
        """What is found of these schedules, and what is not any more."""
        findings: list[Finding] = []
        for one in posted:
            known = self._known(one.schedule)
            findings += judge(one, known.gaps, now, known.begins)
        found = {finding.key for finding in findings}
        looked_at = {(str(kind), f"schedule:{one.schedule.id}") for one in posted for kind in _KINDS}
        return Seen(findings, cured=looked_at - found)

    def forget(self, ids: frozenset[str]) -> None:
        """Those that are not there any more, after all were looked at."""
        self.compared = {name: one for name, one in self.compared.items() if name in ids}

    def _known(self, schedule: Schedule) -> _Compared:
        known = self.compared.get(schedule.id)
        # Another rule, or other tables, promised otherwise before: what is behind the cursor now is none of ours.
        if known is None or (known.revision, known.tables) != (schedule.revision, schedule.tables):
            promised = schedule.rule, schedule.policy.expect_every, schedule.policy.expect_within
            through = schedule.made_at if schedule.evaluated_through is None else schedule.evaluated_through
            before = known
            known = self.compared[schedule.id] = _Compared(
                schedule.revision, schedule.tables, through, promised, since=through
            )
            if before is not None:
                known.begins, known.is_revised = before.begins, before.promised != promised
        return known


def _through(one: Posted) -> Instant:
    """All ticks up to here have been decided upon."""
    schedule = one.schedule
    return schedule.made_at if schedule.evaluated_through is None else schedule.evaluated_through


def _expected(one: Posted, known: _Compared) -> list[Instant]:
    """Ticks that the rule says, and that should have rows: all that were decided upon, and those before the one that
    waits."""
    schedule = one.schedule
    rule = _rule(schedule)
    if rule is None or rule.delay is not None or schedule.fault is not None or not _is_current(schedule, rule):
        return []
    end = max(_through(one), known.through if one.waiting is None else one.waiting - 1)
    found: list[Instant] = []
    tick = rule.next(known.through)
    while tick is not None and tick <= end and len(found) < MOST_TICKS:
        if _counts(rule, tick, schedule):
            found.append(tick)
        tick = rule.next(tick)
    return found


def _compared_before(one: Posted, known: _Compared, now: Instant) -> list[Instant]:
    """The newest ticks within the time in which a result is expected, which had rows when they were compared."""
    policy, rule = one.schedule.policy, _rule(one.schedule)
    expected = max(policy.expect_within or 0, policy.expect_every or 0)
    if not expected or rule is None or rule.delay is not None or one.schedule.fault is not None:
        return []
    begin = max(known.since, now - min(expected, REMEMBERED))
    found: list[Instant] = []
    tick = rule.previous(known.through + 1)
    while tick is not None and tick > begin and len(found) < RECHECKED:
        found.append(tick)
        tick = rule.previous(tick)
    return found


def _counts(rule: Rule, tick: Instant, schedule: Schedule) -> bool:
    """A wall time that ran already does not run again, also where a zone has it twice by now."""
    if tick <= (schedule.evaluated_through or 0) or schedule.last_wall is None:
        return True
    wall = rule.wall(tick)
    return wall is None or wall > schedule.last_wall


def _is_current(schedule: Schedule, rule: Rule) -> bool:
    """Whether the pending tick was computed with the tables that we have; else it is about to move."""
    return schedule.tables is None or schedule.tables == stamp_of(rule)


@lru_cache(maxsize=20_000)
def _decoded(rule: str, name: str) -> Rule | None:
    try:
        return decode(rule).named(name)
    except (InvalidRule, ValueError):
        return None


def _rule(schedule: Schedule) -> Rule | None:
    return _decoded(schedule.rule, schedule.id)


# ------------------------------------------------------------------------------------------------------------ judgement


def judge(one: Posted, gaps: Sequence[Instant], now: Instant, begins: Instant = 0) -> list[Finding]:
    """What is wrong with one schedule. `begins`: no result is expected of what lies before."""
    schedule = one.schedule
    found: list[Finding] = []
    if schedule.fault is not None:
        found.append(_finding(Kind.FAULTED, schedule, f"it was set aside: {schedule.fault}"))
    elif (missing := _missing(one, gaps)) is not None:
        found.append(missing)
    if not (schedule.paused(now) or one.claims_paused):
        if (stale := _stale(one, now, begins)) is not None:
            found.append(stale)
        if one.lacks_required:
            found.append(_unknown_required(schedule))
    return [finding for finding in found if finding.kind not in schedule.policy.no_alerts]


def _missing(one: Posted, gaps: Sequence[Instant]) -> Finding | None:
    schedule = one.schedule
    if gaps:
        others = f" and {len(gaps) - 1:,} more" if len(gaps) > 1 else ""
        return _finding(
            Kind.MISSING,
            schedule,
            f"its tick {rfc3339(gaps[0])}{others} has no run and no recorded reason",
            count=len(gaps),
            action=f"foliot backfill start {schedule.id} creates its run",
        )
    rule = _rule(schedule)
    if rule is None or one.waiting is not None:
        return None
    if rule.delay is not None:
        if one.is_live:
            return None
        cause = "it has a fixed delay, and no run of it is active or pending"
    else:
        try:
            tick = not_again(rule, rule.next(_through(one)), schedule.last_wall)
        except InvalidRule:
            return None
        if tick is None:
            return None  # its rule has come to its end
        cause = f"no pending run for its next tick {rfc3339(tick)}"
    return _finding(
        Kind.MISSING,
        schedule,
        cause,
        action=(
            f"restart a scheduler, or use foliot scheduler --apply: it creates the pending run of {schedule.id} again"
        ),
    )


def _stale(one: Posted, now: Instant, begins: Instant) -> Finding | None:
    """Too long without a useful result. What fell into a pause, or was never promised, is not expected."""
    schedule, policy = one.schedule, one.schedule.policy
    begins = max(begins, schedule.made_at, schedule.skip_through or 0, one.edited_at or 0)
    if policy.expect_every is not None:
        since = max(one.useful_at or 0, begins)
        if now - since > policy.expect_every:
            return _finding(Kind.STALE, schedule, _stale_words(one.useful_at, policy.expect_every), since=since)
    rule = _rule(schedule)
    if policy.expect_within is None or rule is None or rule.delay is not None:
        return None
    try:
        tick = rule.previous(now - policy.expect_within + 1)
    except InvalidRule:
        return None
    if tick is None or tick <= begins or (one.useful_tick or 0) >= tick:
        return None
    cause = f"no useful result for its tick {rfc3339(tick)} within {spell(policy.expect_within)}"
    return _finding(Kind.STALE, schedule, cause, since=tick + policy.expect_within)


def _stale_words(useful_at: Instant | None, expected: Duration) -> str:
    last = "there was none yet" if useful_at is None else f"the last one was at {_second(useful_at)}"
    return f"no useful result for longer than {spell(expected)}; {last}"


def _unknown_required(schedule: Schedule) -> Finding:
    policy = schedule.policy
    then = "is skipped" if policy.at_cutoff is AtCutoff.SKIP else "runs"
    return _finding(
        Kind.UNKNOWN_REQUIRED,
        schedule,
        f"it requires {policy.requires}, which does not exist: each tick waits {spell(policy.cutoff)} and then {then}",
        action=f"declare schedule {policy.requires}, or name another one: foliot schedules edit {schedule.id} "
        "--set requires=OTHER",
    )


def stale_jobs(
    policies: Mapping[str, Policy], useful: Mapping[str, Instant], scheduled: frozenset[str], now: Instant
) -> Seen:
    """Jobs without a schedule, of which a useful result is expected every so often. `useful`: when there was one, or
    since when it is expected."""
    findings = []
    looked_at = set()
    for job, policy in policies.items():
        if policy.expect_every is None or job in scheduled or Kind.STALE in policy.no_alerts:
            continue
        looked_at.add((str(Kind.STALE), f"job:{job}"))
        since = useful.get(job, now)
        if now - since > policy.expect_every:
            cause = (
                f"no useful result of {job} for longer than {spell(policy.expect_every)}; none since {_second(since)}"
            )
            findings.append(Finding(Kind.STALE, f"job:{job}", cause, since=since, job=job))
    return Seen(findings, cured=looked_at - {finding.key for finding in findings})


def _finding(
    kind: Kind,
    schedule: Schedule,
    told: str,
    *,
    since: Instant | None = None,
    count: int = 1,
    action: str | None = None,
) -> Finding:
    return Finding(
        kind,
        f"schedule:{schedule.id}",
        f"{schedule.id}: {told}",
        since=since,
        count=count,
        action=action,
        job=schedule.job,
        schedule=schedule.id,
        tenant=schedule.tenant,
        owner=schedule.owner,
        runbook=schedule.runbook,
    )


def _second(moment: Instant) -> str:
    return rfc3339(moment // 1_000_000 * 1_000_000)
