"""What must hold for every decision, whatever the rule, the policy, the lateness and the jitter."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as some

from foliot.dispatch.admission import decide_tick
from foliot.domain.instant import DAY, HOUR, LAST, MINUTE, SECOND, Instant, to_datetime
from foliot.domain.policy import CatchUp, Overlap, Policy
from foliot.domain.rule import Rule
from foliot.domain.run import Lane, Origin
from foliot.domain.schedule import Schedule, TickDecision, TickFacts
from foliot.timing import after, at, cron, decode, every
from tests.dispatch.schedules import a_schedule, a_tick
from tests.tiers import by_tier

NOON: Instant = 1_800_000_000 * SECOND

lengths = some.sampled_from([0, 1, SECOND, 59 * SECOND, MINUTE, 7 * MINUTE, HOUR, 5 * HOUR, DAY])
rules = some.sampled_from(
    [
        every("1m"),
        every("17m"),
        every("1h", start=to_datetime(NOON)),
        every("6h"),
        at(to_datetime(NOON + HOUR)),
        cron("*/5 * * * *"),
        cron("0 */3 * * *"),
        cron("30 12 * * 1-5"),
        cron("0 0 1 1 *"),
    ]
)
policies = some.builds(
    Policy,
    overlap=some.sampled_from(Overlap),
    catch_up=some.sampled_from(CatchUp),
    catch_up_window=some.none() | lengths,
    missed_after=lengths,
    useful_until=some.none() | lengths,
    jitter=lengths,
)
moments = some.integers(NOON - DAY, NOON + 2 * DAY)
lateness = some.integers(0, 2 * DAY) | some.integers(0, 3 * MINUTE) | lengths


def first_tick(rule: Rule, moment: Instant) -> Instant:
    nominal = rule.next(moment)
    assume(nominal is not None)
    assert nominal is not None
    return nominal


def accounted(facts: TickFacts, decision: TickDecision) -> list[Instant]:
    """The nominal times that a decision speaks for, each as often as it does."""
    assert facts.schedule is not None
    rule = decode(facts.schedule.rule)
    if decision.verdict == "hold" and decision.evaluated_through is None:
        return []
    ticks = [facts.nominal]
    assert decision.span_until is None or decision.span_until > facts.nominal
    while ticks[-1] < (decision.span_until or facts.nominal):
        tick = rule.next(ticks[-1])
        assert tick is not None
        ticks.append(tick)
    assert len(ticks) == decision.span_count
    if decision.instead is not None:
        ticks.append(decision.instead.nominal)
    return ticks


def fire_now(schedule: Schedule, nominal: Instant, now: Instant, **facts: Any) -> TickFacts:
    return a_tick(schedule, nominal, fire_at=now, **facts)


@settings(max_examples=by_tier(100, 500, 5_000))
@given(rules, policies, moments, lateness, some.none() | some.just("report@other"), some.booleans())
def test_every_tick_before_the_successor_is_accounted_for_exactly_once(
    rule: Rule, policy: Policy, moment: Instant, late: int, occupied_by: str | None, paused: bool
) -> None:
    nominal = first_tick(rule, moment)
    schedule = a_schedule(rule, policy, paused_at=0 if paused else None)
    facts = fire_now(schedule, nominal, nominal + late, occupied_by=occupied_by)
    decision = decide_tick(facts, nominal + late)

    ticks = accounted(facts, decision)
    assert decision.fault is None
    if not ticks:
        assert decision.successor is None
        assert occupied_by is not None or paused
        return
    assert ticks == sorted(set(ticks))
    assert all(rule.next(one) == other for one, other in pairwise(ticks))
    assert decision.evaluated_through == ticks[-1]
    successor = None if decision.successor is None else decision.successor.nominal
    assert successor == rule.next(ticks[-1])


@settings(max_examples=by_tier(100, 500, 5_000))
@given(rules, policies, moments, lateness, some.none() | some.just("report@other"))
def test_nothing_is_made_that_would_fire_early_and_nothing_useless_is_fired(
    rule: Rule, policy: Policy, moment: Instant, late: int, occupied_by: str | None
) -> None:
    nominal = first_tick(rule, moment)
    now = nominal + late
    facts = fire_now(a_schedule(rule, policy), nominal, now, occupied_by=occupied_by)
    decision = decide_tick(facts, now)
    if decision.instead is not None:
        assert decision.instead.nominal <= decision.instead.fire_at <= now
        assert decision.instead.useful_until is None or decision.instead.useful_until >= now
    if decision.successor is not None:
        assert decision.successor.fire_at >= decision.successor.nominal
    fires = decision.verdict == "fire" or decision.instead is not None
    if decision.verdict == "fire":
        assert facts.useful_until is None or facts.useful_until >= now
    if fires and occupied_by is not None:
        assert policy.overlap is Overlap.ALLOW
    assert (decision.reason is None) == (decision.verdict == "fire")


@settings(max_examples=by_tier(60, 300, 3_000))
@given(rules, policies, moments, some.integers(0, 12 * HOUR), some.booleans())
def test_a_schedule_that_wakes_up_late_settles_and_explains_every_tick(
    rule: Rule, policy: Policy, moment: Instant, late: int, paused: bool
) -> None:
    """Decision after decision at one moment, until nothing is due: every tick up to now is in exactly one of them."""
    nominal = first_tick(rule, moment)
    now = nominal + late
    schedule = a_schedule(rule, policy, paused_at=0 if paused else None)
    facts: TickFacts | None = a_tick(schedule, nominal)
    ticks: list[Instant] = []
    ran: list[tuple[Instant, Lane]] = []
    while facts is not None and facts.fire_at <= now:
        decision = decide_tick(facts, now)
        ticks += accounted(facts, decision)
        if decision.verdict == "fire":
            ran.append((facts.nominal, decision.lane))
        if decision.instead is not None:
            ran.append((decision.instead.nominal, decision.lane))
        new = decision.successor
        facts = None if new is None else a_tick(schedule, new.nominal, fire_at=new.fire_at, since=new.since)

    expected = [nominal]
    while ticks and (tick := rule.next(expected[-1])) is not None and tick <= ticks[-1]:
        expected.append(tick)
    assert ticks == (expected if ticks else [])
    # It settled, and what is left is the very next tick, whose time has not come.
    assert facts is None or facts.nominal == rule.next(ticks[-1] if ticks else nominal - 1)
    if paused:
        assert ran == []
    if policy.catch_up is CatchUp.ONCE:
        assert len([lane for _, lane in ran if lane is Lane.CATCH_UP]) <= 1
    if policy.catch_up is CatchUp.SKIP:
        assert all(lane is Lane.LIVE for _, lane in ran)


@settings(max_examples=by_tier(100, 500, 5_000))
@given(
    rule=some.text(max_size=40)
    | some.sampled_from([every("1s").encode(), after("1s").encode(), cron("* * * * *").encode()]),
    policy=policies,
    delay=some.none() | some.integers(-5, LAST),
    origin=some.sampled_from(Origin),
    nominal=some.integers(-LAST * 2, LAST * 2),
    now=some.integers(-LAST * 2, LAST * 2),
    attempt=some.integers(0, 3),
    useful_until=some.none() | some.integers(-LAST, LAST),
    occupied_by=some.none() | some.text(max_size=5),
    gone=some.booleans(),
)
def test_no_decision_ever_raises(
    rule: str,
    policy: Policy,
    delay: int | None,
    origin: Origin,
    nominal: Instant,
    now: Instant,
    attempt: int,
    useful_until: Instant | None,
    occupied_by: str | None,
    gone: bool,
) -> None:
    schedule = None if gone else a_schedule(rule, policy, delay=delay)
    facts = a_tick(None, 0, origin=origin, attempt=attempt, useful_until=useful_until, occupied_by=occupied_by)
    decision = decide_tick(facts._replace(nominal=nominal, schedule=schedule), now)
    assert decision.verdict in ("fire", "hold", "skip")
    if decision.successor is not None:
        assert decision.successor.nominal > min(nominal, now)


@given(rules, moments, some.sampled_from([0, MINUTE, HOUR]))
def test_an_edited_rule_that_no_longer_has_the_pending_tick_still_accounts_for_it(
    rule: Rule, moment: Instant, jitter: int
) -> None:
    assume(rule.previous(moment + 1) != moment)
    policy = Policy(catch_up=CatchUp.ONCE, jitter=jitter)
    for late in (0, 20 * MINUTE, HOUR, 2 * HOUR, 7 * HOUR):
        facts = fire_now(a_schedule(rule, policy), moment, moment + late)
        decision = decide_tick(facts, moment + late)
        ticks = accounted(facts, decision)
        assert ticks[0] == moment
        assert ticks == sorted(set(ticks))
        assert decision.evaluated_through == ticks[-1]
        assert decision.successor is None or decision.successor.nominal > ticks[-1]


@given(rules, moments, lateness)
def test_the_same_facts_always_give_the_same_decision(rule: Rule, moment: Instant, late: int) -> None:
    facts = a_tick(a_schedule(rule, replace(Policy(), jitter=MINUTE)), first_tick(rule, moment))
    assert decide_tick(facts, facts.nominal + late) == decide_tick(facts, facts.nominal + late)
