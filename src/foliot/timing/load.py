"""The load that schedules will make: how many runs start in each stretch of time, and how many workers that takes.

Pure, and quick for thousands of schedules: those with equal ticks are one *strand*, whose rule is asked once. Rates are
counted by arithmetic. What would take too long all the same is counted less far, and said.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise

from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from foliot.domain.rule import Rule
from foliot.errors import InvalidInput, InvalidRule
from foliot.timing.cron import Cron
from foliot.timing.effort import effort
from foliot.timing.elapsed import At, Every
from foliot.timing.ticks import jittered
from foliot.timing.words import each

WIDTHS: tuple[Duration, ...] = (SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR, DAY)
"""The stretches that people think in."""
MANY = 3_000
"""More buckets than this are hard to look at: a longer span gets wider ones."""
MOST_BUCKETS = 50_000
MOST_ASKED = 1_000_000
"""Ticks that rules are asked for one by one, all of them together: three seconds, or ten where they are slow."""
LEAST_ASKED = 300
"""Of these, what each rule may have in any case."""
MOST_MOVED = 1_500_000
"""Ticks that are moved by jitter one by one; beyond that they are taken to be spread evenly."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A schedule, as far as its load goes. Its rule is named already: what it spreads by hash is settled."""

    id: str
    rule: Rule
    jitter: Duration = 0
    job: str = ""
    runs: int = 1
    """How many runs each tick makes."""
    takes: Duration | None = None
    """How long one of them takes, on average; None when nobody knows."""
    is_spread: bool = False
    """They are for many members, and jitter moves each of those by itself."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A rule that was not counted to the end of the span."""

    rule: str
    schedules: tuple[str, ...]
    until: Instant
    """From here on its ticks are missing."""


@dataclass(frozen=True, slots=True)
class Load:
    """What starts in each bucket of a span, if every tick makes its runs, and they start when they are due."""

    start: Instant
    end: Instant
    width: Duration
    starts: tuple[int, ...]
    """Bucket by bucket from the start on; the last one may be shorter."""
    busy: tuple[float, ...] | None
    """How many workers are busy in each, on average; None when nobody knows how long anything takes."""
    strands: tuple[Strand, ...]
    cut: tuple[Cut, ...]
    broken: tuple[tuple[str, str], ...]
    """Schedules whose rule cannot answer, and why."""
    delayed: tuple[str, ...]
    """Schedules with a fixed delay: the ends of their runs make their ticks, so that no calendar tells them."""
    evened: int
    """So many schedules have jitter that was taken to be even, because their ticks are too many."""
    unknown: int
    """So many schedules are not in `busy`, because nobody knows how long their runs take."""

    @property
    def schedules(self) -> int:
        return sum(len(strand.members) for strand in self.strands)

    @property
    def expected(self) -> float:
        """What each bucket would have if all of it were spread evenly."""
        return sum(self.starts) / len(self.starts)

    @property
    def fullest(self) -> int:
        """The number of the bucket with the most starts; of several, the first."""
        return max(range(len(self.starts)), key=self.starts.__getitem__)

    def at(self, number: int) -> Instant:
        """When a bucket begins."""
        return self.start + number * self.width

    def number(self, moment: Instant) -> int | None:
        """The bucket that an instant lies in; None outside of the span."""
        return (moment - self.start) // self.width if self.start <= moment < self.end else None


@dataclass(slots=True)
class Strand:
    """Schedules that have equal ticks, equal jitter, and runs that take equally long."""

    rule: Rule
    jitter: Duration
    takes: Duration | None
    members: list[Standing] = field(default_factory=list)
    ticks: Sequence[Instant | None] | None = None
    """Those that were counted, and the one that follows them; None where they were counted without being asked for, or
    are moved. Whoever looks into a bucket need not ask again."""

    @property
    def runs(self) -> int:
        return sum(one.runs for one in self.members)


def width_for(span: Duration) -> Duration:
    """The width of buckets for a span: a minute, unless it is very short or very long."""
    if span <= 10 * MINUTE:
        return SECOND
    return next((width for width in WIDTHS[1:] if span <= MANY * width), DAY)


