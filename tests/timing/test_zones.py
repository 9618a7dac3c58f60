"""Zones as stretches of one offset: against the stored tables themselves, and against Python's reading of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo

import pytest

from foliot.errors import InvalidRule
from foliot.timing import cron
from foliot.timing.zones import FIRST_SECOND, LAST_SECOND, VERSION, Zone, zone, zone_names
from tests.tiers import by_tier
from tests.timing.oracles import (
    DAY,
    EPOCH,
    LAST,
    Shift,
    chosen_zones,
    offset,
    second_of,
    shifts,
    table,
    table_bytes,
    zones,
)

SINCE = second_of(1900, 1, 1)


def stored(name: str) -> tuple[list[tuple[int, int]], int, str]:
    """What a TZif file says (RFC 9636): when each offset begins, the offset before the first, the rule for the rest."""
    data, place = table_bytes(name), 0
    for width in (4, 8):  # the first block is there for old readers
        magic, utc, standard, leaps, times, kinds, letters = struct.unpack_from(">4s16x6l", data, place)
        assert magic == b"TZif"
        body = place + 44
        place = body + times * (width + 1) + kinds * 6 + letters + leaps * (width + 4) + standard + utc
    whens = struct.unpack_from(f">{times}q", data, body)
    indices = struct.unpack_from(f">{times}B", data, body + times * 8)
    offsets = [struct.unpack_from(">l", data, body + times * 9 + 6 * kind)[0] for kind in range(kinds)]
    return (
        [(when, offsets[index]) for when, index in zip(whens, indices, strict=True)],
        offsets[0],
        data[place:].decode().strip(),
    )


def stored_changes(name: str) -> Iterator[Shift]:
    """The changes of a zone's offset that its table lists, one by one."""
    began, before, _ = stored(name)
    for when, after in began:
        if after != before and when > FIRST_SECOND:
            yield Shift(when, before, after)
        before = after


# -------------------------------------------------------------------------------------------------------- the tables


def test_no_offset_lasts_less_than_six_days_and_nine_tenths() -> None:
    """The looks that zones.py takes are three days apart, so that no change can hide between two of them."""
    shortest = min(
        (later.at - earlier.at, name)
        for name in zones()
        for earlier, later in pairwise(stored_changes(name))
        if earlier.at >= SINCE
    )
    assert shortest[0] > 6.9 * DAY, shortest


def test_the_rules_for_the_years_after_the_tables_leave_months_between_changes() -> None:
    for name in zones():
        rule = stored(name)[2]
        if "," not in rule:
            continue
        months = [int(when.removeprefix("M").split(".")[0]) for when in rule.split(",")[1:]]
        assert 2 <= abs(months[0] - months[1]) <= 10, f"{name}: {rule}"
        last = max((shift.at for shift in stored_changes(name)), default=SINCE)
        assert {offset(name, last + hour * 3600) for hour in range(7 * 24)} == {offset(name, last)}, name


def test_the_release_is_known_by_name() -> None:
    assert len(VERSION) == 5
    assert VERSION >= "2026a"


# -------------------------------------------------------------------------------------------------- against the tables


def test_every_change_in_the_tables_is_found() -> None:
    for name in chosen_zones():
        expected = [shift for shift in stored_changes(name) if shift.at >= SINCE]
        if not expected:
            continue
        first, last = expected[0].at, expected[-1].at
        assert zone(name).changes(first, last) == expected, name
        assert zone(name).changes(first + 1, last - 1) == expected[1:-1], name
        for at, before, after in expected:
            ours = zone(name)
            assert (ours.offset(at - 1), ours.offset(at)) == (before, after)
            assert (ours.at(at - 1).end, ours.at(at).start) == (at, at)
            assert ours.at(at - 1).closes == ours.at(at).opens == after - before


def test_offsets_and_passes_are_those_of_python() -> None:
    random, count, most = Random(2026), by_tier(2, 2, 20), by_tier(3, 3, 20)
    for name in chosen_zones():
        ours, theirs = zone(name), table(name)
        seconds = [random.randint(second_of(1850, 1, 1), second_of(2200, 1, 1)) for _ in range(count)]
        edges = random.sample(shifts(name), min(len(shifts(name)), most))
        seconds += [shift.at + away for shift in edges for away in (-3600, -1, 0, 1, 1800, 3599, 3600)]
        for second in seconds:
            expected = datetime.fromtimestamp(second, theirs)
            assert ours.offset(second) == offset(name, second), (name, second)
            assert ours.local(second) == (expected.replace(tzinfo=None, fold=0), expected.fold), (name, second)


