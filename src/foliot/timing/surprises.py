"""What each change of the clocks does to a rule: what it asks for on that day, and what it gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from foliot.domain.instant import SECOND, Instant
from foliot.domain.rule import Rule
from foliot.timing.combine import Bounded, Composed, Union
from foliot.timing.wall import WallRule
from foliot.timing.words import MONTHS, clock, elapsed, listed
from foliot.timing.zones import zone

_DAY = 86_400
_MOST_COUNTED = 10_000
"""Wall times of a day, counted one by one; a rule with more is told without its total."""
_MOST_LISTED = 3
_EPOCH = datetime(1970, 1, 1)


class Surprise(NamedTuple):
    """One change of the clocks that touches a rule."""

    at: Instant
    """When the clocks change."""
    text: str


def dst_surprises(rule: Rule, first: Instant, last: Instant) -> list[Surprise]:
    """What the changes of the clocks from `first` to `last` do to a rule, in order; nothing where it is not touched.

    Of a rule that leaves out some of the ticks of another, only what is certain is told.
    """
    return sorted({surprise for leaf in _leaves(rule, first, last) for surprise in _of_leaf(rule, *leaf)})


def wall_rules(rule: Rule) -> list[WallRule]:
    """The rules about wall clocks that a rule is, or is made of."""
    if isinstance(rule, Composed):
        return [leaf for part in rule.parts for leaf in wall_rules(part)]
    return [rule] if isinstance(rule, WallRule) else []


def _leaves(
    rule: Rule, first: Instant, last: Instant, is_kept: bool = True
) -> Iterator[tuple[WallRule, Instant, Instant, bool]]:
    """The wall rules whose ticks a rule has, from when to when, and whether it keeps all of them."""
    if isinstance(rule, Bounded):
        first = first if rule.start is None else max(first, rule.start)
        last = last if rule.end is None else min(last, rule.end)
    if isinstance(rule, WallRule):
        yield rule, first, last, is_kept
    if isinstance(rule, Composed):
        # What is only left out has no say here.
        for part in rule.kept:
            yield from _leaves(part, first, last, is_kept and isinstance(rule, Union | Bounded))


def _of_leaf(whole: Rule, rule: WallRule, first: Instant, last: Instant, is_kept: bool) -> Iterator[Surprise]:
    for at, before, after in zone(rule.tz).changes(first // SECOND, last // SECOND):
        # The wall times that are missing, or that come twice.
        low, high = at + min(before, after), at + max(before, after)
        if rule.pace and (high - low) % rule.pace:
            goes_on = rule.previous(at * SECOND) is not None and rule.next(at * SECOND) is not None
            if goes_on and (is_kept or _comes(whole, at - high + low, at + high - low)):
                yield Surprise(at * SECOND, f"on {_date(low)} {_of_count(rule, before, after)}")
            continue
        walls = list(islice(rule.asked(low, high), _DAY))
        if not walls:
            continue
        if rule.is_elapsed:
            if not is_kept and not _comes(whole, at - high + low, at + high - low):
                continue
            text = _of_pace(whole, rule, walls, low, high, after > before)
        else:
            ticks = sorted({tick for wall in walls for tick in rule.instants(wall)})
            if not is_kept and not any(_comes(whole, tick, tick) for tick in ticks):
                continue
            text = _of_gap(rule, walls, ticks) if after > before else _of_fold(rule, walls, ticks, before)
        yield Surprise(at * SECOND, f"on {_date(walls[0])} {text}")


def _comes(rule: Rule, first: int, last: int) -> bool:
    tick = rule.next(first * SECOND - 1)
    return tick is not None and tick <= last * SECOND


def _of_pace(whole: Rule, rule: WallRule, walls: Sequence[int], low: int, high: int, is_gap: bool) -> str:
    """A rule that runs on: it comes less or more often that day."""
    length, is_one = elapsed((high - low) * SECOND), high - low == 3600
    missing, twice = ("is missing", "occurs twice") if is_one else ("are missing", "occur twice")
    text = f"the {'hour' if is_one else length} from {_clock(low)} {missing if is_gap else twice} in {rule.tz}"
    if whole is not rule:
        return f"{text}, with the rule's times in it"
    midnight = walls[0] // _DAY * _DAY
    total = sum(1 for _ in islice(rule.asked(midnight, midnight + _DAY), _MOST_COUNTED + 1))
    changed = sum(1 for wall in walls if wall < midnight + _DAY)
    if total > _MOST_COUNTED:
        return f"{text}, so the rule fires {changed:,} times {'less' if is_gap else 'more'} that day"
    runs = total - changed if is_gap else total + changed
    usually = "once" if total == 1 else f"{total:,} times" if runs == 1 else f"{total:,}"
    return f"{text}, so the rule {f'fires {times(runs)} instead of {usually}' if runs else 'does not fire'} that day"


def _of_count(rule: WallRule, before: int, after: int) -> str:
    """A rule that counts on, at other times of the day."""
    length, way, moved = elapsed(abs(after - before) * SECOND), "forward", "later"
    if after < before:
        way, moved = "back", "earlier"
    return (
        f"the clocks of {rule.tz} are set {way} {length}; the rule counts elapsed time, "
        f"so its local times are {length} {moved} from then on"
    )


def _of_gap(rule: WallRule, walls: Sequence[int], ticks: Sequence[int]) -> str:
    if len(walls) <= _MOST_LISTED:
        text = f"there is no {listed([_clock(wall) for wall in walls], 'or')} in {rule.tz}"
    else:
        text = f"{_many(walls)} do not exist in {rule.tz}"
    is_one = len(walls) == 1
    if not ticks:
        return f"{text}; {'it is' if is_one else 'they are'} skipped"
    moved = [tick + zone(rule.tz).offset(tick) for tick in ticks]
    runs = [_clock(wall) + ("" if _date(wall) == _date(walls[0]) else f" on {_date(wall)}") for wall in moved]
    if len(runs) > _MOST_LISTED:
        return f"{text}; the rule fires from {runs[0]} to {runs[-1]}"
    if len(runs) == 1 and next(rule.asked(moved[0], moved[0] + 1), None) is not None:
        return f"{text}; the run at {runs[0]} replaces {'it' if is_one else 'them'}"
    return f"{text}; the rule fires {'once, ' if len(runs) == 1 and not is_one else ''}at {listed(runs)}"


def _of_fold(rule: WallRule, walls: Sequence[int], ticks: Sequence[int], before: int) -> str:
    if len(walls) <= _MOST_LISTED:
        text = f"{listed([_clock(wall) for wall in walls])} occur{'s' if len(walls) == 1 else ''} twice in {rule.tz}"
    else:
        text = f"{_many(walls)} occur twice in {rule.tz}"
    offsets = [zone(rule.tz).offset(tick) for tick in ticks]
    shown = [_clock(tick + offset) + offset_text(offset) for tick, offset in zip(ticks, offsets, strict=True)]
    if len(set(offsets)) > 1:
        return f"{text}; the rule fires both times" + (f", at {listed(shown)}" if len(walls) == 1 else "")
    which = "first" if offsets[0] == before else "second"
    at = f"at {shown[0]}" if len(walls) == 1 else f"from {shown[0]} on"
    return f"{text}; the rule fires the {which} time, {at}"


def _many(walls: Sequence[int]) -> str:
    return f"the {len(walls):,} times from {_clock(walls[0])} to {_clock(walls[-1])}"


def _date(wall: int) -> str:
    return written(_EPOCH + timedelta(seconds=wall))


def _clock(wall: int) -> str:
    minutes, second = divmod(wall % _DAY, 60)
    return clock(*divmod(minutes, 60), second)


def times(count: int) -> str:
    """`once`, `96 times`."""
    return "once" if count == 1 else f"{count:,} times"


def written(day: date) -> str:
    """`8 March 2026`."""
    return f"{day.day} {MONTHS[day.month]} {day.year}"


def offset_text(offset: int) -> str:
    """Seconds ahead of UTC, as RFC 3339 writes them: `-04:00`."""
    minutes = abs(offset) // 60
    return f"{'-' if offset < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
