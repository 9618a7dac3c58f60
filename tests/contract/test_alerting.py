"""Alerts in the store: opened once, resolved once, told once; and the facts that the watch looks at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foliot.clock import ManualClock
from foliot.domain.alerts import FLEET, REMINDED_AFTER, REPEATED_AFTER, AlertFilter, Finding, Kind, Severity
from foliot.domain.alerts import Stage as Stage_
from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND
from foliot.domain.policy import Policy
from foliot.domain.schedule import TickDecision, TickFacts
from foliot.domain.state import Reason, State
from foliot.domain.store import JobCard, Store
from foliot.domain.survey import Asked, Conclusion, Tick
from foliot.errors import Conflict, UnknownName
from foliot.timing import every
from foliot.watch.alarm import Alarm
from foliot.watch.runs import parked
from tests.contract.stage import START, Stage, declared, fires_hourly

MISSING = Finding(Kind.MISSING, "schedule:books", "books: no pending run", schedule="books", job="job", owner="ana")
EVERYTHING = AlertFilter(everything=True)


def skips_three_hours(fact: TickFacts) -> TickDecision:
    """One row for all of them."""
    until = fact.nominal + 2 * HOUR
    skipped = {"reason": Reason.MISFIRE, "span_until": until, "span_count": 3, "evaluated_through": until}
    return TickDecision(fact.number, "skip", **skipped)  # type: ignore[arg-type]


async def opened(store: Store, *findings: Finding) -> list[int]:
    version = (await store.recall()).version
    assert await store.conclude(version, Conclusion(b"{}", findings))
    return [alert.number for alert in reversed(await store.alerts(AlertFilter()))]


async def resolve(store: Store, *numbers: int) -> None:
    assert await store.conclude((await store.recall()).version, Conclusion(b"{}", resolves=numbers))


async def kinds_of_events(store: Store) -> list[tuple[str, str]]:
    return [(event.kind, event.subject) for event in await store.events_since(0, 100) if "alert" in event.kind]


async def test_an_alert_opens_once_and_resolves_once(stage: Stage, clock: ManualClock) -> None:
    store = stage.store
    [number] = await opened(store, MISSING)
    assert await opened(store, MISSING) == [number]
    clock.advance(MINUTE)
    await resolve(store, number)
    await resolve(store, number)
    alert = await store.alert(number)
    assert (alert.kind, alert.severity, alert.owner) == (Kind.MISSING, Severity.CRITICAL, "ana")
    assert (alert.opened_at, alert.resolved_at) == (START, START + MINUTE)
    assert await store.alerts(AlertFilter()) == []
    assert [one.number for one in await store.alerts(EVERYTHING)] == [number]
    assert await kinds_of_events(store) == [("alert_opened", "books"), ("alert_resolved", "books")]
    [again] = await opened(store, MISSING)
    assert again != number


async def test_of_two_that_look_at_the_same_time_one_concludes(stage: Stage) -> None:
    store = stage.store
    version = (await store.recall()).version
    assert await store.conclude(version, Conclusion(b'{"a":1}', [MISSING]))
    other = Finding(Kind.LATE, "schedule:books", "late")
    assert not await store.conclude(version, Conclusion(b'{"b":1}', [other]))
    memory = await store.recall()
    assert (memory.data, memory.looked_at) == (b'{"a":1}', START)
    assert [one.kind for one in await store.alerts(AlertFilter())] == [Kind.MISSING]


async def test_whoever_is_not_the_watch_opens_alerts_without_having_looked(stage: Stage) -> None:
    assert await stage.store.open_alert(Conclusion(b"", [Finding(Kind.WATCH_SILENT, FLEET, "silent")]))
    assert not await stage.store.open_alert(Conclusion(b"", [Finding(Kind.WATCH_SILENT, FLEET, "silent")]))
    assert (await stage.store.recall()).looked_at is None


async def test_what_is_known_of_an_open_alert_is_changed_and_of_a_resolved_one_is_not(stage: Stage) -> None:
    store = stage.store
    [number] = await opened(store, MISSING)
    worse = replace(MISSING, cause="books: two are missing", count=2)
    await store.conclude((await store.recall()).version, Conclusion(b"{}", changes=[(number, worse)]))
    alert = await store.alert(number)
    assert (alert.cause, alert.count) == ("books: two are missing", 2)
    await resolve(store, number)
    await store.conclude((await store.recall()).version, Conclusion(b"{}", changes=[(number, MISSING)]))
    assert (await store.alert(number)).count == 2


async def test_a_snoozed_alert_is_told_when_the_snooze_ends(stage: Stage, clock: ManualClock) -> None:
    store = stage.store
    [number] = await opened(store, MISSING)
    assert [one.number for one in await store.untold_alerts(10)] == [number]
    await store.snooze_alert(number, until=START + HOUR, actor="ana", note="known")
    assert await store.untold_alerts(10) == []
    clock.advance(HOUR)
    assert [one.number for one in await store.untold_alerts(10)] == [number]
    await store.snooze_alert(number, until=START + 3 * HOUR, actor="ana", note="known")
    assert not (await store.unsnooze_alert(number, actor="bo", note="look again")).snoozed(START + HOUR)
    with pytest.raises(Conflict):
        await store.unsnooze_alert(number, actor="bo", note="again")
    done = [(row.actor, row.action) for row in await store.audit_of(f"alert:{number}")]
    assert done == [("ana", "snooze"), ("ana", "snooze"), ("bo", "unsnooze")]
    await resolve(store, number)
    with pytest.raises(Conflict):
        await store.snooze_alert(number, until=START + 9 * HOUR, actor="ana", note="late")
    with pytest.raises(UnknownName):
        await store.snooze_alert(99_999, until=START + 9 * HOUR, actor="ana", note="which?")


async def test_what_was_told_is_not_told_again_and_what_nobody_heard_of_is_not_said_to_be_over(stage: Stage) -> None:
    store = stage.store
    heard, unheard = await opened(store, MISSING, replace(MISSING, subject="schedule:other"))
    assert await store.alerts_told([heard], []) == 1
    assert await store.alerts_told([heard], []) == 0
    assert [one.number for one in await store.untold_alerts(10)] == [unheard]
    await resolve(store, heard, unheard)
    assert [one.number for one in await store.untold_alerts(10)] == [heard]
    assert await store.alerts_told([], [heard]) == 1
    assert await store.untold_alerts(10) == []


DEAD = Finding(Kind.DEAD, "schedule:feed", "feed: dead", schedule="feed", run="feed@1", number=1)


async def counted(store: Store, number: int, count: int, finding: Finding = DEAD) -> None:
    changed = replace(finding, count=count, run=f"feed@{count}", number=count)
    await store.conclude((await store.recall()).version, Conclusion(b"{}", changes=[(number, changed)]))


async def due(store: Store) -> list[tuple[int, Stage_]]:
    return [(one.number, one.stage) for one in await store.untold_alerts(10)]


async def test_a_message_is_repeated_when_the_count_has_doubled_and_no_more_often_than_stated(
    stage: Stage, clock: ManualClock
) -> None:
    store = stage.store
    [number] = await opened(store, DEAD)
    assert await due(store) == [(number, Stage_.OPENED)]
    await store.alerts_told([number], [])
    await counted(store, number, 3)
    clock.advance(REPEATED_AFTER - 1)
    assert await due(store) == [], "too soon"
    clock.advance(1)
    assert await due(store) == [(number, Stage_.AGAIN)]
    assert await store.alerts_told([], [], [number]) == 1
    alert = await store.alert(number)
    assert (alert.told_count, alert.repeated_at, alert.run) == (3, clock.now(), "feed@3")
    await counted(store, number, 5)
    clock.advance(REPEATED_AFTER)
    assert await due(store) == [], "5 is not twice 3"
    await counted(store, number, 2)
    await counted(store, number, 4)
    assert await due(store) == [(number, Stage_.AGAIN)], "twice the lowest count since the message"
    await resolve(store, number)
    assert await due(store) == [(number, Stage_.RESOLVED)]
    assert await store.alerts_told([], [], [number]) == 0, "a resolved alert has no repetition"


async def test_people_are_reminded_once_a_day_of_all_but_notices(stage: Stage, clock: ManualClock) -> None:
    store = stage.store
    late, notice = await opened(store, replace(MISSING, kind=Kind.FAILING), replace(MISSING, kind=Kind.RATIO))
    await store.alerts_told([late, notice], [])
    await counted(store, late, 500, replace(MISSING, kind=Kind.FAILING))
    clock.advance(REMINDED_AFTER - 1)
    assert await due(store) == [], "failures in a row are no number of runs"
    clock.advance(1)
    assert await due(store) == [(late, Stage_.AGAIN)]
    await store.alerts_told([], [], [late])
    assert await due(store) == []


async def test_people_are_told_again_when_a_snooze_ends_by_itself_or_early(stage: Stage, clock: ManualClock) -> None:
    store = stage.store
    [number] = await opened(store, MISSING)
    await store.alerts_told([number], [])
    clock.advance(SECOND)
    await store.snooze_alert(number, until=clock.now() + HOUR, actor="ana", note="known")
    clock.advance(HOUR - 1)
    assert await due(store) == []
    clock.advance(1)
    assert await due(store) == [(number, Stage_.AGAIN)]
    clock.advance(SECOND)
    await store.alerts_told([], [], [number])
    await store.snooze_alert(number, until=clock.now() + HOUR, actor="ana", note="known")
    clock.advance(SECOND)
    await store.unsnooze_alert(number, actor="bo", note="look again")
    assert await due(store) == [(number, Stage_.AGAIN)]


async def test_alerts_of_single_runs_of_a_release_before_are_replaced_without_a_message(
    stage: Stage, clock: ManualClock
) -> None:
    store = stage.store
    claimed = await stage.running("mail:7")
    await stage.finish(stage.died(claimed))
    [old] = await opened(store, Finding(Kind.DEAD, f"run:{claimed.id}", "dead", job="job", run=claimed.id))
    await store.alerts_told([old], [])
    await Alarm(store, clock).run_once()
    [dead] = [one for one in await store.alerts(AlertFilter()) if one.kind is Kind.DEAD]
    assert (dead.subject, (await store.alert(old)).resolved_at) == ("job:job", clock.now())
    assert (old, Stage_.RESOLVED) not in await due(store)
    assert (dead.number, Stage_.OPENED) in await due(store)


async def test_parked_runs_are_counted_by_schedule_with_its_members_or_by_job(stage: Stage) -> None:
    store = stage.store
    await store.change_members("tenants", add=["acme", "globex"], actor="ann", note="new")
    await stage.apply(declared("spread", START, rule=every("1h").encode(), over="tenants"))
    while (fired := await stage.fire_by_policy()).created or fired.handed_off:
        pass
    members = await stage.claim()
    await stage.finish(*map(stage.died, members))
    quiet = b'{"no_alerts":["dead"]}'
    for more in ({"tenant": "acme"}, {"tenant": "acme"}, {"tenant": "acme", "options": quiet}):
        await stage.finish(stage.died(await stage.running(**more)))
    doubt = await stage.ambiguous()
    subjects = (await store.survey(Asked())).subjects
    assert [one[:6] for one in subjects] == [
        (State.AMBIGUOUS, None, "job", None, 1, 0),
        (State.DEAD, None, "job", "acme", 3, 0),
        (State.DEAD, "spread", None, None, 2, 2),
    ]
    assert subjects[0].newest.id == doubt.id
    assert subjects[1].quiet == [(quiet, 1)]
    findings = {finding.key: finding for finding in parked(subjects, {}).findings}
    assert {key: finding.count for key, finding in findings.items()} == {
        ("ambiguous", "job:job"): 1,
        ("dead", "job:job"): 2,
        ("dead", "schedule:spread"): 2,
    }
    assert "spread: 2 runs of 2 members are dead" in findings["dead", "schedule:spread"].cause
    assert findings["dead", "job:job"].tenant == "acme"
    silent = JobCard("job", b'{"no_alerts":["dead"]}', "default")
    assert [finding.kind for finding in parked(subjects, {"job": silent}).findings] == [Kind.AMBIGUOUS]
    assert [one.size for one in (await store.survey(Asked(subjects=1))).subjects] == [1]


async def test_of_what_nobody_was_told_of_the_most_severe_comes_first(stage: Stage) -> None:
    store = stage.store
    await opened(store, *(Finding(kind, "job:mail", "x", job="mail") for kind in (Kind.LOST, Kind.LATE)), MISSING)
    assert [one.kind for one in await store.untold_alerts(2)] == [Kind.MISSING, Kind.LATE]


async def test_alerts_are_listed_by_kind_subject_and_page_and_forgotten_in_the_end(
    stage: Stage, clock: ManualClock
) -> None:
    store = stage.store
    other = Finding(Kind.LATE, "job:mail", "late", job="mail", tenant="acme")
    first, second = await opened(store, MISSING, other)
    assert [one.number for one in await store.alerts(AlertFilter(kind="late"))] == [second]
    assert [one.number for one in await store.alerts(AlertFilter(subject="schedule:books"))] == [first]
    assert [one.number for one in await store.alerts(AlertFilter(tenant="acme"))] == [second]
    assert [one.number for one in await store.alerts(AlertFilter(), before=second)] == [first]
    await resolve(store, first)
    clock.advance(DAY)
    memory = await store.recall()
    await store.conclude(memory.version, Conclusion(b"{}", forget_before=START + HOUR))
    assert [one.number for one in await store.alerts(EVERYTHING)] == [second]


async def test_a_survey_tells_of_schedules_runs_endings_and_who_is_there(stage: Stage, clock: ManualClock) -> None:
    store = stage.store
    policy = Policy().merged({"expect_every": HOUR})
    await store.apply([declared("books", START + MINUTE, policy=policy)], prune=False, actor="code")
    before = await store.survey(Asked(due_before=START))
    [posted] = before.schedules
    assert (posted.schedule.id, posted.waiting, posted.is_live) == ("books", START + MINUTE, True)
    assert (before.due, before.at_work, before.fleet.unowned, before.fleet.shards) == ([], [], 1, 1)
    clock.set(START + MINUTE)
    await stage.fire(fires_hourly)
    waiting = await store.survey(Asked(due_before=clock.now() + 1))
    assert [view.state for view in waiting.due] == [State.READY]
    assert [(queue.queue, queue.waiting) for queue in waiting.fleet.queues] == [("default", 1)]
    [claimed] = await stage.claim(1)
    just_now = await store.survey(Asked(claimed_before=clock.now()))
    assert just_now.at_work == []
    busy = await store.survey(Asked(due_before=clock.now() + 1, claimed_before=clock.now() + 1))
    assert ([view.id for view in busy.at_work], busy.due) == ([claimed.id], [])
    assert sum(busy.fleet.busy.values()) == 1
    clock.advance(5 * SECOND)
    await stage.finish(stage.succeeded(claimed, started_at=START + MINUTE))
    after = await store.survey(Asked(ended_after=0))
    assert [(one.series, one.state) for one in after.ended] == [("books", State.SUCCEEDED)]
    assert after.schedules[0].useful_tick == START + MINUTE
    assert await store.durations_of("books", 5) == [5 * SECOND]


async def test_ticks_without_rows_are_told_apart_from_those_in_spans(stage: Stage, clock: ManualClock) -> None:
    store = stage.store
    await stage.apply(declared("books", START + HOUR))
    ticks = [Tick("books", START + hour * HOUR) for hour in (1, 2, 4)] + [Tick("other", START + HOUR)]
    assert await store.ticks_without_rows(ticks) == ticks[1:]
    clock.set(START + 3 * HOUR)
    await stage.fire(skips_three_hours)
    assert await store.ticks_without_rows(ticks) == ticks[2:]


async def test_the_watch_looks_and_resolves_what_a_person_settled(stage: Stage, clock: ManualClock) -> None:
    """The whole of it, on the engine's own rows."""

    store = stage.store
    alarm = Alarm(store, clock)
    claimed = await stage.running("mail:7")
    await stage.finish(stage.died(claimed))
    await alarm.run_once()
    [dead] = [one for one in await store.alerts(AlertFilter()) if one.kind is Kind.DEAD]
    assert (dead.run, dead.job) == (claimed.id, "job")
    await store.reconcile(claimed.id, settled=[], actor="ana", evidence="sent by hand")
    clock.advance(5 * SECOND)
    await alarm.run_once()
    assert (await store.alert(dead.number)).resolved_at == clock.now()
