"""Other cron engines, asked the same questions, and every way in which they are known to differ from us.

A quirk has a name and a reason, and it says what the other engine answers instead, exactly: either it answers another
question (`reads`), or its answer follows from ours (`fits`). A difference that no quirks explain is a defect, theirs or
ours, that somebody has to look at.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, reduce
from itertools import combinations, islice
from pathlib import Path
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter
from cronsim import CronSim

from foliot.domain.instant import SECOND
from foliot.errors import InvalidRule
from foliot.timing import cron, upcoming
from tests.timing.oracles import (
    DAY,
    EPOCH,
    FIRST,
    HOUR,
    LAST,
    MINUTE,
    WEEKDAYS,
    Line,
    Shift,
    in_field,
    second_of,
    shifts,
    table,
)

LONGEST = 5.0
"""Seconds of processor time that an engine may think about one question: some would think for ever."""

Answer = list[int]
"""Ticks, in seconds."""


@dataclass(frozen=True)
class Case:
    """A question: the first ticks of a line, strictly after an instant (in seconds)."""

    line: str
    zone: str
    start: int
    count: int = 3
    gap: str = "run_after"
    fold: str = "first"
    interval_like: str = "auto"

    def __str__(self) -> str:
        return f"{self.line!r} in {self.zone} after {local(self.zone, self.start)}"


def local(zone: str, second: int) -> datetime:
    return datetime.fromtimestamp(second, table(zone))


# ------------------------------------------------------------------------------------------------------------- engines


def ours(case: Case) -> Answer:
    rule = cron(case.line, tz=case.zone, gap=case.gap, fold=case.fold, interval_like=case.interval_like)
    return [tick // SECOND for tick in upcoming(rule, case.start * SECOND, case.count)]


def ask_cronsim(case: Case) -> Answer:
    with bounded():
        ticks = islice(CronSim(case.line, local(case.zone, case.start)), case.count)
        return [int(tick.timestamp()) for tick in ticks]


def ask_croniter(case: Case) -> Answer:
    found: Answer = []
    with bounded():
        # It reads the two day fields in its own way; this asks for Vixie's.
        ticks = croniter(case.line, local(case.zone, case.start), ret_type=datetime, implement_cron_bug=True)
        try:
            while len(found) < case.count:
                found.append(int(ticks.get_next().timestamp()))
        except CroniterBadDateError:
            pass
    return found


def ask_systemd(case: Case) -> Answer:
    """What `systemd-analyze calendar` says. The line must be one that `on_calendar` can translate."""
    base = datetime.fromtimestamp(case.start, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    said = subprocess.run(
        ["systemd-analyze", "calendar", f"--iterations={case.count}", f"--base-time={base}", on_calendar(case)],
        env={"TZ": "UTC", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    # It counts its steps, and says so when it gives up: that is an answer, if a short one.
    if said.returncode and "Resource deadlock avoided" not in said.stderr:
        raise RuntimeError(said.stderr)
    whens = re.findall(r"(?:Next elapse|Iter\. #[0-9]+): (... [0-9: -]+) UTC", said.stdout)
    return [int(datetime.strptime(f"{when}+0000", "%a %Y-%m-%d %H:%M:%S%z").timestamp()) for when in whens]


def is_for_systemd(line: str) -> bool:
    """Whether it needs both day fields: systemd knows no `or`."""
    return "*" in (line.split()[2][0], line.split()[4][0])


def on_calendar(case: Case) -> str:
    """A cron line as systemd writes it: `Mon,Fri *-*-1,15 2:30:00 Europe/Paris`."""
    minute, hour, day, month, weekday = case.line.split()
    named = [number for number in range(8) if in_field(weekday, number, 0, 7, " ".join(WEEKDAYS))]
    days = "" if len(named) == 8 else ",".join(dict.fromkeys(WEEKDAYS[number % 7].title() for number in named))
    date = f"*-{_listed(month, 1, 12)}-{_listed(day, 1, 31)}"
    return f"{days} {date} {_listed(hour, 0, 23)}:{_listed(minute, 0, 59)}:00 {case.zone}".strip()


def _listed(field: str, low: int, high: int) -> str:
    values = [str(value) for value in range(low, high + 1) if in_field(field, value, low, high)]
    return "*" if len(values) > high - low else ",".join(values)


@cache
def is_the_same_on_this_host(zone: str) -> bool:
    """Whether the host, whose tables systemd reads, has the zone as we have it, in the years that we ask about."""
    path = Path("/usr/share/zoneinfo", zone)
    if not path.is_file():
        return False
    with path.open("rb") as stored:
        host = ZoneInfo.from_file(stored, key=zone)
    looks = {*range(FIRST, LAST, 5 * DAY), *(shift.at - back for shift in shifts(zone) for back in (0, 1))}
    return all(datetime.fromtimestamp(second, host).utcoffset() == local(zone, second).utcoffset() for second in looks)


@contextmanager
def bounded() -> Iterator[None]:
    """Interrupts an engine that loops. It counts processor time, so that a busy machine changes nothing."""

    def interrupt(*_: object) -> None:
        raise RuntimeError("the engine has not answered within its time")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# -------------------------------------------------------------------------------------------------------------- quirks


@dataclass(frozen=True)
class Quirk:
    """A way in which an engine is known to differ."""

    reason: str
    example: Case
    reads: Callable[[Case], Case] | None = None
    """The question that it answers instead, as we would answer it."""
    fits: Callable[[Case, Answer, Answer], bool] | None = None
    """Whether its answer (the second) follows from ours (the first)."""


def explain(case: Case, theirs: Answer, quirks: dict[str, Quirk]) -> tuple[str, ...]:
    """The names of the fewest quirks that lead from our answer to theirs; none when there are none."""
    for count in (1, 2, 3):
        for names in combinations(quirks, count):
            some = [quirks[name] for name in names]
            fits = [quirk.fits for quirk in some if quirk.fits is not None]
            asked = reduce(lambda asked, quirk: quirk.reads(asked) if quirk.reads else asked, some, case)
            if len(fits) > 1 or (asked == case and not fits):
                continue
            try:
                expected = ours(asked)
            except InvalidRule:
                continue
            if fits[0](asked, expected, theirs) if fits else expected == theirs:
                return names
    return ()


def each_item(case: Case, change: Callable[[str, int, int], str]) -> Case:
    """The case, with each item of each field read differently; `change` is given the field's bounds too."""
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    fields = zip(case.line.split(), bounds, strict=True)
    return replace(
        case, line=" ".join(",".join(change(item, *ends) for item in field.split(",")) for field, ends in fields)
    )


