"""Which days are working days: not the weekend, not a holiday of a country or a market, not a company's own closed day.

The holidays are those of the `holidays` package, as observed: a holiday that a law moves from Sunday to Monday closes
the Monday. Its half days are working days.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from foliot.domain.instant import SECOND
from foliot.domain.rule import Horizon
from foliot.errors import InvalidInput, InvalidRule
from foliot.timing.names import WEEKDAYS, weekday
from foliot.timing.resolver import Step
from foliot.timing.zones import zone

if TYPE_CHECKING:
    from holidays import HolidayBase

Day = int
"""Days since 1970-01-01."""

MOST_DATES = 500
"""Own dates of one calendar: fifty years of company days, and still a short line in the store."""

_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
_MOST_YEARS = 100
"""Years that a calendar remembers before it starts anew."""
_KNOWN = {"IN": (2001, 2035), "NP": (2010, 2035), "XBOM": (2001, 2035), "XNSE": (2001, 2035)}
"""Where the package says more years than it has: outside of these most of the Hindu feasts are missing."""
_WITHOUT_HOLIDAYS = range(1900, 2200)
"""Weekends alone could be told for ever; the bound keeps a search for what never comes short."""


class Source(NamedTuple):
    """Whose holidays: as the package calls it."""

    code: str
    subdivision: str | None
    is_market: bool


@dataclass(frozen=True, slots=True)
class Workdays:
    """A calendar of working days; `workdays` makes one.

    It answers for the years that the package knows: `known`. A rule has no ticks outside of them, rather than ticks on
    days that may be holidays. Within them, what governments have not announced yet is missing (China's and Hungary's
    working Saturdays come a year ahead), feasts that wait for the moon are estimates, and far years have gaps (Diwali
    outside of India after 2035, Islamic feasts after 2077). A newer release of the package moves pending ticks.
    """

    country: str | None = None
    subdivision: str | None = None
    market: str | None = None
    closed: tuple[date, ...] = ()
    opened: tuple[date, ...] = ()
    weekend: tuple[str, ...] | None = None
    """None: what the country or the market has, which may have changed with the years; without one, Saturday and
    Sunday."""
    source: Source | None = field(init=False, repr=False, compare=False)
    known: range = field(init=False, repr=False, compare=False)
    """Years."""
    _years: dict[int, tuple[Day, ...]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        twice = sorted({*self.closed} & {*self.opened})
        if twice:
            raise InvalidRule(f"{twice[0]} is both in closed= and in opened=; remove it from one of them")
        source = _source(self.country, self.subdivision, self.market)
        settled = {
            "source": source,
            "known": _WITHOUT_HOLIDAYS if source is None else _known(source),
            "country": source.code if source and not source.is_market else None,
            "subdivision": source.subdivision if source else None,
            "market": source.code if source and source.is_market else None,
        }
        for name, value in settled.items():
            # A frozen value may still be completed while it is being made.
            object.__setattr__(self, name, value)

    @property
    def tables(self) -> frozenset[str]:
        """The package's, unless weekends and own dates are all there is."""
        return frozenset() if self.source is None else frozenset({"holidays"})

    def horizon(self, tz: str) -> Horizon | None:
        """Where the years that are known end in a zone; None without holidays, which need no tables."""
        if self.source is None:
            return None
        wall = (date(self.known[-1] + 1, 1, 1).toordinal() - _EPOCH) * 86_400
        detail = f"the holidays ({self.words()}) end with {self.known[-1]}: install a newer release of `holidays`"
        return Horizon((wall - zone(tz).offset(wall)) * SECOND, detail)

    @property
    def first_weekday(self) -> int:
        """On which weekday its weeks begin, Monday being 0: behind the weekend, such as Sunday in Saudi Arabia."""
        off = _present_weekend(self.source) if self.weekend is None else {*map(WEEKDAYS.index, self.weekend)}
        return next((day for day in (0, 6, 5, 4, 3, 2, 1) if day not in off and (day - 1) % 7 in off), 0)

    def is_working(self, day: date) -> bool:
        """Whether people work on a day; refused outside of the years that are known."""
        if not isinstance(day, date) or isinstance(day, datetime):
            raise InvalidInput(f"{day!r:.80} is not a date; give one, such as date(2026, 4, 3)")
        if day.year not in self.known:
            raise InvalidInput(
                f"working days ({self.words()}) are known from {self.known[0]} to {self.known[-1]}, not in {day.year}; "
                f"a newer release of the holidays package may include more"
            )
        number = day.toordinal() - _EPOCH
        return self.onward(number, 1) == number

    def onward(self, day: Day, step: Step) -> Day | None:
        """The working day nearest to `day`, itself included, in one direction; None where nothing is known."""
        begin = min(max(day, _FIRST_DAY), _LAST_DAY)
        year = date.fromordinal(begin + _EPOCH).year
        year = max(year, self.known[0]) if step > 0 else min(year, self.known[-1])
        while year in self.known:
            days = self._in_year(year)
            place = bisect_left(days, day) if step > 0 else bisect_right(days, day) - 1
            if 0 <= place < len(days):
                return days[place]
            year += step
        return None

    def nth(self, first: Day, last: Day, n: int) -> Day | None:
        """The n-th working day from `first` to `last`, at most a year; a negative n counts from the end."""
        begin, end = date.fromordinal(first + _EPOCH).year, date.fromordinal(last + _EPOCH).year
        if begin not in self.known or end not in self.known:
            return None
        days = self._in_year(begin) if begin == end else self._in_year(begin) + self._in_year(end)
        low, high = bisect_left(days, first), bisect_right(days, last)
        place = low + n - 1 if n > 0 else high + n
        return days[place] if low <= place < high else None

    def _in_year(self, year: int) -> tuple[Day, ...]:
        found = self._years.get(year)
        if found is None:
            found = _working(self.source, self.weekend, year)
            closed, opened = (
                {day.toordinal() - _EPOCH for day in days if day.year == year} for days in (self.closed, self.opened)
            )
            if closed or opened:
                found = tuple(sorted({*found} - closed | opened))
            if len(self._years) >= _MOST_YEARS:
                self._years.clear()
            self._years[year] = found
        return found

    def shape(self) -> dict[str, Any]:
        """As JSON; what is left out has its default."""
        named = {"country": self.country, "subdivision": self.subdivision, "market": self.market}
        dated = {"closed": [*map(str, self.closed)], "opened": [*map(str, self.opened)]}
        weekend = {} if self.weekend is None else {"weekend": [*self.weekend]}
        return {name: value for name, value in (named | dated).items() if value} | weekend

    def words(self) -> str:
        """`US holidays`, `GB-SCT holidays, weekend fri sat, 2 days closed`, `no holidays`."""
        parts = ["no holidays"]
        if self.source is not None:
            parts = ["-".join(filter(None, self.source[:2])) + " holidays"]
            if self.known[-1] < 2090:
                parts.append(f"known to {self.known[-1]}")
        if self.weekend is not None:
            parts.append(f"weekend {' '.join(self.weekend)}" if self.weekend else "no weekend")
        counts = {"closed": len(self.closed), "opened": len(self.opened)}
        parts += [f"{count} day{'s' if count > 1 else ''} {kind}" for kind, count in counts.items() if count]
        return ", ".join(parts)


