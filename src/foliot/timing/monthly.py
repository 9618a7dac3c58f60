"""Days of the month that cron can say, for those who would not write it as cron."""

from __future__ import annotations

from collections.abc import Iterable

from foliot.errors import InvalidRule
from foliot.timing.cron import Cron
from foliot.timing.names import months as months_of
from foliot.timing.names import times as times_of
from foliot.timing.names import weekday


def month_end(*, at: str = "00:00", tz: str = "UTC") -> Cron:
    """The last day of each month, working day or not. For a policy of gaps and folds write it as cron: `0 6 L * *`."""
    return _cron(at, "L * *", tz)


def nth_weekday(
    n: int | str, day: str, *, months: Iterable[int | str] | None = None, at: str = "00:00", tz: str = "UTC"
) -> Cron:
    """The n-th of a weekday in each month: `nth_weekday(2, "tue")`. A month without a fifth has no tick."""
    if n in ("last", -1):
        return last_weekday(day, months=months, at=at, tz=tz)
    count = 1 if n == "first" else n
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 5:
        raise InvalidRule(f"n={n!r:.80} is not a weekday number of a month; give 1 to 5, or last")
    return _cron(at, f"* {_month_field(months)} {_cron_weekday(day)}#{count}", tz)


def last_weekday(day: str, *, months: Iterable[int | str] | None = None, at: str = "00:00", tz: str = "UTC") -> Cron:
    """The last of a weekday in each month: `last_weekday("fri", at="18:00", tz="Europe/Paris")`."""
    return _cron(at, f"* {_month_field(months)} {_cron_weekday(day)}L", tz)


def _cron(at: str, days: str, tz: str) -> Cron:
    times = times_of(at)
    if len(times) > 1:
        raise InvalidRule(f"at={at!r:.80} has several times; write one rule for each, and combine them: rule | rule")
    hour, minute, second = times[0] // 3600, times[0] // 60 % 60, times[0] % 60
    if second:
        return Cron(f"{second} {minute} {hour} {days}", tz, sixth="seconds")
    return Cron(f"{minute} {hour} {days}", tz)


def _month_field(months: Iterable[int | str] | None) -> str:
    return "*" if months is None else ",".join(map(str, months_of(months)))


def _cron_weekday(name: str) -> int:
    """Cron's weeks begin on Sunday, 0."""
    return (weekday(name) + 1) % 7
