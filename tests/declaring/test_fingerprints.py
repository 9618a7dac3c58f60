"""Fingerprints do not depend on names in the code, and those of an older release are reproduced."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from foliot import Foliot, cron, rrule
from foliot.domain import fingerprint, fingerprint_0
from foliot.domain.fingerprint import (
    BASELINE,
    SETTINGS,
    VALUES,
    canonical,
    canonical_form,
    canonical_json,
    differences,
    digest_of,
    is_applied,
    rule_before,
    signed,
)
from foliot.domain.gates import Rate
from foliot.domain.policy import Overlap, Policy
from foliot.domain.schedule import FORMAT, Declaration, Fingerprint, Schedule
from foliot.operate.stating import stated_schedule
from tests.declaring.shop import FILE, MADE, STATED, crontab, shop

HERE = Path(__file__).parent
OLD = json.loads((HERE / "ed5b06f.json").read_text())
QUARTZ = {"gap": "skip", "fold": "second", "interval_like": "never"}
PRESENT = HERE / "format_2.json"


def of_channels(app: Foliot) -> dict[str, list[Declaration]]:
    """By source, all that `recorded.py` declares, as the present code builds it."""
    cards = {name: job.handler.card() for name, job in app.jobs.items()}
    return {
        "code": app.declarations(),
        FILE: [stated_schedule(given, cards, ["tenants"]) for given in STATED],
        "operator": [stated_schedule(MADE, cards, ["tenants"])],
        "crontab": crontab(),
    }


@pytest.fixture(scope="module")
def app() -> Foliot:
    return shop("sqlite:///:memory:")


@pytest.mark.parametrize("source", ["code", FILE, "operator", "crontab"])
def test_format_0_is_what_the_older_release_made(app: Foliot, source: str) -> None:
    assert {one.id: one.former for one in of_channels(app)[source]} == OLD[source]


def test_the_name_of_a_release_is_what_the_older_release_made(app: Foliot) -> None:
    assert app.release == OLD["release"]
    assert shop("sqlite:///:memory:", nightly="0 6 * * *", region="east").release == OLD["other"]["release"]


def test_format_2_does_not_change(app: Foliot) -> None:
    """A failure means that stores hold other hashes than this code makes: give the new form the next format number."""
    found = {source: {one.id: one.fingerprint for one in listed} for source, listed in of_channels(app).items()}
    assert {one.format for listed in of_channels(app).values() for one in listed} == {FORMAT} == {2}
    assert found | {"release": app._release.hash} == json.loads(PRESENT.read_text())


def test_the_canonical_data_of_a_declaration_is_json_with_names_of_its_own(app: Foliot) -> None:
    [bill] = [one for one in app.declarations() if one.id == "bill-8"]
    assert canonical(bill) == {
        "name": "bill-8",
        "job": "bill",
        "rule": {"cron": "0 4 2 * *", "tz": "UTC"},
        "args": {"account": 8, "bank": "second"},
        "settings": {
            "attempts": 9,
            "backoff": 10_000_000,
            "timeout": 7_200_000_000,
            "lease": 60_000_000,
            "on_lost": "ask",
            "concurrency_key": "account:8",
            "destination": "api.second.example",
            "breaker_after": None,
            "labels": ["gpu", "region=eu"],
            "concurrency": 5,
            "rate": 6_000_000,
            "catch_up": "all",
            "useful_until": 86_400_000_000,
            "no_alerts": ["duration", "late"],
        },
        "own": {"overlap": "skip", "useful_until": 86_400_000_000},
        "owner": "payments",
        "runbook": "https://example.com/bill",
        "queue": "money",
    }


def test_format_2_writes_one_rule_otherwise_than_format_1(app: Foliot) -> None:
    """An RRULE without a policy has that of RFC 5545 now, and had that of Vixie."""
    before, now = (json.loads((HERE / f"format_{number}.json").read_text()) for number in (1, 2))
    assert {name for name in now["code"] if now["code"][name] != before["code"][name]} == {"weekly"}
    [weekly] = [one for one in app.declarations() if one.id == "weekly"]
    assert digest_of(replace(weekly, rule=rule_before(weekly.rule))) == before["code"]["weekly"]


@pytest.mark.parametrize(
    ("policy", "written", "before"),
    [
        ({}, {"gap": "shift_forward"}, {}),
        ({"preset": "vixie"}, {}, {}),
        ({"fold": "second"}, {"gap": "shift_forward", "fold": "second"}, {"fold": "second"}),
        ({"preset": "quartz"}, QUARTZ, QUARTZ),
    ],
)
def test_a_rule_is_written_as_older_releases_write_the_same_declaration(
    policy: dict[str, Any], written: dict[str, str], before: dict[str, str]
) -> None:
    rule = rrule("FREQ=DAILY", start="2026-01-05T02:30", tz="Europe/Paris", **policy)
    plain = {"rrule": "FREQ=DAILY", "tz": "Europe/Paris", "start": "2026-01-05T02:30:00"}
    assert json.loads(rule.encode()) == plain | written
    assert json.loads(rule_before(rule.encode())) == plain | before
    noon = cron("0 12 * * *", tz="Europe/Paris", gap="shift_forward")
    both = json.loads(rule_before((noon | (rule - cron("0 2 1 * *"))).encode()))
    assert (both["any"][0], both["any"][1]["of"]) == (noon.shape(), plain | before), "also where it is a part"


# ---------------------------------------------------------------------------------------------------- what is no change


def declared(**more: Any) -> Declaration:
    given: dict[str, Any] = {
        "id": "report",
        "job": "job",
        "rule": '{"cron":"0 2 * * *","tz":"UTC"}',
        "payload": b'{"a":1,"b":{"c":2,"d":3}}',
        "policy": Policy(attempts=7),
        "options": b'{"attempts":7,"jitter":0}',
        "delay": None,
    }
    return signed(Declaration(**given | more), "old")


@pytest.mark.parametrize(
    "more",
    [
        {"payload": b'{"b": {"d": 3, "c": 2}, "a": 1}'},
        {"options": b'{"jitter":0,"attempts":7}'},
        {"rule": '{"tz":"UTC","cron":"0 2 * * *"}'},
        {"first": 5, "tables": "2027a", "first_wall": "x", "paused": "why", "fault": "x"},
    ],
)
def test_the_order_of_keys_and_what_is_not_declared_change_no_fingerprint(more: dict[str, Any]) -> None:
    assert declared(**more).fingerprint == declared().fingerprint


@pytest.mark.parametrize(
    "more",
    [
        {"id": "other"},
        {"job": "other"},
        {"rule": '{"cron":"0 3 * * *","tz":"UTC"}'},
        {"payload": b'{"a":2}'},
        {"payload": b"not json"},
        {"policy": Policy(attempts=8)},
        {"options": b'{"attempts":7}'},
        {"options": b'{"attempts":7,"jitter":0,"bind":{"day":"tick.date"},"tz":"UTC"}'},
        {"queue": "q"},
        {"priority": 1},
        {"tenant": "t"},
        {"owner": "o"},
        {"runbook": "r"},
        {"changes": "c"},
        {"over": "members"},
    ],
)
def test_each_part_of_a_declaration_changes_its_fingerprint(more: dict[str, Any]) -> None:
    assert declared(**more).fingerprint != declared().fingerprint


def test_a_default_that_a_later_release_changes_changes_no_fingerprint() -> None:
    later = declared(policy=Policy(attempts=7, breaker_after=50), said=frozenset({"attempts"}))
    assert later.fingerprint == declared(said=frozenset({"attempts"})).fingerprint
    chosen = declared(policy=Policy(attempts=7, breaker_after=50), said=frozenset({"attempts", "breaker_after"}))
    assert chosen.fingerprint != later.fingerprint


def test_each_setting_and_each_value_has_a_wire_form() -> None:
    assert [*SETTINGS] == [field.name for field in fields(Policy)]
    assert len(set(SETTINGS.values())) == len(SETTINGS)
    assert BASELINE.keys() == set(SETTINGS.values())
    assert fingerprint.wire_policy(Policy(), list(SETTINGS)) == {}
    enums: set[type[Enum]] = {
        type(getattr(Policy(), name)) for name in SETTINGS if isinstance(getattr(Policy(), name), Enum)
    }
    assert VALUES.keys() == enums
    for kind in enums:
        assert [*VALUES[kind]] == [*kind]
        assert len(set(VALUES[kind].values())) == len(kind)


@pytest.mark.parametrize("text", ["10/s", "100/m", "5000/h", "1/10s", "3/d", "1/90m", "7/s", "9999/s", "1/3w"])
def test_format_0_writes_a_rate_as_the_older_release_did(text: str) -> None:
    assert fingerprint_0._rate(Rate.parse(text).every) == str(Rate.parse(text))


def test_a_setting_that_older_releases_do_not_know_changes_their_fingerprint() -> None:
    common: dict[str, Any] = {"name": "a", "job": "b", "rule": "{}", "payload": b"{}", "described": {}, "bound": {}}
    without = fingerprint_0.of_code(**common, chosen={}, carried={}, policy={})
    assert fingerprint_0.of_code(**common, chosen={}, carried={}, policy={"later": 1}) != without
    assert fingerprint_0.of_code(**common, chosen={}, carried={}, policy={"attempts": 4}) == without


# ------------------------------------------------------------------------------------------------------------ comparing


def stored(one: Declaration, **more: Any) -> Schedule:
    names = {field.name for field in fields(Schedule)} & {field.name for field in fields(Declaration)}
    copied = {name: getattr(one, name) for name in names}
    return Schedule(**copied | {"revision": 1, "made_at": 0} | more)


def test_a_hash_of_another_format_is_no_evidence_of_a_change() -> None:
    one = declared()
    assert is_applied(one, Fingerprint(one.fingerprint, FORMAT, "whatever")) is True
    assert is_applied(one, Fingerprint("another", FORMAT, "old")) is False
    for other_format in (0, FORMAT + 1):
        assert is_applied(one, Fingerprint("another", other_format, "old")) is True
        assert is_applied(one, Fingerprint("another", other_format, "another")) is None
    assert is_applied(one, Fingerprint("", 0, "")) is False, "it was never declared"


def test_content_is_compared_without_the_fields_that_operators_edited() -> None:
    one = declared()
    edited = stored(one, rule='{"every":"15m"}', policy=Policy(attempts=9), options=b'{"attempts":9,"jitter":0}')
    assert differences(one, stored(one), None) == set()
    assert differences(one, edited, None) == {"rule", "attempts", "own.attempts"}
    assert differences(one, edited, ("rule", "attempts")) == set()
    assert differences(one, edited, ("rule",)) == {"attempts"}
    assert differences(one, replace(edited, queue="q"), ("rule", "attempts")) == {"queue"}


def test_arguments_that_cannot_be_read_are_written_again_where_nobody_edited() -> None:
    one = declared()
    shut = stored(one, payload=b'"foliot:locked:key:x"')
    assert differences(one, shut, None) == {"args"}
    assert differences(one, shut, ("rule",)) == set()


def test_settings_that_cannot_be_read_differ() -> None:
    one = declared()
    assert differences(one, stored(one, options=b'{"attempts":"?"}'), None) != set()


# -------------------------------------------------------------------------------------------------------------- renames


def test_a_renamed_setting_changes_no_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another table renames the attribute; its wire name stays."""

    class Renamed:
        tries = 7

    before = fingerprint.wire_policy(Policy(attempts=7), ["attempts"])
    monkeypatch.setattr(fingerprint, "SETTINGS", {"tries": "attempts"})
    assert fingerprint.wire_policy(Renamed(), ["tries"]) == before == {"attempts": 7}  # type: ignore[arg-type]


