"""Every way in which other engines are known to differ from us.

A quirk has a name, a reason and an example, and it says what the other engine answers instead, exactly: either it
answers another question (`reads`), or its answer follows from ours (`fits`). A difference that no quirks explain is a
defect, theirs or ours, that somebody has to look at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from itertools import combinations

from foliot.errors import InvalidRule
from foliot.timing import cron
from tests.timing.engines import Answer, Case, local, ours
from tests.timing.oracles import DAY, EPOCH, HOUR, LAST, MINUTE, Line, Shift, second_of, shifts


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


def differs_only(expected: Answer, theirs: Answer, spans: list[range]) -> bool:
    """Whether what only one of the two has lies within these spans of time."""
    if not theirs or len(theirs) != len(expected) or theirs != sorted(set(theirs)):
        return False
    last = min(expected[-1], theirs[-1])
    return all(any(tick in span for span in spans) for tick in {*expected} ^ {*theirs} if tick <= last)


def differs_after_a_gap_at_midnight(case: Case, expected: Answer, theirs: Answer) -> bool:
    spans = [
        range(shift.at, shift.at + HOUR)
        for shift in around(case, theirs)
        if shift.after > shift.before and (shift.at + shift.before) % DAY == 0
    ]
    return Line(case.line).is_interval and differs_only(expected, theirs, spans)


def differs_around_a_shift_off_the_hour(case: Case, expected: Answer, theirs: Answer) -> bool:
    spans = [
        range(shift.at - 2 * HOUR, shift.at + DAY)
        for shift in around(case, theirs)
        if (shift.at + shift.before) % HOUR != 0 or (shift.after - shift.before) % HOUR != 0
    ]
    return Line(case.line).is_interval and differs_only(expected, theirs, spans)


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


def loses_what_follows_the_gap(case: Case, expected: Answer, theirs: Answer) -> bool:
    for shift in around(case, theirs):
        # The last full hour that the clocks jumped over becomes an instant as if they had not.
        hour = (shift.at + shift.after - 1) // HOUR * HOUR
        lost = range(shift.at, hour - shift.before)
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
        "a gap of more than three hours is skipped; the rule fires a fixed time after any gap",
        Case("0 23 * * *", "Pacific/Apia", second_of(2011, 12, 29)),
        fits=skips_a_day_and_runs_after_it,
    ),
    "CRONSIM_GOES_BACK_FROM_A_SECOND_PASS": Quirk(
        "for fixed times it drops the zone, and with it the knowledge that the hour is the repeated one",
        Case("30 1 * * *", "America/New_York", second_of(2025, 11, 2, 6, 10)),
        reads=lambda case: case if Line(case.line).is_interval else in_first_pass(case),
    ),
    "CRONSIM_STARTS_AT_A_MIDNIGHT_THAT_DOES_NOT_EXIST": Quirk(
        "coming from another day a star rule begins at 00:00, also in a gap: it runs there, or loses the hour after",
        Case("*/31 */13 * * 7", "America/Santiago", second_of(2025, 9, 7)),
        fits=differs_after_a_gap_at_midnight,
    ),
    "CRONSIM_MISSTEPS_WHERE_A_SHIFT_IS_NOT_ON_THE_HOUR": Quirk(
        "for star rules it steps in whole hours from minute 0, which half an hour, or a shift at 00:01, puts off",
        Case("* 3 * * *", "Australia/Lord_Howe", second_of(2022, 4, 2, 11)),
        fits=differs_around_a_shift_off_the_hour,
    ),
    "CRONSIM_GOES_BACK_IN_A_FOLD_OFF_THE_HOUR": Quirk(
        "where a fold is not on the hour (Newfoundland until 2011, Chatham), a step of an hour leads it back, for ever",
        Case("* 0 * * *", "America/St_Johns", second_of(2010, 11, 6, 23, 31)),
        fits=lambda case, _, theirs: (
            theirs != sorted(set(theirs))
            and Line(case.line).is_interval
            and any(shift.after < shift.before and (shift.at + shift.before) % HOUR for shift in around(case, theirs))
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
        "a fixed time runs once; the rule fires every time that the clock shows it",
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
        reads=lambda case: each_item(
            case, lambda item, low, high: "*" if item.removesuffix("/1") in ("0-59", "0-23") else item
        ),
    ),
    "CRONITER_LOSES_TIMES_IN_A_FOLD_THAT_IS_NOT_ONE_HOUR": Quirk(
        "a star rule runs on; from the first pass it goes on as if an hour had been repeated",
        Case("*/21 * * * *", "Australia/Lord_Howe", second_of(2014, 4, 5, 14, 32)),
        fits=lambda case, expected, theirs: differs_only(
            expected,
            theirs,
            [
                range(shift.at, shift.at + shift.before - shift.after)
                for shift in around(case, theirs)
                if shift.before - shift.after != HOUR
            ],
        ),
    ),
    "CRONITER_MIXES_UP_NUMBERED_WEEKDAYS_WITH_DAYS": Quirk(
        "24-31 * 1#4 means those days or the fourth Monday; what it answers is neither that nor both at once",
        Case("0 8 24-31 * 1#4", "Europe/Paris", second_of(2023, 10, 21)),
        fits=lambda case, *_: "#" in case.line and case.line.split()[2][0] != "*",
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
    "SYSTEMD_LOSES_WHAT_FOLLOWS_A_GAP_OF_MORE_THAN_AN_HOUR_OR_OFF_THE_HOUR": Quirk(
        "it steps through the hours of a gap, and the last of them leads it beyond the end",
        Case("*/6 3-6 * * *", "Pacific/Chatham", second_of(2022, 9, 24, 3)),
        fits=loses_what_follows_the_gap,
    ),
}
