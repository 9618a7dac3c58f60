"""Times of day, weekdays and months, as people write them and as they are shown to people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from foliot.errors import InvalidRule

MOST_TIMES = 100
MONTHS = "January February March April May June July August September October November December".split()
EVERY_MONTH = tuple(range(1, 13))
_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
WEEKDAYS = tuple(name[:3].lower() for name in _WEEKDAYS)
_TIME = re.compile(r"(\d\d?):(\d\d)(?::(\d\d))?", re.ASCII)


def weekday(given: object) -> int:
    """A weekday by its name, `fri` or `Friday`; Monday is 0. Numbers are refused: some count from Sunday."""
    number = _named(given, _WEEKDAYS)
    if number is None:
        raise InvalidRule(f"{given!r:.80} is not a weekday; give one of {', '.join(WEEKDAYS)}")
    return number


def months(given: Iterable[int | str] | None) -> tuple[int, ...]:
    """Months by number or name, sorted; None is every month."""
    if given is None:
        return EVERY_MONTH
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidRule(f"months={given!r:.80} is not a list of months; write [1, 7] or ['jan', 'jul']")
    found = {_month(one) for one in given}
    if not found:
        raise InvalidRule("months= is empty, so this rule can never fire; leave it out for every month")
    return tuple(sorted(found))


def _month(given: object) -> int:
    if isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= 12:
        return given
    number = _named(given, MONTHS)
    if number is None:
        raise InvalidRule(f"{given!r:.80} is not a month; give 1 to 12, or a name such as jan")
    return number + 1


def _named(given: object, names: Sequence[str]) -> int | None:
    """Which of the names begins with what is given, three letters at least."""
    word = given.strip().title() if isinstance(given, str) else ""
    return next((place for place, name in enumerate(names) if len(word) >= 3 and name.startswith(word)), None)


def among(chosen: tuple[int, ...]) -> str:
    """Months in words; all of them are `the month`."""
    return "the month" if chosen == EVERY_MONTH else listed([MONTHS[one - 1] for one in chosen])


def times(at: str | Iterable[str]) -> tuple[int, ...]:
    """One time of day or several, as sorted seconds after midnight."""
    given = [at] if isinstance(at, str) else [*at] if isinstance(at, Sequence | set | frozenset) else []
    if not 1 <= len(given) <= MOST_TIMES:
        raise InvalidRule(f'at={at!r:.80} is not a time of day; write "06:00", or up to {MOST_TIMES} in a list')
    return tuple(sorted({_time(one) for one in given}))


def _time(text: object) -> int:
    match = _TIME.fullmatch(text.strip()) if isinstance(text, str) else None
    hour, minute, second = (int(part or 0) for part in match.groups()) if match else (99, 0, 0)
    if hour > 23 or minute > 59 or second > 59:
        raise InvalidRule(f'{text!r:.80} is not a time of day; write "06:00" or "06:00:30", up to "23:59:59"')
    return hour * 3600 + minute * 60 + second


def clock(time: int) -> str:
    """`06:00`, with seconds only where there are some."""
    return f"{time // 3600:02}:{time // 60 % 60:02}" + (f":{time % 60:02}" if time % 60 else "")


def ordinal(n: int) -> str:
    """`1st`, `22nd`, `last`, `2nd to last`."""
    if n == -1:
        return "last"
    size = abs(n)
    ending = "th" if size % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(size % 10, "th")
    return f"{size}{ending}" + (" to last" if n < 0 else "")


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
