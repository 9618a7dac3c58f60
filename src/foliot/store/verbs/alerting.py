"""Facts for the watch, and the alerts that it makes of them; and both as methods."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from foliot.domain.alerts import (
    COUNTED,
    KINDS,
    REMINDED_AFTER,
    REPEATED_AFTER,
    Alert,
    AlertFilter,
    Finding,
    Kind,
    Severity,
    about,
    action_of,
    shortened,
)
from foliot.domain.conditions import WAITING
from foliot.domain.identity import tick_name
from foliot.domain.instant import DAY, SECOND, Duration, Instant, rfc3339
from foliot.domain.pauses import Pause, What, overlaid, pauses_about
from foliot.domain.run import Lane, RunView
from foliot.domain.schedule import Schedule
from foliot.domain.state import State
from foliot.domain.store.values import ALIVE, DEFAULT_QUEUE, QueueView
from foliot.domain.survey import Asked, Conclusion, Ended, Fleet, Memory, ParkedSubject, Posted, Survey, Tick, Tried
from foliot.errors import Conflict, UnknownName
from foliot.store.verbs import dispatching, pausing, reading, watching
from foliot.store.verbs.acts import ActVerbs
from foliot.store.verbs.rows import view_of, with_ready
from foliot.store.verbs.schedules import edits, schedule_of
from foliot.store.verbs.transaction import Row, Transaction, as_json, longs

_ALL = (1 << 63) - 1
_LEASE: Duration = 5 * SECOND
_MOST_COUNTED = 10_000
_MOST_AT_WORK = 5_000
_MOST_HANDED_OFF = 50_000
"""Where more than this waits, schedulers are at work, and nobody looks up what exactly was handed off."""
_MOST_EVENTS = 1_000
_PROMISING = frozenset({"rule", "expect_every", "expect_within"})
"""Fields of a schedule: after an edit of one of them, something else is expected from then on."""
_STORED = (
    *("number", "kind", "subject", "severity", "cause", "action", "opened_at", "seen_at", "count", "resolved_at"),
    *("snoozed_until", "job", "schedule", "run", "tenant", "owner", "runbook", "told_at", "told_resolved_at"),
    *("told_count", "repeated_at"),
)
"""The queries give them in this order."""


def _alert(row: Row) -> Alert:
    stored = dict(zip(_STORED, row, strict=True))
    return Alert(**stored | {"kind": Kind(stored["kind"]), "severity": Severity(stored["severity"])})


def _readable(rows: Collection[Row]) -> list[Alert]:
    """Kinds that only a newer release knows are left to it."""
    return [_alert(row) for row in rows if row[1] in KINDS]


# ---------------------------------------------------------------------------------------------------------------- facts


async def survey(tx: Transaction, asked: Asked, shards: int) -> Survey:
    memory = await recall(tx)
    queues = [QueueView(*row) for row in await tx.all("queues_briefly")]
    return Survey(
        now=tx.now,
        version=memory.version,
        alerts=_readable(await tx.all("open_alerts")),
        schedules=await _posted(tx, asked),
        due=await _due(tx, asked, sum(queue.waiting for queue in queues)),
        at_work=await _at_work(tx, asked),
        checking=await _among(tx, [row[0] for row in await tx.all("awaiting_checks", limit=asked.runs)]),
        parked=await _among(
            tx, [row[0] for row in await tx.all("parked_after", after=asked.parked_after, limit=asked.runs)]
        ),
        subjects=await _subjects(tx, asked.subjects),
        retrying=[Tried(*row) for row in await tx.all("tried_again", limit=asked.runs)],
        ended=[_ended(row) for row in await tx.all("ended_briefly", position=asked.ended_after, limit=asked.endings)],
        events=await reading.events_since(tx, asked.events_after, _MOST_EVENTS),
        fleet=await _fleet(tx, queues, shards),
        pace=await _pace(tx),
    )


async def _pace(tx: Transaction) -> Duration | None:
    rate = dispatching.rates(await tx.all("lane_gates")).get(Lane.CATCH_UP)
    return None if rate is None else round(SECOND / rate)


async def _posted(tx: Transaction, asked: Asked) -> list[Posted]:
    rows = await tx.all("schedule_page", after=asked.schedules_after, limit=asked.schedules)
    # As firing sees them: paused also where their job, queue or tenant is.
    paused = await pausing.known(tx)
    schedules = [overlaid(schedule_of(row), paused, DEFAULT_QUEUE, tx.now) for row in rows]
    ids = [one.id for one in schedules]
    if not ids:
        return []
    waiting = {row[0]: row[2] for row in await tx.all("waiting_ticks", ids=ids)}
    live = {row[0] for row in await tx.all("unended_ticks", ids=ids)}
    expecting = [
        one.id for one in schedules if one.policy.expect_every is not None or one.policy.expect_within is not None
    ]
    useful = {row[0]: (row[1], row[2]) for row in await tx.all("useful_ticks", ids=expecting)} if expecting else {}
    edited = await edits(tx) if expecting else {}
    unknown = await _unknown_required(tx, schedules)
    return [
        Posted(
            one,
            waiting.get(one.id),
            one.id in live,
            *useful.get(one.id, (None, None)),
            claims_paused=_claims_paused(one, paused, tx.now),
            edited_at=edited[one.id].at if one.id in edited and _PROMISING & {*edited[one.id].fields} else None,
            lacks_required=one.policy.requires in unknown,
        )
        for one in schedules
    ]


async def _unknown_required(tx: Transaction, schedules: Sequence[Schedule]) -> set[str]:
    """Of the schedules that these ones require, those that do not exist."""
    required = {one.policy.requires for one in schedules if one.policy.requires is not None}
    required -= {one.id for one in schedules}
    rows = await tx.all("schedules_by_id", ids=sorted(required)) if required else ()
    return {*required} - {row[0] for row in rows}


def _claims_paused(schedule: Schedule, paused: Sequence[Pause], now: Instant) -> bool:
    mine = pauses_about(schedule, paused, DEFAULT_QUEUE) if paused else ()
    return any(one.what is What.CLAIMS and one.in_force(now) for one in mine)


async def _due(tx: Transaction, asked: Asked, handed_off: int) -> list[RunView]:
    bounds = {"before": asked.due_before, "limit": asked.runs}
    found = {view.number: view for view in map(view_of, await tx.all("first_due", **bounds))}
    found |= {view.number: view for view in map(view_of, await tx.all("first_held", **bounds))}
    # A claim that is not written yet leaves its runs pending, but for the view of them.
    views = sorted((one for one in found.values() if one.state in WAITING), key=lambda one: (one.fire_at, one.number))
    return views if handed_off > _MOST_HANDED_OFF else await with_ready(tx, views)


async def _at_work(tx: Transaction, asked: Asked) -> list[RunView]:
    """Of a crowd, the oldest runs."""
    claims = await tx.all("claimed_before", before=asked.claimed_before)
    numbers = sorted(number for (stored,) in claims for number in tx.unpacked(stored))
    return [view for view in await _among(tx, numbers[:_MOST_AT_WORK]) if view.state is State.RUNNING]


async def _among(tx: Transaction, numbers: Sequence[int]) -> list[RunView]:
    return [view_of(row) for row in await tx.all("live_among", numbers=longs(numbers))] if numbers else []


async def _subjects(tx: Transaction, limit: int) -> list[ParkedSubject]:
    rows = await tx.all("parked_subjects", limit=limit)
    newest = {view.number: view for view in await _among(tx, [row[6] for row in rows])}
    quiet: defaultdict[tuple[int, str | None, str | None], list[tuple[bytes, int]]] = defaultdict(list)
    for state, schedule, job, options, size in await tx.all("parked_quiet") if rows else ():
        quiet[state, schedule, job].append((options, size))
    return [
        ParkedSubject(
            State(state), schedule, job, tenant, size, members, newest[number], quiet.get((state, schedule, job), ())
        )
        for state, schedule, job, tenant, size, members, number in rows
    ]


def _ended(row: Row) -> Ended:
    position, number, name, job, series, state, *times = row
    return Ended(int(position), number, name, job, series, State(state), *times)


async def _fleet(tx: Transaction, queues: list[QueueView], shards: int) -> Fleet:
    held = {row[0] for row in await tx.all("shard_rows") if row[0] >= 0 and not dispatching.is_free(tx, row, _LEASE)}
    return Fleet(
        instances=await watching.instances(tx),
        known_jobs=frozenset(row[0] for row in await tx.all("jobs_taken", since=tx.now - ALIVE)),
        unowned=shards - len(held),
        shards=shards,
        queues=queues,
        waiting_jobs=[row[0] for row in await tx.all("jobs_waited_for")],
        busy={row[0]: int(row[1]) for row in await tx.all("work_in_hand")},
        dead=await tx.value("count_dead", most=_MOST_COUNTED),
        early=await tx.value("early_since", since=tx.now - DAY),
    )


async def ticks_without_rows(tx: Transaction, ticks: Sequence[Tick]) -> list[Tick]:
    """Names first, which are an index of their own; only what has none is looked for in rows that stand for several."""
    names = [tick_name(*tick) for tick in ticks]
    taken = {row[0] for row in await tx.all("taken_names", names=names)} if names else set()
    left = [tick for tick, name in zip(ticks, names, strict=True) if name not in taken]
    if not left:
        return []
    asked = as_json([(tick.schedule, tick.nominal, tick.nominal) for tick in left])
    spans: dict[str, list[tuple[Instant, Instant]]] = {}
    for schedule, first, last in await tx.all("spans_over", asked=asked):
        spans.setdefault(schedule, []).append((first, last))
    return [
        tick for tick in left if not any(first <= tick.nominal <= last for first, last in spans.get(tick.schedule, ()))
    ]


async def durations_of(tx: Transaction, series: str, limit: int) -> list[Duration]:
    return [row[0] for row in await tx.all("durations_of", series=series, limit=limit)]


# --------------------------------------------------------------------------------------------------------------- alerts


async def recall(tx: Transaction) -> Memory:
    row = await tx.one("recall_watch")
    return Memory(0, None, None) if row is None else Memory(*row)


async def conclude(tx: Transaction, version: int, conclusion: Conclusion) -> bool:
    """1. Compare and set the memory: who looked meanwhile has concluded, too. 2. Open, change, resolve, each once."""
    if await tx.one("remember_watch", version=version, now=tx.now, memory=conclusion.memory) is None:
        return False
    await write(tx, conclusion)
    if conclusion.forget_before is not None:
        await tx.run("forget_alerts", before=conclusion.forget_before)
    return True


async def write(tx: Transaction, conclusion: Conclusion) -> bool:
    """Whether anything opened or was resolved by this."""
    news = False
    for finding in conclusion.opens:
        news |= await _open(tx, finding)
    for number, finding in conclusion.changes:
        told = {"cause": shortened(finding.cause), "action": action_of(finding), "count": finding.count}
        about_run = {"run": finding.run, "run_number": finding.number, "tenant": finding.tenant}
        await tx.run("change_alert", number=number, now=tx.now, **told, **about_run)
    for number in conclusion.resolves:
        row = await tx.one("resolve_alert", number=number, now=tx.now)
        if row is not None:
            kind, subject, opened_at, cause = row
            news = True
            words = f"alert {number}, {kind}, open since {rfc3339(opened_at // SECOND * SECOND)}: {cause}"
            await tx.event("alert_resolved", about(subject), words)
    return news


async def _open(tx: Transaction, finding: Finding) -> bool:
    cause = shortened(finding.cause)
    row = await tx.one(
        "open_alert",
        kind=str(finding.kind),
        subject=finding.subject,
        severity=str(KINDS[finding.kind].severity),
        cause=cause,
        action=action_of(finding),
        now=tx.now,
        count=finding.count,
        job=finding.job,
        schedule=finding.schedule,
        run=finding.run,
        tenant=finding.tenant,
        owner=finding.owner,
        runbook=finding.runbook,
        number=finding.number,
    )
    if row is None:
        return False  # somebody opened it first
    await tx.event("alert_opened", about(finding.subject), f"alert {row[0]}, {finding.kind}: {cause}")
    return True


async def alerts(tx: Transaction, wanted: AlertFilter, before: int | None, limit: int) -> list[Alert]:
    bounds = {"before": _ALL if before is None else before, "limit": limit}
    return _readable(await tx.all("listed_alerts", **wanted._asdict(), **bounds))


async def alert(tx: Transaction, number: int) -> Alert:
    found = _readable(await tx.all("alert_by_number", number=number))
    if not found:
        raise UnknownName(f"there is no alert {number}")
    return found[0]


async def snooze(tx: Transaction, number: int, until: Instant | None, actor: str, note: str) -> Alert:
    """`until`: None ends a snooze."""
    known = await alert(tx, number)
    if not known.is_open:
        raise Conflict(f"alert {number} is resolved and cannot be snoozed")
    if until is None and not known.snoozed(tx.now):
        raise Conflict(f"alert {number} is not snoozed")
    # A snooze that is ended early ends now, so that people are told.
    await tx.run("snooze_alert", number=number, until=tx.now if until is None else until)
    action = "unsnooze" if until is None else "snooze"
    told = note if until is None else f"until {rfc3339(until)}: {note}"
    await tx.audit(actor, action, f"alert:{number}", told)
    return await alert(tx, number)


async def untold(tx: Transaction, limit: int) -> list[Alert]:
    repeats = {"kinds": sorted(COUNTED), "doubling": REPEATED_AFTER, "remind": REMINDED_AFTER}
    return _readable(await tx.all("untold_alerts", now=tx.now, limit=limit, **repeats))


async def told(tx: Transaction, opened: Sequence[int], resolved: Sequence[int], again: Sequence[int]) -> int:
    new = 0
    if opened:
        new += await tx.run("told_opened", numbers=longs(opened), now=tx.now)
    if resolved:
        new += await tx.run("told_resolved", numbers=longs(resolved), now=tx.now)
    if again:
        new += await tx.run("told_again", numbers=longs(again), now=tx.now)
    return new


class AlertVerbs(ActVerbs):
    """The same as methods."""

    shard_count: int

    async def survey(self, asked: Asked) -> Survey:
        return await self.read(lambda tx: survey(tx, asked, self.shard_count))

    async def ticks_without_rows(self, ticks: Sequence[Tick]) -> list[Tick]:
        return await self.read(lambda tx: ticks_without_rows(tx, ticks))

    async def durations_of(self, series: str, limit: int) -> list[Duration]:
        return await self.read(lambda tx: durations_of(tx, series, limit))

    async def recall(self) -> Memory:
        return await self.read(recall)

    async def conclude(self, version: int, conclusion: Conclusion) -> bool:
        # A look that is lost in a crash is made again.
        quiet = not (conclusion.opens or conclusion.resolves)
        return await self.write(lambda tx: conclude(tx, version, conclusion), lazily=quiet)

    async def open_alert(self, conclusion: Conclusion) -> bool:
        return await self.write(lambda tx: write(tx, conclusion))

    async def alerts(self, wanted: AlertFilter, *, before: int | None = None, limit: int = 100) -> list[Alert]:
        return await self.read(lambda tx: alerts(tx, wanted, before, limit))

    async def alert(self, number: int) -> Alert:
        return await self.read(lambda tx: alert(tx, number))

    async def snooze_alert(self, number: int, *, until: Instant, actor: str, note: str) -> Alert:
        return await self.write(lambda tx: snooze(tx, number, until, actor, note))

    async def unsnooze_alert(self, number: int, *, actor: str, note: str) -> Alert:
        return await self.write(lambda tx: snooze(tx, number, None, actor, note))

    async def untold_alerts(self, limit: int) -> list[Alert]:
        return await self.read(lambda tx: untold(tx, limit))

    async def alerts_told(self, opened: Sequence[int], resolved: Sequence[int], again: Sequence[int] = ()) -> int:
        return await self.write(lambda tx: told(tx, opened, resolved, again))
