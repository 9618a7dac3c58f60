"""The API as programs use it: what answers look like, ids of any kind, pages, revisions, errors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from pydantic import BaseModel

from foliot.domain.instant import HOUR, rfc3339
from foliot.web import models
from foliot.web.application import inner_application
from tests.web.stage import Caller, Stage, staged

DOUBT = "/runs/doubt%5Bacme%5D%231"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as made:
        yield made


@pytest.fixture(scope="module")
def caller(stage: Stage) -> Caller:
    return stage.caller("root", "admin")


def _ago(stage: Stage, **length: int) -> str:
    return (stage.world.now - timedelta(**length)).isoformat()


ANSWERS: dict[str, type[BaseModel]] = {
    "/me": models.Me,
    "/schedules?order=next&paused=false": models.StandingPage,
    "/schedules/daily%2Freport": models.ScheduleStanding,
    "/schedules/plain/next?count=3": models.Ticks,
    "/schedules/visits/members": models.Page[models.Standing],
    "/runs?limit=1000": models.RunPage,
    "/runs?order=soonest": models.RunPage,
    "/runs?needs_person=true": models.RunPage,
    DOUBT: models.WholeRun,
    "/runs/letter%5Bacme%5D%231": models.WholeRun,
    "/dead": models.Page[models.DeadRun],
    "/backfills": models.Page[models.Backfill],
    "/backfills/1": models.BackfillStanding,
    "/overview": models.Overview,
    "/overview/kept?minutes=5": models.Page[models.Minute],
    "/needs": models.Page[models.Need],
    "/alerts?everything=true": models.AlertPage,
    "/alerts/1": models.AlertStory,
    "/retention": models.Retention,
    "/pauses": models.Page[models.Pause],
    "/jobs": models.Page[models.Job],
    "/jobs/report": models.WholeJob,
    "/queues": models.Page[models.Queue],
    "/workers": models.Page[models.Worker],
    "/tenants": models.Page[models.Tenant],
    "/limits": models.Page[models.Limit],
    "/members": models.Page[models.MemberSet],
    "/members/shops": models.Page[models.Member],
    "/events": models.Page[models.Event],
    "/audit": models.Page[models.AuditRow],
    "/audit/verify": models.AuditReport,
    "/audit/anchor": models.Anchor,
    "/report/plain": models.Report,
    "/load?for=3h": models.Load,
    "/rules/next?rule=0%202%20*%20*%20*": models.Times,
    "/rules/explain?rule=every%2015m&tz=Europe/Paris": models.Explained,
    "/rules/preview?rule=30%202%20*%20*%20*&tz=America/New_York": models.Days,
    "/tokens": models.Page[models.Token],
}


def test_every_answer_is_what_its_description_says(stage: Stage, caller: Caller) -> None:
    """Field by field: a shape that gains or loses one must say so in its model."""
    span = {"from": _ago(stage, hours=9), "to": _ago(stage, hours=7)}
    seen = caller.post("/backfills", schedule="plain", reason="why", dry_run=True, **span)
    models.BackfillPreview.model_validate(seen["preview"])
    made = caller.post("/backfills", schedule="plain", reason="why", rate="1/h", window="22:00-06:00", **span)
    models.Backfill.model_validate(made["backfill"])
    stage.alert("acme")
    caller.post("/queues/mail/pause", reason="why")
    caller.ask("PUT", "/api/v1/limits/tenant%3Aacme", json={"reason": "why", "rate": "5/s", "weight": 2})
    for path, model in ANSWERS.items():
        model.model_validate(caller.get(path))


def test_what_a_tick_over_members_lacks_is_told_as_described() -> None:
    with staged(lived=False) as stage:
        caller = stage.caller("root", "admin")
        caller.post("/queues/default/pause", reason="why")
        stage.world.run_for("1h1m")
        [tick] = [one for one in caller.get("/runs", schedule="visits")["items"] if one["state"] == "verifying"]
        told = models.WholeRun.model_validate(caller.get(f"/runs/{quote(tick['id'], safe='')}")).interval
    assert told is not None
    assert [one.member for one in told.lacking] == ["north", "south"]


def test_every_get_of_the_api_is_held_to_its_description() -> None:
    described = {path.partition("?")[0] for path in ANSWERS}
    templates = [route.path_format for route in inner_application().routes if "GET" in (route.methods or ())]  # type: ignore[attr-defined]
    counted = [path for path in templates if path.startswith("/api/v1")]
    assert len(counted) == len(described - {"/runs/letter%5Bacme%5D%231"})


def test_acts_answer_as_described(stage: Stage, caller: Caller) -> None:
    kept: dict[str, dict[str, Any]] = {
        "/schedules/plain/trigger": {"reason": "why"},
        f"{DOUBT}/reconcile": {"evidence": "the bank says so", "effects": ["pay:7=done"]},
        f"{DOUBT}/rerun": {"reason": "why"},
        "/runs/letter%5Bglobex%5D%231/retry": {"reason": "why", "override": True},
    }
    for path, body in kept.items():
        models.Kept.model_validate(caller.post(path, **body))
    done = {"/schedules/plain/pause": {"reason": "why"}, "/schedules/plain/resume": {"reason": "why"}}
    for path, body in done.items():
        assert models.Paused.model_validate(caller.post(path, **body)).pauses
    models.MembersChanged.model_validate(caller.post("/members/shops/add", members=["east"], reason="why"))
    told = caller.post("/bulk/rerun", runs=["letter[acme]#1", "nobody"], reason="why", dry_run=True)
    assert models.Outcomes.model_validate(told).total == 2
    models.Page[models.Reconciled].model_validate(
        caller.post("/bulk/reconcile", job="settle", state="done", evidence="looked")
    )
    seen = caller.post("/dead/replay", reason="why", dry_run=True)
    assert models.ReplayPreview.model_validate(seen["preview"]).total >= 1


@pytest.mark.parametrize("identifier", ["daily/report", "plain"])
def test_an_id_may_hold_a_slash_and_whatever_else(caller: Caller, identifier: str) -> None:
    assert caller.get(f"/schedules/{quote(identifier, safe='')}")["id"] == identifier
    run = caller.get("/runs", schedule=identifier, state="succeeded", limit=1)["items"][0]["id"]
    assert caller.get(f"/runs/{quote(run, safe='')}")["id"] == run
    assert caller.get(f"/runs/{quote(run, safe='@:')}")["id"] == run


@pytest.mark.parametrize("bad", ["%FF", "%00", "a%00b", "%ED%A0%80"])
def test_an_id_that_is_no_text_is_refused(caller: Caller, bad: str) -> None:
    assert caller.ask("GET", f"/api/v1/runs/{bad}").status_code == 422


def test_pages_follow_one_another_and_hold_each_run_once(caller: Caller) -> None:
    everything = [one["id"] for one in caller.get("/runs", limit=1000)["items"]]
    assert len(everything) > 10
    found: list[str] = []
    page = caller.get("/runs", limit=4)
    while True:
        found += [one["id"] for one in page["items"]]
        if page["cursor"] is None:
            break
        page = caller.get("/runs", limit=4, cursor=page["cursor"])
    assert found == everything
    first = caller.get("/schedules", limit=2)
    second = caller.get("/schedules", limit=2, cursor=first["cursor"])
    assert [one["id"] for one in first["items"] + second["items"]] == [
        "daily/report",
        "globex-report",
        "plain",
        "visits",
    ]
    assert second["cursor"] is None


def test_runs_are_found_by_what_is_asked_of_them(stage: Stage, caller: Caller) -> None:
    def ids(**query: Any) -> list[str]:
        return [one["id"] for one in caller.get("/runs", **query)["items"]]

    assert "letter[acme]#1" in ids(state=["dead", "skipped"], tenant="acme")
    assert set(ids(prefix="letter[")) == {"letter[acme]#1", "letter[globex]#1"}
    assert ids(schedule="visits", member="north")
    assert ids(nominal_from=rfc3339(stage.world.clock.now()), state="scheduled")
    assert ids(fire_to=rfc3339(0)) == []
    for wrong in ({"state": "nonsense"}, {"nonsense": "1"}, {"limit": 0}, {"cursor": "x"}, {"nominal_from": "monday"}):
        response = caller.ask("GET", "/api/v1/runs", params=wrong)
        assert response.status_code == 422, wrong
        assert response.json()["status"] == 422


def test_a_deletion_of_a_changed_schedule_is_refused() -> None:
    with staged(lived=False) as stage:
        caller = stage.caller("root", "admin")
        path = "/api/v1/schedules/visits"
        etag = caller.ask("GET", path).headers["etag"]
        stale = caller.ask("DELETE", path, params={"reason": "why"}, headers={"if-match": '"99"'})
        assert stale.status_code == 412
        assert "is at revision 1, not at 99" in stale.json()["detail"]
        unknown = caller.ask("DELETE", path, params={"reason": "why"}, headers={"if-match": "whatever"})
        assert unknown.status_code == 412
        assert etag in unknown.json()["detail"]
        assert caller.ask("DELETE", path, params={"reason": "why"}, headers={"if-match": etag}).status_code == 200
        assert caller.ask("GET", path).status_code == 404


def test_an_error_says_what_was_wrong_and_where(caller: Caller) -> None:
    response = caller.ask("POST", "/api/v1/schedules/plain/pause", json={"until": "tomorrow", "why": "x"})
    assert response.status_code == 422
    told = response.json()
    assert told["instance"] == "/api/v1/schedules/plain/pause"
    assert {one["where"] for one in told["errors"]} == {"body.reason", "body.until", "body.why"}
    assert "2026-04-03T02:00:00Z" in told["detail"]


def test_a_refusal_of_the_domain_keeps_its_words(caller: Caller) -> None:
    response = caller.ask("POST", f"/api/v1{DOUBT}/cancel", json={"reason": "why"})
    assert response.status_code == 409
    response = caller.ask("GET", "/api/v1/rules/next", params={"rule": "0 25 * * *"})
    assert response.status_code == 422
    assert "25" in response.json()["detail"]


def test_what_is_not_there_and_what_is_not_done_that_way(caller: Caller) -> None:
    assert caller.ask("GET", "/api/v1/nothing").status_code == 404
    response = caller.ask("PATCH", "/api/v1/runs")
    assert (response.status_code, response.headers["allow"]) == (405, "GET")
    assert caller.ask("PATCH", "/api/v1/tokens").headers["allow"] == "GET, POST"


def test_events_are_followed_by_their_cursor(stage: Stage, caller: Caller) -> None:
    for number in range(3):
        stage.world.call(stage.world.store.note("tick_moved", "plain", f"the {number}th time"))
    first = caller.get("/events", limit=2)
    assert len(first["items"]) == 2
    rest = caller.get("/events", after=first["cursor"])
    assert not {one["cursor"] for one in first["items"]} & {one["cursor"] for one in rest["items"]}
    assert caller.get("/events", after=rest["cursor"]) == {"items": [], "cursor": rest["cursor"]}


def test_ready_means_that_ticks_happen(stage: Stage) -> None:
    stranger = stage.somebody("http://foliot.example.com")
    response = stranger.ask("GET", "/readyz")
    assert (response.status_code, response.json()) == (200, {"status": "ready", "reasons": []})
    stage.world.clock.advance(HOUR)
    response = stranger.ask("GET", "/readyz")
    assert response.status_code == 503
    reasons = " ".join(response.json()["reasons"])
    assert "no heartbeat of a scheduler" in reasons
    assert "without an owner" in reasons
    assert "not handed off" in reasons
    stage.world.run_for("1m")
    assert stranger.ask("GET", "/readyz").status_code == 200


def test_a_run_is_reconciled_and_resumed_over_http() -> None:
    with staged() as made:
        caller = made.caller("ops")
        caller.post(f"{DOUBT}/reconcile", 422, effects=["pay:7=done"])
        caller.post(f"{DOUBT}/reconcile", 422, evidence="...", effects=["pay:7=done"])
        caller.post(f"{DOUBT}/reconcile", 422, evidence="statement 17", then="perhaps")
        caller.post(f"{DOUBT}/reconcile", 409, evidence="statement 17", then="resume")
        kept = caller.post(f"{DOUBT}/reconcile", evidence="statement 17", effects=["pay:7=not_done"])
        assert (kept["outcome"], kept["state"]) == ("settled", "settled")
        seen = caller.get(DOUBT)
        assert (seen["advice"]["action"], seen["advice"]["counts"]) == ("resume", ["effects: 1 done, 1 not done"])
        caller.post(f"{DOUBT}/reconcile", 422, then="close")
        kept = caller.post(f"{DOUBT}/reconcile", then="resume")
        assert (kept["outcome"], kept["state"]) == ("resumed", "retrying")