def around(case: Case, theirs: Answer) -> list[Shift]:
    """The shifts from a day before the start to a day after the last tick."""
    return [shift for shift in shifts(case.zone) if case.start - DAY <= shift.at <= max(theirs, default=LAST) + DAY]


def asks_for(case: Case, shift: Shift) -> bool:
    """Whether some wall time of the line falls into this gap."""
    missing = range(shift.at + shift.before, shift.at + shift.after, MINUTE)
    return any(Line(case.line).has_minute(EPOCH + timedelta(seconds=wall)) for wall in missing)


def in_first_pass(case: Case) -> Case:
    """The same wall time on its first pass, where the start lies in a second one."""
    if not local(case.zone, case.start).fold:
        return case
    shift = max(shift for shift in shifts(case.zone) if shift.at <= case.start)
    return replace(case, start=case.start + shift.after - shift.before)


def skips_a_day_and_runs_after_it(case: Case, expected: Answer, theirs: Answer) -> bool:
    ends = {
        shift.at
        for shift in around(case, theirs)
        if shift.after - shift.before > 3 * HOUR and shift.at > case.start and asks_for(case, shift)
    }
    return bool(ends) and sorted({*expected, *ends})[: case.count] == theirs


def is_off_the_hour(shift: Shift) -> bool:
    return (shift.at + shift.before) % HOUR != 0 or (shift.after - shift.before) % HOUR != 0


def differs_around_a_shift_off_the_hour(case: Case, expected: Answer, theirs: Answer) -> bool:
    """Equal up to the shift, and again a day after it."""
    odd = [shift.at for shift in around(case, theirs) if is_off_the_hour(shift)]
    if not Line(case.line).is_interval or not odd or theirs != sorted(set(theirs)):
        return False
    last = min(expected[-1], theirs[-1])
    differing = [tick for tick in {*expected} ^ {*theirs} if tick <= last]
    return all(any(at - 2 * HOUR <= tick <= at + DAY for at in odd) for tick in differing)