def load(
    standing: Iterable[Standing],
    start: Instant,
    end: Instant,
    width: Duration | None = None,
    told: Callable[[int, int], object] = lambda done, of: None,
) -> Load:
    """Counts what starts from `start` on and before `end`. `told` hears how many schedules are counted, of how many."""
    width = width_for(end - start) if width is None else width
    if end <= start or width <= 0:
        raise InvalidInput("the period is empty; give an end after its start")
    if (end - start) > MOST_BUCKETS * width:
        raise InvalidInput(
            f"the period has more than {MOST_BUCKETS:,} buckets; give wider buckets, or a shorter period"
        )
    timed, delayed = _apart(standing)
    count = _Count(start, end, width)
    strands = strands_of(timed)
    done, of = 0, len(timed)
    for number, strand in enumerate(strands):
        count.add(strand, len(strands) - number)
        done += len(strand.members)
        told(done, of)
    return count.load([strand for strand in strands if id(strand) not in count.failed], delayed)


def _apart(standing: Iterable[Standing]) -> tuple[list[Standing], list[str]]:
    timed, delayed = [], []
    for one in standing:
        if one.rule.delay is None:
            timed.append(one)
        else:
            delayed.append(one.id)
    return timed, delayed


def strands_of(standing: Iterable[Standing]) -> list[Strand]:
    found: dict[Hashable, Strand] = {}
    for one in standing:
        key = (_same(one.rule), one.jitter, one.takes)
        found.setdefault(key, Strand(one.rule, one.jitter, one.takes)).members.append(one)
    return list(found.values())


def _same(rule: Rule) -> Hashable:
    """What rules with equal ticks have in common: ten thousand `H * * * *` have sixty kinds of ticks."""
    if isinstance(rule, Cron):
        return rule.fields, rule.tz, rule.dst
    return (rule.interval, rule.start) if isinstance(rule, Every) else rule.encode()


def ticks_between(rule: Rule, low: Instant, high: Instant) -> Iterator[Instant]:
    """The ticks from `low` on and before `high`."""
    tick = rule.next(low - 1)
    if isinstance(rule, Every):
        yield from range(tick if tick is not None else high, high, rule.interval)
        return
    while tick is not None and tick < high:
        yield tick
        tick = rule.next(tick)


def short(rule: Rule) -> str:
    """A rule as it is written: `0 2 * * *`, `every 15 minutes`. The slot that a hash chose is left out."""
    match rule:
        case Cron():
            return rule.expression if rule.tz == "UTC" else f"{rule.expression} {rule.tz}"
        case Every():
            return each(rule.interval)
        case At():
            return rule.explain()
    return f"{text[:79]}…" if len(text := rule.explain()) > 80 else text


