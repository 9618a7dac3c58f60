"""Zones as stretches of one offset: against the stored tables themselves, and against Python's reading of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from io import BytesIO
from random import Random
from zoneinfo import ZoneInfo

import pytest

from foliot.errors import InvalidRule
from foliot.timing import cron
from foliot.timing import zones as zones_module
from foliot.timing.tzif import _when, read
from foliot.timing.zones import FIRST_SECOND, LAST_SECOND, VERSION, Zone, zone, zone_names
from tests.tiers import by_tier
from tests.timing.calls import at_most
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
            assert following.start == stretch.end < following.end
            assert following.offset - stretch.offset == stretch.closes == following.opens
            assert ours.beside(following, -1) == stretch
            stretch = following


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    seconds = list(range(second_of(1910, 1, 1), second_of(2150, 1, 1), 40 * DAY))
    forwards, backwards, fresh = (Zone("America/New_York", read(table_bytes("America/New_York"))) for _ in range(3))
    shuffled = Random(1).sample(seconds, len(seconds))
    for one, order in ((forwards, seconds), (backwards, seconds[::-1]), (fresh, shuffled)):
        assert [one.offset(second) for second in order] == [offset("America/New_York", second) for second in order]
        assert all(one.at(second).start <= second < one.at(second).end for second in order)


def test_a_zone_can_be_asked_from_many_threads() -> None:
    shared = Zone("Europe/Paris", read(table_bytes("Europe/Paris")))

    def ask(seed: int) -> bool:
        random = Random(seed)
        seconds = [random.randint(SINCE, second_of(2300, 1, 1)) for _ in range(1_500)]
        return all(shared.at(second).start <= second < shared.at(second).end for second in seconds)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(8)))


def test_zones_agree_with_python_around_every_change() -> None:
    random = Random(7)
    for name in by_tier(random.sample(zone_names(), 10), zone_names()):
        ours, theirs = Zone(name, read(table_bytes(name))), table(name)
        changes = ours.changes(FIRST_SECOND, second_of(2100, 1, 1)) + ours.changes(
            LAST_SECOND - 2000 * DAY, LAST_SECOND
        )
        seconds = [change.at + away for change in changes for away in (-1, 0, 1)]
        seconds += [random.randint(FIRST_SECOND, LAST_SECOND) for _ in range(200)]
        for second in seconds:
            if FIRST_SECOND + DAY < second < LAST_SECOND - DAY:
                expected = (EPOCH.replace(tzinfo=UTC) + timedelta(seconds=second)).astimezone(theirs).utcoffset()
                assert timedelta(seconds=ours.offset(second)) == expected, (name, second)


@pytest.mark.parametrize(
    "rule",
    [
        "CET-1CEST,M3.5.0,M10.5.0/3",
        "IST-1GMT0,M10.5.0,M3.5.0/1",
        "<-02>2<-01>,M3.5.0/-1,M10.5.0/0",
        "EET-2EEST,M3.4.4/50,M10.4.4/50",
        "<+0330>-3:30<+0430>-4:30,J79/24,J263/24",
        "AAA3BBB,J60/0,J300/0",
        "AAA3BBB2:30,M12.5.1/1:30,M2.1.3/1:30:15",
        "<+1245>-12:45<+1345>,M9.5.0/2:45,M4.1.0/3:45",
        "UTC0",
    ],
)
def test_the_rule_at_the_end_of_a_table_is_read_as_python_reads_it(rule: str) -> None:
    """Forms that no zone has at the moment, too: any release of the tables may bring one."""
    block = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, 0, 1, 4) + struct.pack(">lbb", 0, 0, 0) + b"LMT\0"
    data = block + block + b"\n" + rule.encode() + b"\n"
    ours, theirs = Zone("Made/Up", read(data)), ZoneInfo.from_file(BytesIO(data))
    # A leap year and the one after it; the short tier needs no more.
    for second in range(second_of(2024, 1, 1), second_of(by_tier(2026, 2032), 1, 1), 1800):
        expected = (EPOCH.replace(tzinfo=UTC) + timedelta(seconds=second)).astimezone(theirs).utcoffset()
        assert timedelta(seconds=ours.offset(second)) == expected, second


def test_a_day_of_the_year_from_zero_counts_the_leap_day() -> None:
    """As POSIX says. Python takes the day before."""
    when = _when("59/0")
    assert [when.in_year(year) for year in (2023, 2024)] == [second_of(2023, 3, 1), second_of(2024, 2, 29)]


@pytest.mark.parametrize("rule", ["CET-1CEST,M3.5.0", "CET-1CEST,X,Y", "1CET"])
def test_a_rule_that_cannot_be_read_is_an_error(rule: str) -> None:
    block = struct.pack(">4sc15x6l", b"TZif", b"2", 0, 0, 0, 0, 1, 4) + struct.pack(">lbb", 0, 0, 0) + b"LMT\0"
    with pytest.raises(ValueError, match="at the end of a TZif file cannot be read"):
        read(block + block + b"\n" + rule.encode() + b"\n")


@pytest.mark.parametrize("name", ["America/New_York", "Europe/Paris", "Asia/Tokyo"])
def test_a_zone_that_was_never_asked_answers_at_once(name: str) -> None:
    fresh = zones_module._zone.__wrapped__(name)
    with at_most(300):
        assert fresh.at(second_of(2026, 7, 1)).start <= second_of(2026, 7, 1)


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