def can_fire(line: str) -> bool:
    try:
        cron(line)
    except InvalidRule:
        return False
    return True


def walls(zone: str, ticks: Answer) -> list[datetime]:
    return [local(zone, tick).replace(tzinfo=None, fold=0) for tick in ticks]


def changes_summer_time(zone: str, shift: Shift) -> bool:
    return bool(local(zone, shift.at - 1).dst()) != bool(local(zone, shift.at).dst())


def loses_the_rest_of_the_day(case: Case, expected: Answer, theirs: Answer) -> bool:
    for shift in around(case, theirs):
        if shift.after > shift.before and local(case.zone, shift.at - 1).dst() and asks_for(case, shift):
            day = local(case.zone, shift.at).date()
            more = ours(replace(case, count=case.count + 24 * 60))
            kept = [tick for tick in more if tick < shift.at or local(case.zone, tick).date() > day]
            if kept[: case.count] == theirs:
                return True
    return False


def loses_times_after_a_long_gap(case: Case, expected: Answer, theirs: Answer) -> bool:
    for shift in around(case, theirs):
        lost = range(shift.at, shift.at + shift.after - shift.before - HOUR)
        more = ours(replace(case, count=case.count + 2 * 60))
        if lost and [tick for tick in more if tick not in lost][: case.count] == theirs:
            return True
    return False


CRONSIM = {
    "CRONSIM_STEPS_ON_FROM_A_RANGE_OF_ONE": Quirk(
        "5-5/2 is 5 alone; it reads 5-59/2",
        Case("0 2-2/5 * * *", "Europe/Paris", second_of(2025, 6, 1)),
        reads=lambda case: each_item(
            case, lambda item, _, high: re.sub(r"^(\d+)-\1/", lambda found: f"{found[1]}-{high}/", item)
        ),
    ),
    "CRONSIM_RUNS_AFTER_A_SKIPPED_DAY": Quirk(
        "a gap of more than three hours is skipped; it runs a fixed time after any gap",
        Case("0 23 * * *", "Pacific/Apia", second_of(2011, 12, 29)),
        fits=skips_a_day_and_runs_after_it,
    ),
    "CRONSIM_GOES_BACK_FROM_A_SECOND_PASS": Quirk(
        "for fixed times it drops the zone, and with it the knowledge that the hour is the repeated one",
        Case("30 1 * * *", "America/New_York", second_of(2025, 11, 2, 6, 10)),
        reads=lambda case: case if Line(case.line).is_interval else in_first_pass(case),
    ),
    "CRONSIM_RUNS_A_STAR_RULE_AFTER_A_GAP_AT_MIDNIGHT": Quirk(
        "a star rule passes over a gap; when it comes from another day it starts at a midnight that does not exist",
        Case("*/31 */13 * * 7", "America/Santiago", second_of(2025, 9, 7)),
        reads=lambda case: replace(case, interval_like="never", fold="both") if Line(case.line).is_interval else case,
    ),
    "CRONSIM_MISSTEPS_WHERE_A_SHIFT_IS_NOT_ON_THE_HOUR": Quirk(
        "for star rules it steps in whole hours from minute 0, which half an hour, or a shift at 00:01, puts off",
        Case("* 3 * * *", "Australia/Lord_Howe", second_of(2022, 4, 2, 11)),
        fits=differs_around_a_shift_off_the_hour,
    ),
    "CRONSIM_REPEATS_AN_INSTANT_FOR_EVER": Quirk(
        "in a fold at 00:01, in Newfoundland and Labrador until 2011, a step of an hour leads it back",
        Case("* 0 * * *", "America/St_Johns", second_of(2010, 11, 6, 23, 31)),
        fits=lambda case, _, theirs: (
            len(set(theirs)) < len(theirs)
            and theirs[-1] == theirs[-2]
            and case.zone in ("America/St_Johns", "America/Goose_Bay")
            and Line(case.line).is_interval
        ),
    ),
}