class _Count:
    """What was counted so far, and what may still be spent."""

    def __init__(self, start: Instant, end: Instant, width: Duration) -> None:
        self._start, self._end, self._width = start, end, width
        self._size = -(-(end - start) // width)
        self._columns: dict[Duration | None, list[float]] = {}
        """Starts by bucket, by how long they take."""
        self._asked, self._moved = MOST_ASKED, MOST_MOVED
        self._cut: list[Cut] = []
        self._broken: list[tuple[str, str]] = []
        self._evened = 0
        self.failed: set[int] = set()

    def load(self, strands: Sequence[Strand], delayed: Sequence[str]) -> Load:
        starts = [0.0] * self._size
        for column in self._columns.values():
            starts = [one + other for one, other in zip(starts, column, strict=True)]
        is_known = any(takes is not None for takes in self._columns)
        return Load(
            start=self._start,
            end=self._end,
            width=self._width,
            starts=tuple(map(round, starts)),
            busy=self._busy() if is_known else None,
            strands=tuple(strands),
            cut=tuple(self._cut),
            broken=tuple(self._broken),
            delayed=tuple(delayed),
            evened=self._evened,
            unknown=sum(len(strand.members) for strand in strands if strand.takes is None),
        )

    def add(self, strand: Strand, strands_left: int) -> None:
        column = self._columns.setdefault(strand.takes, [0.0] * self._size)
        runs = strand.runs
        if isinstance(strand.rule, Every) and not self._is_moved(strand, strand.rule):
            self._add_rate(column, strand.rule, runs)
            return
        # One beyond the span is asked for: jitter ends before it.
        share = max(LEAST_ASKED, self._asked // strands_left)
        ticks = self._ticks(strand, MOST_MOVED if isinstance(strand.rule, Every) else share)
        if not strand.jitter:
            strand.ticks = [*(tick for tick, _ in ticks), ticks[-1][1] if ticks else None]
            for tick, _ in ticks:
                column[(tick - self._start) // self._width] += runs
        elif (moves := len(ticks) * len(strand.members)) <= self._moved:
            self._moved -= moves
            self._add_moved(column, strand, ticks)
        else:
            self._evened += len(strand.members)
            for tick, following in ticks:
                self._add_even(column, tick, _room(strand.jitter, tick, following), runs)

    def _is_moved(self, strand: Strand, rule: Every) -> bool:
        """Whether jitter may carry a tick of a rate into another bucket, and it can be afforded to look."""
        if not strand.jitter:
            return False
        moves = len(strand.members) * ((self._end - self._start + strand.jitter) // rule.interval + 2)
        if moves <= self._moved or rule.interval > self._width:
            return True
        self._evened += len(strand.members)
        return False  # it moves by less than a bucket

    def _ticks(self, strand: Strand, most: int) -> list[tuple[Instant, Instant | None]]:
        """Each tick, with the one that follows it. A rule that gives up is counted as far as it came."""
        found: list[Instant] = []
        try:
            with effort():
                for tick in islice(ticks_between(strand.rule, self._start - strand.jitter, self._end), most + 1):
                    found.append(tick)  # noqa: PERF402  # what was found stays when the rule gives up
                following = strand.rule.next(found[-1]) if found else None
        except InvalidRule as problem:
            following = None
            if not found:
                self.failed.add(id(strand))
                self._broken += [(one.id, str(problem)) for one in strand.members]
            else:
                self._cut_at(strand, found[-1] + 1)
        if not isinstance(strand.rule, Every):
            self._asked -= min(len(found), most)
        if len(found) > most:
            following = found.pop()
            self._cut_at(strand, following)
        return list(pairwise([*found, following])) if found else []  # type: ignore[list-item]

    def _cut_at(self, strand: Strand, until: Instant) -> None:
        self._cut.append(Cut(short(strand.rule), tuple(one.id for one in strand.members), until))

    def _add_rate(self, column: list[float], rule: Every, runs: int) -> None:
        """A rate, by arithmetic."""
        start, end, width = self._start, self._end, self._width
        if rule.interval > width:
            for tick in ticks_between(rule, start, end):
                column[(tick - start) // width] += runs
            return
        # A stretch that is a multiple of the interval has equally many ticks wherever it lies: only the edges differ.
        if width % rule.interval == 0 and rule.start <= start:
            steady = runs * (width // rule.interval)
            column[:-1] = [one + steady for one in column[:-1]]
            begin = start + (self._size - 1) * width
            column[-1] += runs * (rule.index(end - 1) - rule.index(begin - 1))
            return
        edges = [*range(start, end, width), end]
        ticks = [max(-1, (edge - 1 - rule.start) // rule.interval) for edge in edges]  # as `Every.index`, in line
        column[:] = [
            one + runs * (after - before) for one, before, after in zip(column, ticks, ticks[1:], strict=False)
        ]

    def _add_moved(self, column: list[float], strand: Strand, ticks: Sequence[tuple[Instant, Instant | None]]) -> None:
        for one in strand.members:
            for tick, following in ticks:
                if one.is_spread:
                    self._add_even(column, tick, _room(strand.jitter, tick, following), one.runs)
                    continue
                fire = jittered(one.id, tick, strand.jitter, following)
                if self._start <= fire < self._end:
                    column[(fire - self._start) // self._width] += one.runs

    def _add_even(self, column: list[float], tick: Instant, room: Duration, runs: int) -> None:
        low, high = max(tick, self._start), min(tick + room + 1, self._end)
        while low < high:
            number = (low - self._start) // self._width
            until = min(self._start + (number + 1) * self._width, high)
            column[number] += runs * (until - low) / (room + 1)
            low = until

    def _busy(self) -> tuple[float, ...]:
        """Time worked in each bucket, by its width. Runs are taken to begin where their bucket does."""
        worked = [0.0] * self._size
        for takes, column in self._columns.items():
            if takes is None:
                continue
            whole, rest = divmod(takes, self._width)
            lasting = 0.0
            for number in range(self._size):
                lasting += column[number]
                if number >= whole:
                    ending = column[number - whole]
                    lasting -= ending
                    worked[number] += ending * rest
                worked[number] += lasting * self._width
        return tuple(time / self._width for time in worked)


def _room(jitter: Duration, tick: Instant, following: Instant | None) -> Duration:
    """How far jitter may move a tick; see `jittered`."""
    return jitter if following is None else max(min(jitter, following - 1 - tick), 0)
