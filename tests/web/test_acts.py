"""What operators do over HTTP: schedules that are made and edited, many at once, promises, pauses, workers, alerts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from foliot.domain.access import SHARED
from foliot.domain.instant import HOUR, rfc3339
from foliot.web import models
from foliot.web.settings import WebSettings
from tests.web.stage import LOCAL, Caller, Stage, staged

NEW = {"name": "new", "job": "report", "rule": "0 2 * * *", "tz": "Europe/Paris", "args": {"day": "friday"}}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged() as made:
        yield made


@pytest.fixture
def root(stage: Stage) -> Caller:
    return stage.caller("root", "admin")


@pytest.fixture
def acme(stage: Stage) -> Caller:
    return stage.caller("acme-operator", tenant="acme")


# Schedules


def _patch(caller: Caller, name: str, etag: str | None, **change: Any) -> Any:
    headers = {} if etag is None else {"if-match": etag}
    return caller.ask("PATCH", f"/api/v1/schedules/{name}", json={"reason": "why", "change": change}, headers=headers)


def test_a_schedule_is_made_edited_and_removed_by_its_revision(root: Caller) -> None:
    seen = root.post("/schedules", schedule=NEW, reason="why", dry_run=True)
    assert (seen["outcome"], len(seen["ticks_after"])) == ("created", 5)
    models.Planned.model_validate(root.post("/schedules", 201, schedule=NEW, reason="why"))
    assert root.post("/schedules", 200, schedule=NEW, reason="why")["outcome"] == "unchanged"
    root.post("/schedules", 409, schedule=NEW | {"rule": "0 3 * * *"}, reason="why")
    etag = root.ask("GET", "/api/v1/schedules/new").headers["etag"]

    assert _patch(root, "new", None, owner="ben").json()["type"] == "urn:foliot:problem:no-revision"
    body = {"reason": "why", "change": {"rule": "0 4 * * *"}, "dry_run": True}
    preview = root.ask("PATCH", "/api/v1/schedules/new", json=body).json()
    assert [one["field"] for one in preview["changed"]] == ["rule"]
    assert preview["ticks_before"] != preview["ticks_after"]
    edited = _patch(root, "new", etag, owner="ben", overlap="queue")
    assert (edited.status_code, edited.headers["etag"]) == (200, '"2"')
    stale = _patch(root, "new", etag, owner="eve")
    assert (stale.status_code, "root" in stale.json()["detail"]) == (412, True)
    assert _patch(root, "new", "*", priority=3).status_code == 200
    told = root.get("/schedules/new")
    assert (told["owner"], told["priority"], told["policy"]["overlap"], told["revision"]) == ("ben", 3, "queue", 3)

    gone = {"params": {"reason": "why"}}
    assert root.ask("DELETE", "/api/v1/schedules/new", headers={"if-match": etag}, **gone).status_code == 412
    assert root.ask("DELETE", "/api/v1/schedules/new", headers={"if-match": '"3"'}, **gone).status_code == 200


def test_a_source_states_its_schedules_and_prunes_what_it_dropped(root: Caller) -> None:
    both = [NEW, NEW | {"name": "other"}]
    asked = {"source": "billing", "reason": "why"}
    would = root.post("/bulk/apply", schedules=both, dry_run=True, **asked)["items"]
    assert [one["outcome"] for one in would] == ["created", "created"]
    root.post("/bulk/apply", schedules=both, **asked)
    told = root.post("/bulk/apply", schedules=both[:1], prune=True, **asked)["items"]
    assert {one["id"]: one["outcome"] for one in told} == {"new": "unchanged", "other": "pruned"}
    assert root.ask("GET", "/api/v1/schedules/other").status_code == 404
    root.post("/bulk/apply", 409, schedules=both[:1], source="another", reason="why")


def test_a_tenants_schedules_are_its_own_whatever_is_said(stage: Stage, root: Caller, acme: Caller) -> None:
    acme.post("/schedules", 201, schedule=NEW, reason="why")
    assert root.get("/schedules/new")["tenant"] == "acme"
    for wrong in ({"tenant": "globex"}, {"over": "shops"}):
        acme.post("/schedules", 403, schedule=NEW | wrong, reason="why")
    for tenant in ("globex", None):
        assert _patch(acme, "new", "*", tenant=tenant).status_code == 403
    told = acme.post("/schedules", 409, schedule=NEW | {"name": "globex-report"}, reason="why")
    assert told["detail"] == "the name 'globex-report' is taken; choose another"
    root.post("/jobs/report/pause", reason="globex sends rubbish", what=["creation"])
    assert "rubbish" not in acme.ask("GET", "/api/v1/schedules").text
    assert acme.get("/schedules/new")["state"] == "paused"


# Pauses, and many at once


def test_pauses_of_all_kinds_are_made_listed_and_ended(stage: Stage, root: Caller) -> None:
    made = root.post("/schedules/plain/pause", reason="a flood", what=["retries", "claims"], **{"for": "1h"})
    assert [one["what"] for one in made["pauses"]] == ["retries", "claims"]
    assert made["pauses"][0]["until"] == rfc3339(stage.world.clock.now() + HOUR)
    for path in ("/jobs/report", "/queues/mail", "/tenants/acme"):
        assert root.post(f"{path}/pause", reason="why")["pauses"][0]["what"] == "claims"
    assert {one["name"] for one in root.get("/pauses")["items"]} >= {"schedule:plain", "job:report", "tenant:acme"}
    for path in ("/jobs/report", "/queues/mail", "/tenants/acme", "/schedules/plain"):
        assert root.post(f"{path}/resume", reason="why")["outcome"] == "resumed"
        assert root.post(f"{path}/resume", reason="why")["outcome"] == "unchanged"
    root.post("/jobs/nobody/pause", 404, reason="why")
    root.post("/jobs/report/pause", 422, reason="why", until="2030-01-01T00:00:00Z", **{"for": "1h"})


def test_many_are_counted_first_and_then_each_is_done_by_itself(root: Caller, acme: Caller) -> None:
    root.post("/bulk/pause", 422, schedules={}, reason="why")
    would = root.post("/bulk/pause", schedules={"job": "report"}, reason="why", dry_run=True)
    assert models.BulkSchedules.model_validate(would).preview.would == 4  # type: ignore[union-attr]
    told = acme.post("/bulk/pause", schedules={}, reason="why")["told"]
    assert [one["id"] for one in told["handled"]] == ["daily/report"]
    assert root.post("/bulk/resume", schedules={"prefix": "daily"}, reason="why")["told"]["counts"] == {"resumed": 1}
    acme.post("/bulk/pause", 403, schedules={"tenant": "globex"}, reason="why")

    for number in range(3):
        root.post("/promises", job="report", key=f"x{number}", delay="1h", tenant="globex" if number else "acme")
    root.post("/bulk/cancel", 422, runs={}, reason="why")
    would = acme.post("/bulk/cancel", runs={"prefix": "x"}, reason="why", dry_run=True)
    assert models.BulkRuns.model_validate(would).preview.would == 1  # type: ignore[union-attr]
    told = acme.post("/bulk/cancel", runs={"prefix": "x"}, reason="why")["told"]
    assert [one["id"] for one in told["handled"]] == ["x0[acme]#1"]
    assert root.post("/bulk/skip", runs={"prefix": "x"}, reason="why")["told"]["counts"] == {"skipped": 2}


# Promises


BEYOND: dict[str, object] = {
    "queue": "fast",
    "priority": 9,
    "labels": ["gpu"],
    "concurrency_key": "till",
    "key_limit": 5,
    "destination": "bank",
    "breaker_after": 1,
    "breaker_probe": "1s",
    "requires": "globex-report",
    "ping": "https://watcher.example/",
    "poison_after": 1_000,
}


def test_a_tenants_token_does_not_choose_what_reaches_beyond_its_tenant(stage: Stage, acme: Caller) -> None:
    assert BEYOND.keys() == SHARED
    trusted = stage.caller("acme-admin", "admin", tenant="acme")
    schedule = {"name": "acme/other", "job": "report", "rule": "0 2 * * *"}
    for name, value in BEYOND.items():
        said = {name: value}
        promise = {"job": "report", "delay": "1h"} | (said if name in ("queue", "priority") else {"settings": said})
        change = {"change": said, "reason": "why", "dry_run": True}
        for caller, status in ((acme, 403), (trusted, 200)):
            told = caller.post("/schedules", status, schedule=schedule | said, reason="why", dry_run=True)
            assert status == 200 or told["detail"].startswith(f"{name}: shared by all tenants")
            assert caller.ask("PATCH", "/api/v1/schedules/daily%2Freport", json=change).status_code == status, name
            if name != "requires":  # a promise has none
                caller.post("/promises", status, **promise)
                caller.post("/bulk/promises", status, promises=[{"job": "report"}, promise])


def test_a_ping_to_a_private_address_is_refused_at_every_door_whatever_the_scope(stage: Stage, root: Caller) -> None:
    """The owner of the process allows such addresses, and no token does."""
    own = stage.caller("acme-admin", "admin", tenant="acme")
    work = stage.caller("resizer", "work", all_tenants=True)
    schedule = {"name": "acme/other", "job": "report", "rule": "0 2 * * *"}
    for url in ("http://127.0.0.1:8300/", "http://[::ffff:a9fe:a9fe]/", "http://2130706433/", "http://localhost/"):
        said = {"ping": url}
        refusals = [
            work.post("/external/workers", 422, name="laptop", jobs=[{"name": "resize", "settings": said}]),
        ]
        for dry_run in (True, False):
            listed = {"source": "file:a", "schedules": [schedule | said], "reason": "why", "dry_run": dry_run}
            refusals.append(root.post("/bulk/apply", 422, **listed))
        for caller in (root, own):
            for dry_run in (True, False):
                told = {"reason": "why", "dry_run": dry_run}
                refusals += [
                    caller.post("/schedules", 422, schedule=schedule | said, **told),
                    caller.ask(
                        "PATCH",
                        "/api/v1/schedules/daily%2Freport",
                        json={"change": said} | told,
                        headers={"if-match": '"1"'},
                    ).json(),
                ]
            refusals.append(caller.post("/promises", 422, job="report", settings=said))
            refusals.append(caller.post("/bulk/promises", 422, promises=[{"job": "report", "settings": said}]))
        assert all("FOLIOT_PRIVATE_NETWORKS" in one["detail"] for one in refusals), refusals


def test_that_a_setting_of_the_job_does_not_hold_is_no_choice_of_a_tenants_either(acme: Caller) -> None:
    for name in ("breaker_after", "destination", "concurrency_key"):
        acme.post("/promises", 403, job="report", settings={name: None})


def test_a_tenants_token_may_say_what_holds_anyway(acme: Caller) -> None:
    own = {"queue": "default", "priority": 0}
    acme.post("/promises", job="report", delay="1h", **own)
    schedule = {"name": "acme/own", "job": "report", "rule": "0 2 * * *"}
    acme.post("/schedules", schedule=schedule | own, reason="why", dry_run=True)


def test_promises_are_made_moved_and_cancelled_by_their_keys(stage: Stage, root: Caller, acme: Caller) -> None:
    made = acme.post("/promises", job="report", args={"day": "x"}, key="class:7", delay="1h")
    assert (made["id"], made["outcome"]) == ("class:7[acme]#1", "made")
    assert acme.post("/promises", job="report", key="class:7")["outcome"] == "kept"
    moved = acme.post("/promises/class%3A7/move", at="2030-01-01T00:00:00Z")
    assert moved["fire_at"] == "2030-01-01T00:00:00Z"
    assert root.post("/promises/class%3A7/cancel", tenant="acme", reason="why")["outcome"] == "cancelled"
    acts = [one for one in root.get("/audit")["items"] if one["subject"] == made["id"]]
    assert [(one["actor"], one["action"]) for one in reversed(acts)] == [
        (acme.get("/me")["name"], "promise"),
        (acme.get("/me")["name"], "move"),
        (root.get("/me")["name"], "cancel"),
    ]
    acme.post("/promises", 403, job="report", tenant="globex")
    both = [{"job": "report", "key": "a"}, {"job": "report", "key": "b", "useful_until": "2030-01-01T00:00:00Z"}]
    assert [one["id"] for one in root.post("/bulk/promises", promises=both)["items"]] == ["a#1", "b#1"]
    root.post("/bulk/promises", 404, promises=[{"job": "report", "key": "c"}, {"job": "nobody"}])
    assert root.ask("GET", "/api/v1/runs/c%231").status_code == 404, "all of them or none"
    skipped = root.post("/promises", job="report", key="later", delay="1h")["id"]
    assert root.post(f"/runs/{skipped.replace('#', '%23')}/skip", reason="why")["outcome"] == "skipped"


# What must not be silent, and the fleet


def test_an_alert_is_shown_with_advice_and_snoozed(stage: Stage, root: Caller, acme: Caller) -> None:
    number = stage.alert("acme")
    assert acme.get(f"/alerts/{number}")["advice"]["action"]
    told = acme.post(f"/alerts/{number}/snooze", reason="known", **{"for": "1h"})
    assert told["snoozed_until"] == rfc3339(stage.world.clock.now() + HOUR)
    assert acme.post(f"/alerts/{number}/unsnooze", reason="back")["snoozed_until"] is None
    assert {one["tenant"] for one in acme.get("/alerts")["items"]} == {"acme"}
    assert {one["tenant"] for one in acme.get("/needs")["items"]} == {"acme"}
    first = root.get("/alerts", limit=1)
    assert len(first["items"]) == 1


def test_a_worker_is_told_to_take_nothing_more(root: Caller) -> None:
    [worker, *_] = root.get("/workers")["items"]
    path = f"/workers/{worker['number']}"
    told = root.post(f"{path}/quarantine", reason="a broken disk")
    assert told == {"number": worker["number"], "wish": "quarantine", "outcome": "told"}
    assert root.post(f"{path}/quarantine", reason="again")["outcome"] == "unchanged"
    assert root.post(f"{path}/resume", reason="mended")["wish"] is None
    assert root.post(f"{path}/drain", reason="a deploy")["wish"] == "drain"


def test_members_are_added_and_removed(root: Caller) -> None:
    added = root.post("/members/shops/add", members=["east", "west", "north"], reason="opened")
    assert (added["added"], added["removed"]) == (2, 0)
    removed = root.post("/members/shops/remove", members=["east", "nowhere"], reason="closed")
    assert (removed["added"], removed["removed"]) == (0, 1)
    assert [one["member"] for one in root.get("/members/shops")["items"]] == ["north", "south", "west"]


def test_a_backfill_is_paused_and_resumed(stage: Stage, root: Caller) -> None:
    begin, end = (rfc3339(stage.world.clock.now() - hours * HOUR) for hours in (9, 7))
    span = {"from": begin, "to": end}
    made = root.post("/backfills", schedule="plain", reason="an outage", **span)["backfill"]
    path = f"/backfills/{made['id']}"
    assert root.post(f"{path}/pause", reason="a flood")["state"] == "paused"
    assert root.post(f"{path}/resume", reason="it is over")["state"] == made["state"]


def test_history_has_its_term(root: Caller) -> None:
    put = root.ask("PUT", "/api/v1/retention", json={"days": 90, "reason": "why"})
    assert put.json() == root.get("/retention") == {"days": 90}
    root.ask("PUT", "/api/v1/retention", json={"days": None, "reason": "why"})
    assert root.get("/retention") == {"days": None}


def test_metrics_are_told_to_whoever_may_read_and_to_this_host() -> None:
    with staged(WebSettings()) as stage:
        stage.alert("acme")
        reader = stage.caller("prometheus", "read")
        for asked in (reader.ask("GET", "/metrics"), stage.somebody(LOCAL).ask("GET", "/metrics")):
            assert asked.status_code == 200
            families = {one.name for one in text_string_to_metric_families(asked.text)}
            assert {"foliot_runs", "foliot_alerts_open"} <= families
        assert stage.somebody("http://foliot.example.com").ask("GET", "/metrics").status_code != 200