CRONITER = {
    "CRONITER_READS_A_RANGE_OF_ONE_AS_ALL": Quirk(
        "5-5 is 5; it reads 0-59, and 5-5/2 as 0-59/2",
        Case("0 5-5 * * *", "Europe/Paris", second_of(2025, 6, 1)),
        reads=lambda case: each_item(case, lambda item, low, high: re.sub(r"^(\d+)-\1(?=/|$)", f"{low}-{high}", item)),
    ),
    "CRONITER_RUNS_FIXED_TIMES_TWICE_IN_A_FOLD": Quirk(
        "a fixed time runs once; it runs every time that the clock shows it",
        Case("30 1 * * *", "America/New_York", second_of(2025, 11, 1, 12)),
        reads=lambda case: replace(case, fold="both"),
    ),
    "CRONITER_RUNS_STAR_RULES_AFTER_A_GAP": Quirk(
        "a star rule passes over a gap; it makes up for times in a gap always",
        Case("*/15 2 * * *", "America/New_York", second_of(2025, 3, 8, 12)),
        reads=lambda case: replace(case, interval_like="never", fold="both") if Line(case.line).is_interval else case,
    ),
    "CRONITER_RUNS_AFTER_A_SKIPPED_DAY": Quirk(
        "a gap of more than three hours is skipped; it makes up for times in a gap always",
        Case("0 23 * * *", "Pacific/Apia", second_of(2011, 12, 29)),
        fits=skips_a_day_and_runs_after_it,
    ),
    "CRONITER_TAKES_A_FULL_RANGE_FOR_A_STAR": Quirk(
        "0-23 is a fixed list of hours; it forgets how the field was written",
        Case("30 0-23 * * *", "America/New_York", second_of(2025, 3, 9, 6)),
        reads=lambda case: each_item(case, lambda item, low, high: "*" if item in ("0-59", "0-23") else item),
    ),
    "CRONITER_IGNORES_THE_WEEKDAY_WHERE_NO_MONTH_HAS_THE_DAY": Quirk(
        "31 2 6 means a 31 February or a Saturday, so each Saturday of February; it gives up",
        Case("0 2 31 2 sat", "Europe/Paris", second_of(2025, 6, 1)),
        fits=lambda case, _, theirs: not theirs and not can_fire(f"{case.line.rsplit(' ', 1)[0]} *"),
    ),
}

SYSTEMD = {
    "SYSTEMD_REPEATS_WHEN_STARTED_IN_A_SECOND_PASS": Quirk(
        "what ran on the first pass does not run on the second; it knows only where it starts",
        Case("30 1 * * *", "America/New_York", second_of(2025, 11, 2, 6, 10)),
        reads=lambda case: replace(case, fold="both") if local(case.zone, case.start).fold else case,
    ),
    "SYSTEMD_CONFUSES_THE_PASSES_WHERE_NO_SUMMER_TIME_ENDS": Quirk(
        "it tells the passes apart by whether it is summer time, and here both are standard time",
        Case("* 1 * * *", "Asia/Irkutsk", second_of(2014, 10, 25)),
        fits=lambda case, expected, theirs: (
            any(
                shift.after < shift.before and not changes_summer_time(case.zone, shift)
                for shift in around(case, theirs)
            )
            and walls(case.zone, theirs) in (walls(case.zone, expected), walls(case.zone, ours(in_first_pass(case))))
        ),
    ),
    "SYSTEMD_LOSES_THE_DAY_ON_WHICH_WINTER_TIME_ENDS": Quirk(
        "where the winter is what is marked (Ireland, Namibia), a time in the gap makes it leave the day altogether",
        Case("20 1,5 * * *", "Europe/Dublin", second_of(2024, 3, 30, 12)),
        fits=loses_the_rest_of_the_day,
    ),
    "SYSTEMD_GIVES_UP_IN_A_GAP_THAT_STARTS_OFF_THE_HOUR": Quirk(
        "where the clocks jump at 00:01 (Casey, Newfoundland until 2011), a time in the gap is the end of its search",
        Case("20 */8 * * *", "Antarctica/Casey", second_of(2021, 10, 2, 9, 33)),
        fits=lambda case, expected, theirs: any(
            shift.after > shift.before
            and (shift.at + shift.before) % HOUR
            and asks_for(case, shift)
            and theirs in ([], [tick for tick in expected if tick < shift.at])
            for shift in around(case, expected)
        ),
    ),
    "SYSTEMD_LOSES_TIMES_AFTER_A_GAP_OF_TWO_HOURS": Quirk(
        "it steps through the gap an hour at a time, and a step in its last hour lands an hour beyond its end",
        Case("* 2-6 * * *", "Antarctica/Davis", second_of(2010, 3, 10, 12)),
        fits=loses_times_after_a_long_gap,
    ),
}
