"""Rules made of rules: the ticks of a combination are those that set algebra gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from foliot.domain.instant import DAY, HOUR, MINUTE, SECOND, Instant, instant, to_datetime
from foliot.domain.rule import Rule
from foliot.errors import InvalidRule
from foliot.timing import At, Composable, after, at, business, combine, cron, decode, every, only_on, upcoming, workdays
from foliot.timing.combine import Bounded, Exclusion, Intersection, Outside, Union
from foliot.timing.effort import MOST_STEPS
from tests.tiers import by_tier
from tests.timing.calls import at_most

# New York sets its clocks back on the second day.
FIRST, LAST = (instant(datetime(2025, 11, day, 4, tzinfo=UTC)) for day in (1, 5))
NEW_YORK = "America/New_York"

instants = some.integers(FIRST, LAST)
simple = some.sampled_from(
    [
        cron("*/20 * * * *"),
        cron("0,40 */2 * * *", tz=NEW_YORK),
        cron("30 1 * * *", tz=NEW_YORK),
        cron("30 1 * * *", tz=NEW_YORK, fold="both"),
        cron("*/30 1-3 * * *", tz=NEW_YORK, interval_like="never"),
        cron("15 6-22 2-3 * *", tz="Europe/Paris"),
        every("35m"),
        every("1h", start=datetime(1970, 1, 1, 0, 30, tzinfo=UTC)),
        at(datetime(2025, 11, 2, 6, tzinfo=UTC)),
    ]
)
# What agrees only once, half a century after 1970, is refused: nobody can tell it from what never does.
recurring = simple.filter(lambda rule: not isinstance(rule, At))


def found(answer: Callable[[Instant], Instant | None], moment: Instant) -> Instant | None:
    """The tick, or None: also for a combination without any more of them, which says so loudly, having looked far."""
    try:
        return answer(moment)
    except InvalidRule as gave_up:
        if "exclude all nearby ticks" not in str(gave_up):
            raise
        return None


def ticks_of(rule: Composable) -> set[Instant]:
    """All ticks of the four days, as the rule itself lists them; the other way round it lists the same."""
    forwards, tick = [], found(rule.next, FIRST - 1)
    while tick is not None and tick < LAST:
        forwards.append(tick)
        tick = found(rule.next, tick)
    backwards, tick = [], found(rule.previous, LAST)
    while tick is not None and tick >= FIRST:
        backwards.append(tick)
        tick = found(rule.previous, tick)
    assert forwards == backwards[::-1] == sorted(set(forwards))
    return set(forwards)


def combined(build: Callable[[], Composable], expected: set[Instant], moment: Instant) -> None:
    """The combination has exactly these ticks, and finds them from anywhere; or it is refused, having none."""
    try:
        rule = build()
    except InvalidRule:
        if expected:
            raise
        return
    assert ticks_of(rule) == expected
    later, earlier = [one for one in expected if one > moment], [one for one in expected if one < moment]
    if later:
        assert rule.next(moment) == min(later)
    if earlier:
        assert rule.previous(moment) == max(earlier)
    for tick in islice(expected, 5):
        assert rule.has(tick)


# ---------------------------------------------------------------------------------------------------------------- laws


# A refusal takes its time: it looks through centuries.
@settings(max_examples=by_tier(10, 60, 500))
@given(simple, simple, instants)
def test_a_union_has_the_ticks_of_either(one: Composable, other: Composable, moment: Instant) -> None:
    combined(lambda: one | other, ticks_of(one) | ticks_of(other), moment)


@settings(max_examples=by_tier(10, 60, 500))
@given(simple, simple, instants)
def test_an_intersection_has_the_ticks_of_both(one: Composable, other: Composable, moment: Instant) -> None:
    combined(lambda: one & other, ticks_of(one) & ticks_of(other), moment)


@settings(max_examples=by_tier(10, 60, 500))
@given(simple, simple, instants)
def test_an_exclusion_has_the_ticks_that_the_other_lacks(one: Composable, other: Composable, moment: Instant) -> None:
    combined(lambda: one - other, ticks_of(one) - ticks_of(other), moment)


@settings(max_examples=by_tier(10, 60, 500))
@given(simple, instants, instants, instants)
def test_a_bounded_rule_has_the_ticks_from_start_to_end(
    rule: Composable, start: Instant, end: Instant, moment: Instant
) -> None:
    kept = {tick for tick in ticks_of(rule) if start <= tick < end}
    combined(lambda: rule.between(to_datetime(start), to_datetime(end)), kept, moment)


@settings(max_examples=by_tier(10, 60, 500))
@given(simple, simple, some.integers(1, 300), instants)
def test_outside_of_windows_are_the_ticks_in_none_of_them(
    rule: Composable, opening: Composable, minutes: int, moment: Instant
) -> None:
    length = minutes * MINUTE
    # A window that opened before the four days may reach into them.
    opened = ticks_of(opening) | set(islice(before(opening, FIRST), 20))
    kept = {tick for tick in ticks_of(rule) if not any(start <= tick < start + length for start in opened)}
    if kept:  # without any, it may still fire on other days
        combined(lambda: rule.outside(opening, timedelta(minutes=minutes)), kept, moment)


def of_three(first: Composable, second: Composable, third: Composable) -> Iterator[Composable]:
    """Each combination of three rules, in this order."""
    pairs: list[Callable[[Composable, Composable], Composable]] = [
        Composable.__or__,
        Composable.__and__,
        Composable.__sub__,
        lambda one, other: one.outside(other, "20m"),
    ]
    ends: list[Callable[[Composable], Composable]] = [
        lambda rule: rule,
        lambda rule: rule.between(to_datetime(FIRST + DAY)),
        lambda rule: only_on(rule, workdays(), tz="UTC"),
    ]
    for outer, inner, end in product(pairs, pairs, ends):
        yield outer(end(inner(first, second)), third)
        yield outer(first, end(inner(second, third)))
        yield end(outer(first, inner(second, third)))
        yield end(outer(inner(first, second), third))


@settings(max_examples=by_tier(3, 30, 300))
@given(simple, simple, simple)
def test_rules_with_different_ticks_have_different_words(
    first: Composable, second: Composable, third: Composable
) -> None:
    by_words: dict[str, Composable] = {}
    with pytest.MonkeyPatch.context() as patch:
        for module in (combine, business):  # many of them never fire, and a search would take long to see that
            patch.setattr(module, "check_that_it_fires", lambda *_: None)
        for rule in of_three(first, second, third):
            assert by_words.setdefault(rule.explain(), rule) == rule


def test_rules_within_rules_are_made_with_few_steps() -> None:
    rule: Composable = cron("0 0 13 * *")
    with at_most(20_000):
        for _ in range(45):
            rule = (rule & (cron("0 0 * * 5") | cron("0 0 1 1 *"))) - cron("0 0 24 12 *")


@given(simple, simple, some.lists(instants, min_size=1, max_size=20))
def test_an_answer_does_not_depend_on_what_was_asked_before(
    one: Composable, other: Composable, moments: list[Instant]
) -> None:
    shared = one | other
    assert [shared.next(moment) for moment in moments] == [(one | other).next(moment) for moment in moments]


def test_brackets_show_which_rules_belong_together() -> None:
    nine, ten, noon = (cron(f"0 {hour} * * *") for hour in (9, 10, 12))
    assert ((nine | noon) - ten).explain() == (
        "(at 09:00 UTC every day; or at 12:00 UTC every day), except at 10:00 UTC every day"
    )
    assert (nine | (noon - ten)).explain() == (
        "at 09:00 UTC every day; or (at 12:00 UTC every day, except at 10:00 UTC every day)"
    )
    assert (nine | noon | ten).explain().count("(") == 0


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({}, "at 01:30 America/New_York every day"),
        ({"preset": "vixie"}, "at 01:30 America/New_York every day"),
        ({"fold": "both"}, "at 01:30 America/New_York every day (fold=both)"),
        ({"preset": "quartz"}, "at 01:30 America/New_York every day (gap=skip, fold=second, interval_like=never)"),
    ],
)
def test_a_policy_of_its_own_is_part_of_the_words(policy: dict[str, Any], words: str) -> None:
    assert cron("30 1 * * *", tz=NEW_YORK, **policy).explain() == words


def test_the_clocks_of_utc_never_change_so_no_policy_is_shown() -> None:
    assert cron("30 1 * * *", fold="both").explain() == "at 01:30 UTC every day"


def before(rule: Composable, moment: Instant) -> Iterator[Instant]:
    while (tick := rule.previous(moment)) is not None:
        yield tick
        moment = tick


@settings(max_examples=by_tier(10, 60, 500))
@given(recurring, recurring, recurring, instants)
def test_combinations_combine(first: Composable, second: Composable, third: Composable, moment: Instant) -> None:
    one, two, three = map(ticks_of, (first, second, third))
    combined(lambda: (first | second) - third, (one | two) - three, moment)
    combined(lambda: (first | second) & (second | third), (one | two) & (two | three), moment)
    combined(lambda: first | second | third, one | two | three, moment)
    if two - three:
        combined(lambda: first - (second - third), one - (two - three), moment)


# ------------------------------------------------------------------------------------------------------------- meaning


def test_a_tick_of_both_is_one_tick() -> None:
    rule = cron("0 * * * *") | cron("0 0 * * *") | every("1h")
    assert upcoming(rule, 0, 3) == [HOUR, 2 * HOUR, 3 * HOUR]


def test_chains_are_flat() -> None:
    rules = [cron(f"{minute} * * * *") for minute in (1, 2, 3)]
    assert rules[0] | rules[1] | rules[2] == Union(tuple(rules)) == rules[0] | (rules[1] | rules[2])
    hours = [every("1h"), every("2h"), every("3h")]
    assert hours[0] & hours[1] & hours[2] == Intersection(tuple(hours))


def test_a_blackout_holds_to_its_own_zone() -> None:
    rule = cron("0 * * * *").outside(cron("0 22 * * *", tz="Europe/Paris"), "8h")
    hours = [to_datetime(tick).hour for tick in upcoming(rule, instant(datetime(2026, 7, 1, 12, tzinfo=UTC)), 16)]
    assert hours == [13, 14, 15, 16, 17, 18, 19, 4, 5, 6, 7, 8, 9, 10, 11, 12], "22:00 to 06:00 in Paris, in summer"


def test_a_window_takes_in_its_opening_and_not_its_end() -> None:
    rule = every("1h").outside(cron("0 2 * * *"), "2h")
    assert [rule.has(hour * HOUR) for hour in (1, 2, 3, 4)] == [True, False, False, True]


def test_bounds_take_in_the_start_and_not_the_end() -> None:
    rule = every("1h").between(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 2, tzinfo=UTC))
    start = instant(datetime(2026, 1, 1, tzinfo=UTC))
    assert upcoming(rule, 0, 5) == [start, start + HOUR]
    assert rule.previous(10**18) == start + HOUR
    assert rule.previous(start) is None
    assert [rule.has(start + hour * HOUR) for hour in (-1, 0, 1, 2)] == [False, True, True, False]


def test_windows_may_overlap() -> None:
    rule = every("1h").outside(cron("0 2,3 * * *"), "2h")
    assert [rule.has(hour * HOUR) for hour in (1, 2, 3, 4, 5)] == [True, False, False, False, True]


def test_the_zone_is_that_of_all_parts_or_utc() -> None:
    paris, lima = cron("0 2 * * *", tz="Europe/Paris"), cron("0 2 * * *", tz="America/Lima")
    assert (paris | cron("0 3 * * *", tz="Europe/Paris")).tz == "Europe/Paris"
    assert (paris | lima).tz == "UTC"
    assert (paris | every("1h")).tables == {"tzdata"}
    assert (cron("0 2 * * *") | every("1h")).tables == frozenset()


def test_a_wall_time_is_that_of_the_rule_whose_ticks_these_are() -> None:
    paris = cron("0 2 * * *", tz="Europe/Paris")
    tick = paris.next(FIRST) or 0
    assert (paris - cron("0 2 25 12 *", tz="Europe/Paris")).wall(tick) == paris.wall(tick) == "2025-11-02T02:00:00"
    assert (paris | cron("0 3 * * *", tz="Europe/Paris")).wall(tick) == paris.wall(tick)
    assert (paris | cron("0 2 * * *", tz="America/Lima")).wall(tick) is None, "texts of two zones cannot be compared"
    assert (paris | every("1h")).wall(tick) is None


def test_a_slot_by_hash_is_settled_in_every_part() -> None:
    rule = cron("H 2 * * *") | every("1h", spread=True)
    named = rule.named("nightly")
    assert named == cron("H 2 * * *").named("nightly") | every("1h", spread=True).named("nightly")
    for build in (
        lambda part: part - cron("H 3 * * *"),
        lambda part: part & part,
        lambda part: part.between(end=datetime(2030, 1, 1, tzinfo=UTC)),
        lambda part: part.outside(cron("H 22 * * *"), "2h"),
    ):
        assert build(cron("H 2 * * *")).named("nightly").next(0) == cron("H 2 * * *").named("nightly").next(0)


HOURLY, DAILY = cron("0 * * * *", tz=NEW_YORK, fold="second"), cron("H 2 * * *", tz="Europe/Paris", gap="skip")
NEW_YEAR = datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "rule",
    [
        HOURLY | DAILY | every("35m"),
        every("35m") & cron("*/5 * * * *"),
        HOURLY - DAILY,
        DAILY.between(start=NEW_YEAR),
        DAILY.between(end=NEW_YEAR),
        DAILY.between(NEW_YEAR, NEW_YEAR + timedelta(days=9)),
        HOURLY.outside(DAILY, "90m"),
        (HOURLY | DAILY).outside(DAILY, 0.25).between(end=NEW_YEAR) - (DAILY | every("2h", spread=True)),
        (HOURLY | DAILY).named("nightly"),
    ],
)
def test_a_combination_comes_back_equal_from_its_text(rule: Composable) -> None:
    restored = decode(rule.encode())
    assert restored == rule
    assert restored.encode() == rule.encode()
    assert restored.next(0) == rule.next(0)
    assert restored.explain() == rule.explain()
    assert isinstance(rule, Rule)


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    "build",
    [
        lambda: cron("0 2 * * *") & cron("0 3 1 1 *"),
        lambda: cron("0 2 29 2 *", tz="Europe/Paris") - cron("0 2 29 2 *", tz="Europe/Paris"),
        lambda: at(datetime(2026, 1, 1, tzinfo=UTC)) - at(datetime(2026, 1, 1, tzinfo=UTC)),
        lambda: at(datetime(2026, 1, 1, tzinfo=UTC)).between(start=datetime(2026, 1, 2, tzinfo=UTC)),
        lambda: cron("0 2 * * *").outside(cron("0 1 * * *"), "2h"),
        lambda: cron("* * * * *") - cron("* * * * *"),
        lambda: every("1h").outside(every("1h"), "1h"),
    ],
)
def test_a_combination_that_never_fires_is_refused_when_it_is_made(build: Callable[[], Composable]) -> None:
    with pytest.raises(InvalidRule, match=r"this rule can never fire|exclude all nearby ticks"):
        build()


@pytest.mark.parametrize(
    "build",
    [
        partial(cron("0 2 * * *").__or__, after("10m")),
        partial(cron("0 2 * * *").__and__, after("10m")),
        partial(cron("0 2 * * *").__sub__, after("10m")),
        partial(cron("0 2 * * *").outside, after("10m"), "1h"),
        partial(after("10m").__or__, cron("0 2 * * *")),
        partial(after("10m").between, start=datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_fixed_delay_stands_alone(build: Callable[[], Composable]) -> None:
    with pytest.raises(InvalidRule, match="a fixed delay cannot be combined"):
        build()


@pytest.mark.parametrize("other", ["0 2 * * *", None, 5, [cron("0 2 * * *")]])
def test_only_rules_can_be_combined(other: Composable) -> None:
    for joined in (cron("0 2 * * *").__or__, cron("0 2 * * *").__and__, cron("0 2 * * *").__sub__):
        with pytest.raises(InvalidRule, match="is not a rule; combine rules such as"):
            joined(other)


def test_bounds_must_be_aware_and_in_order() -> None:
    with pytest.raises(InvalidRule, match="has no time zone"):
        every("1h").between(start=datetime(2026, 1, 1))
    with pytest.raises(InvalidRule, match="is not after the start"):
        every("1h").between(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


@pytest.mark.parametrize("length", [0, "0s", -5, "soon", timedelta(0), None])
def test_a_window_must_have_a_length(length: str) -> None:
    with pytest.raises(InvalidRule):
        every("1h").outside(every("1d"), length)


def test_the_parts_are_what_they_were() -> None:
    one, other = every("1h"), cron("0 2 * * *")
    assert Exclusion(one, other).parts == (one, other)
    assert Bounded(one, 0, DAY).parts == (one,)
    assert Outside(one, other, 2 * HOUR + SECOND).shape()["for"] == "2h1s"


# -------------------------------------------------------------------------------------------------------------- effort


class Counted(Composable):
    """A rule that counts the questions it is asked."""

    def __init__(self, rule: Composable) -> None:
        self.rule = rule
        self.asked = 0

    def next(self, after: Instant) -> Instant | None:
        self.asked += 1
        return self.rule.next(after)

    def previous(self, before: Instant) -> Instant | None:
        self.asked += 1
        return self.rule.previous(before)

    def explain(self) -> str:
        return "counted"


def test_rules_within_rules_do_not_multiply_their_searches() -> None:
    seconds = Counted(every("1s"))
    sparse = seconds - (seconds - every("40000s"))
    assert seconds.asked > 20_000, "one tick in 40,000"
    seconds.asked = 0
    with pytest.raises(InvalidRule, match="exclude all nearby ticks"):
        sparse - (sparse - every("2000000000s"))
    assert seconds.asked < 3 * MOST_STEPS


def test_a_wide_union_costs_what_it_asks() -> None:
    parts = [Counted(cron(f"{minute} * * * *")) for minute in range(50)]
    wide = Union(tuple(parts))
    with pytest.raises(InvalidRule, match="exclude all nearby ticks"):
        wide - Union(tuple(cron(f"{minute} * * * *") for minute in range(50)))
    assert sum(part.asked for part in parts) < 2 * MOST_STEPS


def test_a_search_looks_no_further_than_dates_repeat() -> None:
    leap_days = Counted(cron("0 0 29 2 *", tz="Europe/Paris"))
    with pytest.raises(InvalidRule, match="exclude all nearby ticks"):
        leap_days & cron("0 1 29 2 *", tz=NEW_YORK)
    assert leap_days.asked < 250, "there are 97 of them in 400 years"


def test_after_giving_up_the_next_question_may_cost_as_much_again() -> None:
    rule = (every("1s") - (every("1s") - every("30000s"))).outside(at(datetime(1970, 1, 1, tzinfo=UTC)), "1s")
    for _ in range(3):
        try:
            cron("0 2 * * *") - cron("0 2 * * *")
        except InvalidRule:
            assert rule.next(0) == 30_000 * SECOND


def test_a_tick_itself_is_asked_for_without_a_search() -> None:
    new_year = instant(datetime(2026, 1, 1, tzinfo=UTC))
    ended = every("1h") - every("1h").between(start=to_datetime(new_year + DAY))
    assert ended.has(new_year + HOUR)
    assert not ended.has(new_year + 30 * HOUR)
    rest = every("1h") - ended
    assert upcoming(rest, new_year, 2) == [new_year + DAY, new_year + DAY + HOUR], "what has ended takes nothing away"
