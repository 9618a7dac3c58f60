"""Crowds in a load: where far more starts than usual, who makes it, and what would spread it. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median
from typing import NamedTuple, cast

from foliot.domain.instant import HOUR, MINUTE, SECOND, Duration, Instant, spell
from foliot.domain.rule import Rule
from foliot.errors import InvalidRule
from foliot.timing.cron import Cron
from foliot.timing.effort import effort
from foliot.timing.elapsed import Every
from foliot.timing.expression import NICKNAMES
from foliot.timing.load import Load, Standing, Strand, short, ticks_between
from foliot.timing.ticks import jittered

LEAST = 10
"""Fewer schedules than this are no crowd."""
FAR = 3
"""A bucket with so many times what is usual stands out."""
MOST_LOOKED_AT = 24
"""So many of the fullest buckets are looked into; the others are counted."""
MOST_ADVISED = 5
"""So many herds, the largest, get advice."""
MOST_IN_A_BUCKET = 3_600
"""A rule with more ticks than this in a bucket is steady, and makes no crowd."""
_MOST_MOVED = 50_000
"""A larger herd is named, and not moved about to see what would help."""
_MOST_CHANGES = 3
"""So many rules are told one by one."""
_SMALL = 0.05
"""A smaller part of a herd does not make it."""
_JITTERS: tuple[Duration, ...] = (MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR)


class Family(NamedTuple):
    """Schedules of a herd that have one rule."""

    rule: str
    schedules: int
    runs: int
    """What they start in the bucket."""
    at_once: int
    """How many of these are in its sharpest second."""
    example: str
    """One of them, by its id."""


@dataclass(frozen=True, slots=True)
class Relief:
    """What would spread a herd, and what it would leave."""

    change: str
    """`jitter="15m"`, or rules: `H 2 * * * instead of 0 2 * * *`."""
    schedules: int
    """For so many of its schedules."""
    peak: int
    """What the fullest bucket has then, of those that anything is moved from or to."""
    at_once: int
    """How many of the herd start within one second then."""


@dataclass(frozen=True, slots=True)
class Herd:
    """A bucket that stands out, and others that the same schedules make."""

    at: Instant
    count: int
    """Runs that start in the bucket."""
    usual: float
    """What a bucket would have if all of the span were spread evenly."""
    sharpest: Instant
    """The second with the most starts, by its beginning."""
    at_once: int
    """How many start in that second."""
    core: tuple[Family, ...]
    """Who makes it, the largest first: those that come together."""
    others: tuple[Family, ...]
    """Who is there by chance: what is spread already has some starts in every bucket."""
    again: tuple[Instant, ...]
    """Other buckets in which the same ones come together, in the order of time."""
    works: Duration | None
    """How long one worker would be busy with it; None unless it is known of all."""
    relief: tuple[Relief, ...] = ()

    @property
    def schedules(self) -> int:
        """Those that make it."""
        return sum(family.schedules for family in self.core)


class Herds(NamedTuple):
    found: tuple[Herd, ...]
    """The largest first."""
    line: int
    """A bucket with more than this stands out."""
    above: tuple[int, ...]
    """The numbers of all buckets that stand out, whether they were looked into or not."""


class _Start(NamedTuple):
    """One tick in a bucket, of one schedule, or of all those that have it at the same instant."""

    family: str
    members: Sequence[Standing]
    runs: int
    nominal: Instant
    following: Instant | None
    fire: Instant


def herds(load: Load) -> Herds:
    """The herds of a load. Where no bucket stands out, the fullest may still have its starts all at once."""
    line = max(LEAST, round(FAR * max(load.expected, median(load.starts))))
    above = [number for number, count in enumerate(load.starts) if count > line]
    chosen = sorted(above, key=lambda number: (-load.starts[number], number))[:MOST_LOOKED_AT]
    looked = _looked_into(load, chosen or [load.fullest])
    if not above:
        looked = [one for one in looked if one.is_sharp]
    found = sorted(_merged(looked), key=lambda one: (-one.herd.count, one.herd.at))
    advised = [replace(one.herd, relief=_reliefs(load, one, line)) for one in found[:MOST_ADVISED]]
    return Herds((*advised, *(one.herd for one in found[MOST_ADVISED:])), line, tuple(above))


class _Looked(NamedTuple):
    """A bucket that was looked into."""

    herd: Herd
    starts: list[_Start]
    """Those of the families that make it."""
    is_sharp: bool
    """Whether a good part of it starts within one second."""


def _looked_into(load: Load, numbers: Sequence[int]) -> list[_Looked]:
    found: dict[int, list[_Start]] = {number: [] for number in numbers}
    edges = [(number, load.at(number), min(load.at(number + 1), load.end)) for number in numbers]
    for strand in load.strands:
        for number, low, high in edges:
            found[number] += _starts(strand, low, high) if strand.ticks is None else _counted(strand, low, high)
    looked = [_look(load, number, starts) for number, starts in found.items()]
    return [one for one in looked if one.herd.schedules >= LEAST]


def _counted(strand: Strand, low: Instant, high: Instant) -> list[_Start]:
    """What a strand starts in a bucket, by the ticks that were counted: most have none there."""
    ticks, number = strand.ticks or (), len(strand.ticks or ()) - 1
    first = bisect_left(ticks, low, 0, number)  # type: ignore[type-var]  # None comes last, and is not looked at
    last = bisect_left(ticks, high, first, number)  # type: ignore[type-var]
    if first == last:
        return []
    last, family, runs = min(last, first + MOST_IN_A_BUCKET), short(strand.rule), strand.runs
    found = cast(Sequence[Instant], ticks[first:last])
    followings = ticks[first + 1 : last + 1]
    return [
        _Start(family, strand.members, runs, tick, following, tick)
        for tick, following in zip(found, followings, strict=True)
    ]


def _starts(strand: Strand, low: Instant, high: Instant) -> Iterator[_Start]:
    """What a strand starts in a bucket, by its rule."""
    rule, jitter = strand.rule, strand.jitter
    if isinstance(rule, Every) and (high - low) // rule.interval > MOST_IN_A_BUCKET:
        return
    family, runs = short(rule), strand.runs
    try:
        with effort():
            ticks = list(islice(ticks_between(rule, low - jitter, high), MOST_IN_A_BUCKET))
            followings = [*ticks[1:], rule.next(ticks[-1])] if ticks else []
    except InvalidRule:  # it was counted as far as it came
        return
    if not jitter:
        for tick, following in zip(ticks, followings, strict=True):
            yield _Start(family, strand.members, runs, tick, following, tick)
    elif len(ticks) * len(strand.members) <= _MOST_MOVED:
        for tick, following in zip(ticks, followings, strict=True):
            for one in strand.members:
                if low <= (fire := jittered(one.id, tick, jitter, following)) < high:
                    yield _Start(family, [one], one.runs, tick, following, fire)


def _look(load: Load, number: int, starts: list[_Start]) -> _Looked:
    seconds: Counter[Instant] = Counter()
    runs: Counter[str] = Counter()
    for one in starts:
        seconds[one.fire // SECOND * SECOND] += one.runs
        runs[one.family] += one.runs
    sharpest, at_once = min(seconds.items(), key=lambda item: (-item[1], item[0]), default=(load.at(number), 0))
    sharp: Counter[str] = Counter()
    for one in starts:
        if sharpest <= one.fire < sharpest + SECOND:
            sharp[one.family] += one.runs
    made_of = [Family(rule, len(ids), runs[rule], sharp[rule], min(ids)) for rule, ids in _ids(starts).items()]
    made_of.sort(key=lambda family: (-family.runs, family.rule))
    core = _core(made_of, load.starts[number], at_once)
    herd = Herd(
        at=load.at(number),
        count=load.starts[number],
        usual=load.expected,
        sharpest=sharpest,
        at_once=at_once,
        core=tuple(core),
        others=tuple(family for family in made_of if family not in core),
        again=(),
        works=_works(starts),
    )
    # Spread over its bucket, each second would have its share.
    share = herd.count * SECOND / load.width
    names = {family.rule for family in core}
    crowd = [one for one in starts if one.family in names]
    return _Looked(herd, crowd, at_once >= LEAST and at_once > FAR * share)


def _ids(starts: Sequence[_Start]) -> dict[str, set[str]]:
    """The schedules of each family. Those of one strand come together, tick after tick."""
    found: dict[str, set[str]] = defaultdict(set)
    seen: set[int] = set()
    for one in starts:
        if id(one.members) not in seen:
            seen.add(id(one.members))
            found[one.family].update(member.id for member in one.members)
    return found


def _core(families: Sequence[Family], count: int, at_once: int) -> list[Family]:
    """Those that come mostly within one second, if that is what makes it; else all that are a good part of it."""
    if at_once >= max(LEAST, count * _SMALL):
        sharp = [family for family in families if family.at_once >= max(family.runs / 2, at_once * _SMALL)]
        if sum(family.schedules for family in sharp) >= LEAST:
            return sharp
    return [family for family in families if family.runs >= count * _SMALL]


def _works(starts: Sequence[_Start]) -> Duration | None:
    total = 0
    for one in starts:
        takes = one.members[0].takes  # they are of one strand, so all take as long
        if takes is None:
            return None
        total += one.runs * takes
    return total


def _merged(looked: Sequence[_Looked]) -> list[_Looked]:
    """Buckets that the same rules make are one herd that comes again."""
    alike: dict[tuple[str, ...], list[_Looked]] = defaultdict(list)
    for one in looked:
        alike[tuple(sorted(family.rule for family in one.herd.core))].append(one)
    merged = []
    for first, *others in alike.values():
        again = tuple(sorted(one.herd.at for one in others))
        merged.append(first._replace(herd=replace(first.herd, again=again)))
    return merged


# What would help


def _reliefs(load: Load, looked: _Looked, line: int) -> tuple[Relief, ...]:
    """By a rule that spreads by hash, where there is one, and by jitter: the least that is enough."""
    if sum(len(one.members) for one in looked.starts) > _MOST_MOVED:
        return ()
    found = [relief for relief in (_by_hash(load, looked),) if relief is not None]
    tries = [_by_jitter(load, looked, jitter) for jitter in _JITTERS if jitter >= min(load.width, HOUR)]
    enough = next((one for one in tries if one.peak <= line), min(tries, key=lambda one: one.peak))
    return tuple(one for one in (*found, enough) if one.peak < looked.herd.count or one.at_once < looked.herd.at_once)


def _by_jitter(load: Load, looked: _Looked, jitter: Duration) -> Relief:
    def moved(one: Standing, start: _Start) -> Instant | None:
        return None if one.jitter >= jitter else jittered(one.id, start.nominal, jitter, start.following)

    return _moved(load, looked, f'jitter="{spell(jitter)}"', moved)


def _by_hash(load: Load, looked: _Looked) -> Relief | None:
    """Each family by a rule of its own."""
    changes = [text for family in looked.herd.core if (text := _change(looked, family.rule)) is not None]
    if not changes:
        return None

    known: dict[str, tuple[Rule, Duration] | None] = {}

    def moved(one: Standing, start: _Start) -> Instant | None:
        if one.id not in known:
            spread = spread_rule(one.rule)
            known[one.id] = None if spread is None else (spread[0].named(one.id), spread[1])
        found = known[one.id]
        return None if found is None else found[0].next(start.nominal - found[1] - 1)

    more = f" and {len(changes) - _MOST_CHANGES:,} more such changes" if len(changes) > _MOST_CHANGES else ""
    return _moved(load, looked, ", ".join(changes[:_MOST_CHANGES]) + more, moved)


def _change(looked: _Looked, family: str) -> str | None:
    spread = spread_rule(next(one.members[0].rule for one in looked.starts if one.family == family))
    if spread is None:
        return None
    if isinstance(spread[0], Every):
        return f'every("{spell(spread[0].interval)}", spread=True)'
    return f"{spread[0].expression} instead of {family.removesuffix(spread[0].tz).rstrip()}"


def spread_rule(rule: Rule) -> tuple[Cron | Every, Duration] | None:
    """The same rule with a slot of each schedule's own, and how long before a tick the time begins from which that is
    chosen. None where there is no such rule, or where it is one already."""
    if isinstance(rule, Every) and rule.start == 0 and rule.interval >= MINUTE:
        return Every(rule.interval, 0, spread=True), 0
    if not isinstance(rule, Cron) or rule.fields.is_spread:
        return None
    _, *others = NICKNAMES.get(rule.expression.lower(), rule.expression).split()
    hashed = _hashed(rule.fields.minutes)
    if len(others) != 4 or hashed is None:
        return None
    return Cron(" ".join((hashed, *others)), rule.tz, rule.dst), rule.fields.minutes[0] * MINUTE


def _hashed(minutes: tuple[int, ...]) -> str | None:
    """`0` becomes `H`, `*/15` becomes `H/15`."""
    if len(minutes) == 1:
        return "H"
    pace, rest = divmod(60, len(minutes))
    is_even = not rest and pace > 1 and minutes == tuple(range(minutes[0], 60, pace))
    return f"H/{pace}" if is_even else None


def _moved(load: Load, looked: _Looked, change: str, moved: Callable[[Standing, _Start], Instant | None]) -> Relief:
    """What is left when each schedule's start goes where `moved` says; None stays."""
    buckets: Counter[int] = Counter()
    seconds: Counter[int] = Counter()
    touched: set[str] = set()
    for one, start in ((member, tick) for tick in looked.starts for member in tick.members):
        fire = moved(one, start)
        if fire is not None:
            touched.add(one.id)
            for where, by in ((start.fire, -one.runs), (fire, one.runs)):
                if (number := load.number(where)) is not None:
                    buckets[number] += by
        seconds[(start.fire if fire is None else fire) // SECOND] += one.runs
    peak = max((load.starts[number] + by for number, by in buckets.items()), default=looked.herd.count)
    return Relief(change, len(touched), peak, max(seconds.values(), default=0))
