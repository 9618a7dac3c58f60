"""`foliot doctor`: what it finds, and what it makes of that."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from foliot import __version__
from foliot.cli.doctor import Findings, judge
from foliot.domain.alerts import Alert, Kind, Severity
from foliot.domain.instant import HOUR, MINUTE, SECOND, parse_rfc3339
from foliot.domain.policy import Policy
from foliot.domain.schedule import Schedule, ScheduleView
from foliot.domain.store import EventRow, Instance
from foliot.timing.zones import VERSION
from tests.cli.support import make_overdue, run, run_json

NOW = parse_rfc3339("2026-04-03T02:00:00Z")
HEALTH = {
    "engine": "sqlite",
    "version": "3.53.0",
    "schema": 1,
    "schema_known": 1,
    "journal_mode": "wal",
    "synchronous": "full",
    "integrity": "ok",
}


def instance(role: str, *, beat_at: int = NOW, version: str = __version__) -> Instance:
    return Instance(1, role, "here", 1, version, NOW, beat_at, slots=4 if role == "worker" else 0)


FLEET = (instance("scheduler"), instance("worker"))
ALERT = Alert(4, Kind.DEAD, "run:pay#1", Severity.CRITICAL, "it failed five times", "look", NOW, NOW)
SOUND = Findings(HEALTH, {"early": 0}, FLEET, (), (), NOW, NOW)


def test_what_nobody_takes_is_told_with_why() -> None:
    said = EventRow(1, NOW - 5 * MINUTE, "missing_labels", "train", "no live worker of job 'train' has the labels gpu")
    [check] = [one for one in judge(SOUND._replace(untaken=[said])) if one.name == "untaken"]
    assert check.verdict == "warning"
    assert check.detail == f"{said.detail} (5 min ago)"
    assert "untaken" not in {one.name for one in judge(SOUND)}


def test_runs_that_wait_under_suspicion_are_counted_with_what_that_means() -> None:
    [check] = [one for one in judge(SOUND._replace(counts={"early": 0, "suspected": 7})) if one.name == "suspicion"]
    assert check.verdict == "warning"
    assert check.detail.startswith("7 suspected runs waiting: each was lost with its worker at least twice in a row")
    assert "suspicion" not in {one.name for one in judge(SOUND)}


def computed_with(tables: str) -> ScheduleView:
    schedule = Schedule(
        "report",
        "report",
        "{}",
        b"{}",
        Policy(),
        None,
        None,
        None,
        0,
        None,
        None,
        None,
        None,
        1,
        "",
        NOW,
        tables=tables,
    )
    return ScheduleView(schedule, "report@2026-04-04T02:00:00Z", NOW, NOW, None, None, None, 0)


def verdict(name: str, findings: Findings) -> str:
    return {check.name: check.verdict for check in judge(findings)}[name]


def test_a_sound_house_has_nothing_to_complain_of():
    assert {check.verdict for check in judge(SOUND)} == {"ok"}


@pytest.mark.parametrize(
    ("check", "expected", "findings"),
    [
        ("durability", "wrong", SOUND._replace(health={**HEALTH, "synchronous": "normal"})),
        ("durability", "wrong", SOUND._replace(health={**HEALTH, "journal_mode": "delete"})),
        ("integrity", "wrong", SOUND._replace(health={**HEALTH, "integrity": "damaged"})),
        ("file access", "warning", SOUND._replace(health={**HEALTH, "shared_files": ["/srv/foliot.db"]})),
        ("clock", "wrong", SOUND._replace(store_now=NOW + 2 * SECOND)),
        ("clock", "wrong", SOUND._replace(now=HOUR, store_now=HOUR)),
        ("clocks", "ok", SOUND._replace(instances=(*FLEET, replace(FLEET[1], offset_low=-80, offset_high=120)))),
        (
            "clocks",
            "wrong",
            SOUND._replace(instances=(*FLEET, replace(FLEET[0], offset_low=HOUR, offset_high=HOUR, fenced=True))),
        ),
        ("early starts", "wrong", SOUND._replace(counts={"early": 1})),
        ("scheduler", "warning", SOUND._replace(instances=FLEET[1:])),
        ("worker", "warning", SOUND._replace(instances=FLEET[:1])),
        ("worker", "warning", SOUND._replace(instances=(FLEET[0], instance("worker", beat_at=NOW - HOUR)))),
        ("versions", "warning", SOUND._replace(instances=(*FLEET, instance("worker", version="9.9")))),
        ("tables", "ok", SOUND._replace(schedules=(computed_with(f"tzdata={VERSION}"),))),
        ("tables", "warning", SOUND._replace(schedules=(computed_with("tzdata=1999a"),))),
        ("tables", "warning", SOUND._replace(schedules=(computed_with("tzdata=2999a"),))),
        ("due", "ok", SOUND._replace(overdue=3, overdue_since=NOW - 10 * SECOND)),
        ("due", "warning", SOUND._replace(overdue=3, overdue_since=NOW - 11 * SECOND)),
        ("alerts", "warning", SOUND._replace(alerts=(ALERT,))),
        ("for a person", "warning", SOUND._replace(counts={"early": 0, "dead": 3})),
    ],
)
def test_each_fault_has_its_verdict(check: str, expected: str, findings: Findings):
    assert verdict(check, findings) == expected


def test_the_doctor_warns_of_a_store_that_nobody_serves(store: str):
    found = run_json("doctor", "--store", store)
    verdicts = {check["name"]: check["verdict"] for check in found["checks"]}
    assert found["ok"] is True
    assert verdicts["durability"] == verdicts["integrity"] == verdicts["early starts"] == "ok"
    assert verdicts["scheduler"] == verdicts["worker"] == verdicts["for a person"] == "warning"
    assert "no run becomes due" in run("doctor", "--store", store).stdout


def test_the_doctor_names_the_files_of_the_store_that_other_users_can_read(tmp_path: Path):
    path = tmp_path / "a store.db"
    path.touch(0o640)
    path.chmod(0o640)
    checks = {check["name"]: check for check in run_json("doctor", "--store", f"sqlite:///{path}")["checks"]}
    assert checks["file access"]["verdict"] == "warning"
    files = [f"'{path}{suffix}'" for suffix in ("", "-wal", "-shm")]
    assert checks["file access"]["detail"].endswith(f": chmod 600 {' '.join(files)}")


def test_the_doctor_exits_1_when_something_is_wrong(store: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("foliot.cli.doctor._RELEASED", 1 << 62)  # as if this host's clock stood long ago
    result = run("doctor", "--store", store)
    assert result.exit_code == 1
    assert "check wrong" in result.stdout


def test_the_doctor_makes_no_store():
    assert run("doctor", "--store", "sqlite:///nowhere.db").exit_code == 1
    assert not Path("nowhere.db").exists()


def test_the_doctor_says_on_which_side_the_older_tables_are():
    for tables, advice in (("tzdata=2999a", "upgrade tzdata"), ("tzdata=1999a", "restart the scheduler")):
        findings = SOUND._replace(schedules=(computed_with(tables),))
        [told] = [check.detail for check in judge(findings) if check.name == "tables"]
        assert advice in told


def test_the_doctor_tells_how_far_clocks_are_apart_and_who_is_fenced():
    well = replace(FLEET[1], offset_low=-80, offset_high=120)
    ill = replace(FLEET[0], offset_low=3 * SECOND, offset_high=3 * SECOND + 400, fenced=True)
    [told] = [check.detail for check in judge(SOUND._replace(instances=(well,))) if check.name == "clocks"]
    assert told == "worker 1 on here: within 0.1 ms of the store's"
    [told] = [check.detail for check in judge(SOUND._replace(instances=(well, ill))) if check.name == "clocks"]
    assert told.startswith("scheduler 1 on here: 3,000.0 to 3,000.4 ms behind the store's; they start no new work")


def test_the_doctor_does_not_mind_the_tables_of_a_schedule_that_has_ended():
    ended = replace(computed_with("tzdata=1999a"), next_id=None)
    assert verdict("tables", SOUND._replace(schedules=(ended,))) == "ok"


def test_the_doctor_says_how_many_are_due_since_when_and_which_alert_is_first():
    late = SOUND._replace(overdue=3, overdue_since=NOW - 5 * MINUTE, alerts=(ALERT, replace(ALERT, number=5)))
    told = {check.name: check.detail for check in judge(late)}
    assert told["due"].startswith(
        "3 runs due and not handed off, the oldest since 2026-04-03T01:55:00Z (5 min ago): start a scheduler"
    )
    assert told["alerts"] == "2 open; see foliot alerts list; most urgent: dead, it failed five times"
    many = {check.name: check.detail for check in judge(late._replace(overdue=20_000))}
    assert many["due"].startswith("at least 20,000 runs due")


def test_the_doctor_warns_of_what_is_due_and_of_open_alerts(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/due.db"
    asyncio.run(make_overdue(url))
    found = {check["name"]: check for check in run_json("doctor", "--store", url)["checks"]}
    assert found["due"]["verdict"] == found["alerts"]["verdict"] == "warning"
    assert found["due"]["detail"].startswith("2 runs due and not handed off, the oldest since ")
    assert found["alerts"]["detail"].startswith(
        "1 open; see foliot alerts list; most urgent: dead, it failed five times"
    )