def workdays(
    country: str | None = None,
    *,
    subdivision: str | None = None,
    market: str | None = None,
    closed: Iterable[date | str] = (),
    opened: Iterable[date | str] = (),
    weekend: str | Iterable[str] | None = None,
) -> Workdays:
    """The working days of a country, `workdays("US", subdivision="CA")`, or of a market, `workdays(market="XNYS")`.

    Own dates are added with `closed=["2026-12-24"]`, and taken back with `opened=`; `weekend=("fri", "sat")` replaces
    the country's. Without country and market no day is a holiday.
    """
    off = None if weekend is None else _weekend(weekend)
    return Workdays(country, subdivision, market, _dates("closed", closed), _dates("opened", opened), off)


def _weekend(given: str | Iterable[str]) -> tuple[str, ...]:
    names = given.replace(",", " ").split() if isinstance(given, str) else given
    if not isinstance(names, Iterable):
        raise InvalidRule(f'weekend={given!r:.80} is not a list of weekdays; write weekend=["fri", "sat"]')
    days = {weekday(name) for name in names}
    if len(days) == 7:
        raise InvalidRule("a weekend of seven days leaves no working day; leave some out")
    return tuple(WEEKDAYS[day] for day in sorted(days))


def _dates(name: str, given: Iterable[date | str]) -> tuple[date, ...]:
    if isinstance(given, str | date) or not isinstance(given, Iterable):
        raise InvalidRule(f'{name}={given!r:.80} is not a list of dates; write {name}=["2026-12-24"]')
    found: list[date] = []
    for one in given:
        if len(found) == MOST_DATES:
            raise InvalidRule(f"{name}= has more than {MOST_DATES} dates; put whole weekdays into weekend= instead")
        found.append(_date(name, one))
    return tuple(sorted({*found}))


def _date(name: str, given: object) -> date:
    try:
        if isinstance(given, str) and len(given) == 10:
            return date.fromisoformat(given)
    except ValueError:
        pass
    if isinstance(given, date) and not isinstance(given, datetime):
        return given
    raise InvalidRule(f'{name}= has {given!r:.80}, which is not a date; write date(2026, 12, 24) or "2026-12-24"')


# --------------------------------------------------------------------------------------------------------- the package
# It is imported when a rule first asks for it: that takes a tenth of a second, which no other command should cost.