def test_stretches_follow_one_another_without_a_gap() -> None:
    for name in chosen_zones():
        ours = zone(name)
        stretch = ours.at(second_of(2023, 1, 1))
        while stretch.end < LAST:
            assert stretch.start < stretch.end
            following = ours.beside(stretch, 1)
            assert following is not None
            # One that lasts for years may be cut where nothing changes, so the next one may begin earlier.
            assert following.start <= stretch.end < following.end
            assert following.offset - stretch.offset == stretch.closes
            before = ours.beside(following, -1)
            assert before is not None
            assert before.start < following.start <= before.end
            stretch = following


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    seconds = list(range(second_of(1910, 1, 1), second_of(2150, 1, 1), 40 * DAY))
    forwards, backwards, fresh = (Zone("America/New_York", table("America/New_York")) for _ in range(3))
    shuffled = Random(1).sample(seconds, len(seconds))
    for one, order in ((forwards, seconds), (backwards, seconds[::-1]), (fresh, shuffled)):
        assert [one.offset(second) for second in order] == [offset("America/New_York", second) for second in order]
        assert all(one.at(second).start <= second < one.at(second).end for second in order)


def test_a_zone_can_be_asked_from_many_threads() -> None:
    shared = Zone("Europe/Paris", table("Europe/Paris"))

    def ask(seed: int) -> bool:
        random = Random(seed)
        seconds = [random.randint(SINCE, second_of(2300, 1, 1)) for _ in range(1_500)]
        return all(shared.at(second).start <= second < shared.at(second).end for second in seconds)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(8)))


@pytest.mark.parametrize("name", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "America/New_York", "UTC"])
def test_the_ends_of_the_calendar_have_stretches_too(name: str) -> None:
    for second in (FIRST_SECOND, LAST_SECOND):
        stretch = zone(name).at(second)
        assert stretch.start <= second < stretch.end
    assert zone(name).beside(zone(name).at(FIRST_SECOND), -1) is None
    wall, _ = zone(name).local(second_of(2026, 7, 1))
    assert wall == EPOCH + timedelta(seconds=second_of(2026, 7, 1) + offset(name, second_of(2026, 7, 1)))


def test_the_tables_are_those_of_the_package_and_not_those_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vancouver keeps its summer time from 2026 on; many hosts have not heard of it."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("PYTHONTZPATH", "/nowhere")
    assert zone("America/Vancouver").offset(second_of(2026, 12, 15)) == -7 * 3600
    assert zone("America/Vancouver").offset(second_of(2025, 12, 15)) == -8 * 3600


# --------------------------------------------------------------------------------------------------------------- names


def test_every_name_of_the_tables_but_the_placeholder_is_a_zone() -> None:
    assert len(zone_names()) > 590
    assert "Factory" not in zone_names()
    assert all(zone(name).name in (name, "UTC") for name in zone_names())


@pytest.mark.parametrize("name", ["UTC", "Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu"])
def test_utc_has_one_name(name: str) -> None:
    assert zone(name).name == "UTC"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("europe/paris", "write 'Europe/Paris'"),
        (" Europe/Paris", "write 'Europe/Paris'"),
        ("America/New York", "write 'America/New_York'"),
        ("Europe/Kyv", "did you mean 'Europe/Kyiv'?"),
        ("Paris", "did you mean 'Europe/Paris'?"),
        ("utc", "write 'UTC'"),
        ("UTC+2", '"Etc/GMT-2" (its sign is inverted)'),
        ("GMT-05:00", '"Etc/GMT+5" (its sign is inverted)'),
        ("+14", '"Etc/GMT-14" (its sign is inverted)'),
        ("PST", 'give an IANA name, such as "Europe/Paris" or "UTC"'),
    ],
)
def test_a_wrong_name_is_refused_with_the_right_one(name: str, advice: str) -> None:
    with pytest.raises(InvalidRule) as refused:
        zone(name)
    assert f"there is no time zone {name!r}; " in str(refused.value)
    assert advice in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        ".",
        "..",
        "../../etc/passwd",
        "/etc/localtime",
        "Europe/../Europe/Paris",
        "Europe//Paris",
        "Europe\\Paris",
        "Europe/Paris\0",
        "Europe/Paris\n",
        "Europe",
        "localtime",
        "posixrules",
        "posix/UTC",
        "right/UTC",
        "Factory",
        "zone.tab",
        "tzdata.zi",
        "__init__.py",
        "\ud800",
        "Europe/Par\udcffis",
        "Ｅｕｒｏｐｅ/Paris",  # noqa: RUF001 - that they look like letters is the point
        "EST5EDT,M3.2.0,M11.1.0",
        "UTC+99999999999999999999",
        "UTC+٣",
        "a" * 1_000_000,
        "/" * 1_000_000,
    ],
)
def test_a_hostile_name_is_refused_as_a_rule_with_a_short_message(name: str) -> None:
    with pytest.raises(InvalidRule, match="there is no time zone") as refused:
        cron("0 2 * * *", tz=name)
    message = str(refused.value)
    assert len(message) < 500
    assert message.isprintable()


@pytest.mark.parametrize("name", [None, 5, b"UTC", ["UTC"], ZoneInfo("UTC")])
def test_what_is_not_a_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidRule, match="is not a time zone; give its name"):
        cron("0 2 * * *", tz=name)