def test_a_renamed_class_or_member_changes_no_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other enums have the wire values of the present ones."""

    class WhenBusy(Enum):
        LEAVE_OUT = "leave out"

    before = fingerprint.wire({"overlap": Overlap.SKIP})
    monkeypatch.setattr(fingerprint, "VALUES", {WhenBusy: {WhenBusy.LEAVE_OUT: "skip"}})
    assert fingerprint.wire({"overlap": WhenBusy.LEAVE_OUT}) == before == {"overlap": "skip"}


def test_a_schedule_by_code_has_the_fingerprint_of_what_was_chosen_for_it() -> None:
    def declared_by(**settings: Any) -> str:
        app = Foliot("sqlite:///:memory:", **settings)

        @app.job
        def report() -> None: ...

        app.schedule("report", report, cron("0 2 * * *"))
        return app.declarations()[0].fingerprint

    assert declared_by() == declared_by(attempts=4), "the baseline, chosen or not"
    assert declared_by() != declared_by(attempts=5)


def test_the_form_that_is_written_from_shared_parts_is_that_of_the_canonical_data(app: Foliot) -> None:
    listed = [one for channel in of_channels(app).values() for one in channel]
    listed += [replace(listed[0], tenant='a"cme\N{SNOWMAN}', priority=-2, runbook="", payload=b"no json")]
    listed += [replace(listed[0], payload=payload) for payload in (b"", b"null", b"{ }", b"[]", b"0")]
    assert [canonical_form(one) for one in listed] == [canonical_json(canonical(one)) for one in listed]
