"""Many late runs of one cause have one alert."""

from __future__ import annotations

from foliot import Foliot, every
from foliot.domain.alerts import Alert, Kind, Severity
from foliot.domain.instant import MINUTE, SECOND, instant
from foliot.domain.run import Lane, Origin, RunView
from foliot.domain.state import State
from foliot.watch.runs import MOST_LATE, late
from tests.watch.watched import START, Place, one, told, watched

NOW = instant(START)


def late_run(number: int, state: State = State.SCHEDULED, queue: str = "default") -> RunView:
    due = NOW - 3 * MINUTE
    return RunView(
        number=number,
        name=f"tick{number}@then",
        state=state,
        origin=Origin.SCHEDULED,
        job="work",
        schedule=f"tick{number}",
        revision=1,
        tenant=None,
        queue=queue,
        lane=Lane.LIVE,
        priority=0,
        nominal=due,
        since=None,
        fire_at=due,
        attempt=0,
        spent=0,
        reason=None,
        detail=None,
        payload=b"{}",
        worker=None,
        fired_at=None,
        claimed_at=None,
        started_at=None,
        finished_at=None,
        progress=None,
        result=None,
    )


def an_alert(subject: str) -> Alert:
    return Alert(1, Kind.LATE, subject, Severity.WARNING, "late", "look", NOW, NOW)


def test_late_runs_that_were_not_handed_off_are_one_alert_that_names_the_start_of_a_scheduler() -> None:
    runs = [late_run(number) for number in range(1_204)]
    [found] = late(runs, {}, NOW, is_all=True, began=NOW - 40 * SECOND).findings
    assert (found.subject, found.count) == ("fleet", 1_204)
    assert found.cause == (
        "1,204 runs are late: a scheduler started 40 s ago and is handing off older runs: tick0, tick1, tick2 "
        "and 1,201 more"
    )
    [found] = late(runs, {}, NOW, is_all=False, began=NOW - 10 * MINUTE).findings
    assert found.cause.startswith("1,204 runs or more are late: they were not handed off: ")


def test_late_runs_that_wait_for_workers_are_one_alert_for_each_queue() -> None:
    runs = [late_run(number, State.READY, "mail" if number % 2 else "default") for number in range(4 * MOST_LATE)]
    findings = late(runs, {}, NOW, is_all=True).findings
    assert sorted((one.subject, one.count) for one in findings) == [
        ("queue:default", 2 * MOST_LATE),
        ("queue:mail", 2 * MOST_LATE),
    ]


def test_few_late_schedules_have_an_alert_each() -> None:
    runs = [late_run(number) for number in range(MOST_LATE)]
    assert len(late(runs, {}, NOW, is_all=True).findings) == MOST_LATE


def test_a_schedule_with_an_open_alert_keeps_it_beside_that_of_many() -> None:
    runs = [late_run(number) for number in range(MOST_LATE + 2)]
    found = late(runs, {}, NOW, is_all=True, known=[an_alert("schedule:tick3")]).findings
    assert sorted((one.subject, one.count) for one in found) == [("fleet", MOST_LATE + 1), ("schedule:tick3", 1)]


def test_the_last_ones_of_many_get_no_alerts_of_their_own() -> None:
    [found] = late([late_run(1)], {}, NOW, is_all=True, known=[an_alert("fleet")]).findings
    assert (found.subject, found.count) == ("fleet", 1)


def test_a_fleet_without_workers_opens_one_alert_for_all_its_late_schedules(place: Place | None) -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job(no_alerts=["no_worker"])
    def work() -> None: ...

    for number in range(MOST_LATE + 5):
        app.schedule(f"tick{number:02}", work, every("10m"))
    with watched(app, "1m", place=place) as world:
        world.run_for("5m")
        world.kill_worker()
        world.run_for("9m")
        alert = one(world, Kind.LATE)
        assert (alert.subject, alert.count) == ("queue:default", MOST_LATE + 5)
        assert "no worker of queue default has started them: tick00, tick01, tick02 and 22 more" in alert.cause
        world.add_worker()
        world.run_for("2m")
        assert world.alerts() == []
        assert [subject for kind, subject in told(world) if kind == "late"] == ["queue:default"]
