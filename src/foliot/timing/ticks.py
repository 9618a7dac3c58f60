"""Questions that the scheduler asks of any rule: what comes, what was missed, and how far jitter may move a tick."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from foliot.domain.instant import LAST, Duration, Instant
from foliot.domain.members import start_within
from foliot.domain.rule import Rule
from foliot.domain.schedule import Declaration, Schedule
from foliot.errors import InvalidInput, InvalidRule
from foliot.timing.codec import decode
from foliot.timing.effort import effort
from foliot.timing.elapsed import Every
from foliot.timing.tables import not_again, stamp_of


@dataclass(frozen=True, slots=True)
class Overdue:
    """The ticks of a rule from a pending one to now."""

    first: Instant
    """The pending tick: the oldest that is due."""
    latest: Instant
    """The newest tick that is due; `first` itself when it is the only one."""
    count: int
    """How many ticks there are from `first` to `latest`, both included; never more than the cap."""
    capped: bool
    """True when there are more than `count` says."""
    following: Instant | None
    """The first tick that is not due yet; None when there is none, or when the rule has a delay."""


def armed(declaration: Declaration, rule: Rule, after: Instant, known: Schedule | None = None) -> Declaration:
    """A declaration with its first tick, when nothing up to `after` is promised.

    `known`: the schedule as the store has it. While its rule stays, a wall time that ran does not run again.
    One whose rule cannot answer says so as its fault: it must not stop the others.
    """
    declaration = replace(declaration, after=after, tables=stamp_of(rule))
    try:
        nominal = None if rule.delay is not None else rule.next(after)
        if known is not None and known.rule == declaration.rule:
            nominal = not_again(rule, nominal, known.last_wall)
        if rule.horizon is not None and (nominal is None or nominal >= rule.horizon.end):
            declaration = replace(declaration, fault=rule.horizon.told)
        if nominal is None:
            return declaration
        return replace(
            declaration,
            first=nominal,
            first_fire_at=_fire_at(declaration, nominal, rule.next(nominal)),
            # Before its first tick a rule has none: the time since it was declared is what that tick stands for.
            first_since=after if (before := rule.previous(nominal)) is None else before,
            first_wall=rule.wall(nominal),
        )
    except InvalidRule as problem:
        return replace(declaration, fault=f"InvalidRule: {problem}")


def standing(stated: Iterable[Declaration], known: Mapping[str, Schedule]) -> list[Declaration]:
    """Those that the store has, as it has them, with their next ticks: operators may have edited them since. One whose
    rule cannot be read here is left out."""
    found = []
    for one in stated:
        stored = known.get(one.id)
        if stored is None or (stored.rule, stored.policy) == (one.rule, one.policy):
            found += [] if stored is None else [one]
            continue
        try:
            rule = decode(stored.rule)
        except InvalidRule:
            continue
        kept = replace(one, rule=stored.rule, policy=stored.policy, delay=stored.delay, first=None, fault=None)
        found.append(armed(kept, rule, one.after or 0, stored))
    return found


def _fire_at(declaration: Declaration, nominal: Instant, following: Instant | None) -> Instant:
    """A tick over many members is on time itself: jitter spreads its members."""
    jitter = declaration.policy.jitter if declaration.over is None else 0
    return jittered(declaration.id, nominal, jitter, following)


def upcoming(rule: Rule, after: Instant, count: int) -> list[Instant]:
    """The next `count` ticks strictly after `after`; fewer when the rule ends."""
    ticks: list[Instant] = []
    try:
        while len(ticks) < count and (tick := rule.next(after)) is not None:
            ticks.append(tick)
            after = tick
    except InvalidRule:  # it gave up its search for a further one; those that it found are true
        if not ticks:
            raise
    return ticks


def overdue(rule: Rule, first: Instant, now: Instant, *, cap: int = 10_000) -> Overdue:
    """What is due at `now`, given the pending tick `first`, which must be due itself.

    `first` counts as a tick even when the rule no longer has it: the rule may have been edited since it was made.
    """
    if first > now:
        raise InvalidInput("the pending tick is not due yet, so no tick is overdue")
    newest = rule.previous(now + 1)
    latest = first if newest is None else max(first, newest)
    count, is_capped = _count(rule, first, latest, cap)
    return Overdue(first, latest, count, is_capped, rule.next(latest))


def jittered(schedule_id: str, nominal: Instant, jitter: Duration, following: Instant | None) -> Instant:
    """The fire time of a tick: at most `jitter` after `nominal`, and always before the `following` tick.

    The same schedule and tick always give the same answer, so every scheduler agrees on it.
    """
    ceiling = LAST if following is None else following - 1
    return start_within(schedule_id, nominal, min(jitter, ceiling - nominal))


def _count(rule: Rule, first: Instant, latest: Instant, cap: int) -> tuple[int, bool]:
    """The ticks from `first` to `latest`, both included, counted up to the cap; and whether there are more.

    The questions share one store of effort: a rule that is slow to answer is counted less far, not for minutes.
    """
    if isinstance(rule, Every):
        count = 1 + rule.index(latest) - rule.index(first)
        return min(count, cap), count > cap
    count, tick = 0, first
    try:
        with effort():
            while count < cap and tick <= latest:
                count += 1
                following = rule.next(tick)
                if following is None or following > latest:
                    return count, False
                tick = following
    except InvalidRule:
        return max(count, 1), True
    return count, True