@lru_cache(maxsize=1_000)
def _working(source: Source | None, weekend: tuple[str, ...] | None, year: int) -> tuple[Day, ...]:
    """The working days of a year. The package needs a millisecond or so for one, so they are kept."""
    off = {*map(WEEKDAYS.index, ("sat", "sun") if weekend is None else weekend)}
    days = range(date(year, 1, 1).toordinal(), date(year, 12, 31).toordinal() + 1)
    if source is None:
        return tuple(day - _EPOCH for day in days if (day - 1) % 7 not in off)
    table = _table(source, year)
    if weekend is None:
        return tuple(day - _EPOCH for day in days if table.is_working_day(date.fromordinal(day)))
    # As the package judges, with another weekend: a day that the country moved work to is worked.
    dates = map(date.fromordinal, days)
    return tuple(
        day.toordinal() - _EPOCH
        for day in dates
        if (day in table.weekend_workdays if day.weekday() in off else day not in table)
    )


def _table(source: Source, year: int) -> HolidayBase:
    """The holidays of one year alone: the package's tables grow when they are asked, unless told not to."""
    import holidays

    make = holidays.financial_holidays if source.is_market else holidays.country_holidays
    return make(source.code, subdiv=source.subdivision, years=year, expand=False)


@lru_cache(maxsize=1_000)
def _present_weekend(source: Source | None) -> frozenset[int]:
    """As of 2026."""
    if source is None:
        return frozenset({5, 6})
    table = _table(source, 2026)
    return frozenset(day for day in range(7) if table.is_weekend(date(2026, 1, 5 + day)))


@lru_cache(maxsize=1_000)
def _known(source: Source) -> range:
    entity = _entity(source.code)
    first, last = _KNOWN.get(source.code, (entity.start_year, entity.end_year))
    return range(first, last + 1)


def _entity(code: str) -> Any:
    """The class of a country or a market; the package loads it when it is first looked at."""
    import holidays

    return getattr(holidays, code)


def _source(country: str | None, subdivision: str | None, market: str | None) -> Source | None:
    """Whose holidays, by the codes that the package prefers; its other codes (USA, NYSE) are read as well."""
    if country is not None and market is not None:
        raise InvalidRule(
            "country= and market= were both given; choose one. For days on which both work: "
            "only_on(business_days(market=...), workdays(country))"
        )
    given = country if market is None else market
    if given is None:
        if subdivision is not None:
            raise InvalidRule(f"subdivision={subdivision!r:.80} requires a country; add country=")
        return None
    code = _code(given, is_market=market is not None)
    return Source(code, _subdivision(code, subdivision), market is not None)


def _code(given: object, is_market: bool) -> str:
    codes, names = _codes(is_market)
    kind, other = ("market", "country") if is_market else ("country", "market")
    if isinstance(given, str) and given in codes:
        return codes[given]
    word = given.strip()[:100] if isinstance(given, str) else ""
    folded = word.casefold().replace("_", " ")
    near = get_close_matches(folded, names, 1, 0.8)
    if word.upper() in codes:
        advice = f"write {codes[word.upper()]!r}"
    elif near:
        advice = f"did you mean {names[near[0]]!r} ({near[0].title()})?"
    elif word.upper() in _codes(not is_market)[0]:
        advice = f"that is a {other}: write {other}={word.upper()!r}"
    else:
        advice = (
            "give its MIC, such as 'XNYS' or 'XECB'" if is_market else "give its ISO 3166 code, such as 'US' or 'DE'"
        )
    raise InvalidRule(f"there is no {kind} {given!r:.80} in the holidays package; {advice}")


@lru_cache(maxsize=2)
def _codes(is_market: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Every code, and every name in small letters, with the code that is preferred."""
    from holidays.registry import COUNTRIES, FINANCIAL

    codes, names = {}, {}
    for module, (_, preferred, *others) in (FINANCIAL if is_market else COUNTRIES).items():
        codes.update(dict.fromkeys((preferred, *others), preferred))
        names[module.replace("_", " ")] = preferred
    return codes, names


def _subdivision(code: str, given: object) -> str | None:
    if given is None:
        return None
    entity = _entity(code)
    aliases: dict[str, str] = entity.subdivisions_aliases
    if isinstance(given, str) and given in entity.subdivisions:
        return given
    if isinstance(given, str) and given in aliases:
        return aliases[given]
    if not entity.subdivisions:
        raise InvalidRule(f"the holidays package has no subdivisions of {code}; leave subdivision= out")
    folded = {name.casefold(): name for name in (*aliases, *entity.subdivisions)}
    near = get_close_matches(str(given)[:100].casefold(), folded, 1, 0.6)
    advice = f"did you mean {folded[near[0]]!r}?" if near else f"give one of {', '.join(entity.subdivisions)}"
    raise InvalidRule(f"{code} has no subdivision {given!r:.80}; {advice}")
