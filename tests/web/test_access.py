"""Every route, asked by everybody who may not: strangers, the expired, the revoked, the wrong scope, other tenants."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

import httpx
import pytest

from foliot.domain.access import Scope, allows
from foliot.web.access import OPEN, TABLE, Tenants
from foliot.web.pages import static
from tests.web.stage import ELSEWHERE, Caller, Stage, staged

ROUTES = sorted(TABLE)
THEIRS = {
    "{schedule}": "globex-report",
    "{run}": "letter[globex]#1",
    "{backfill}": "1",
    "{subject}": "globex-report",
    "{alert}": "1",
    "{key}": "globex-only",
}
"""What belongs to another tenant than acme."""
NOBODYS = {
    "{schedule}": "no-such-report",
    "{run}": "letter[nobody]#1",
    "{backfill}": "77",
    "{subject}": "no-such-report",
    "{alert}": "77",
    "{key}": "nobodys",
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with staged() as made:
        made.token("first")  # so that nobody is let in for want of tokens
        operate = made.app.operate
        begun = operate.backfill_async(
            "globex-report",
            made.world.now - timedelta(hours=9),
            made.world.now - timedelta(hours=7),
            reason="why",
            actor="ana",
        )
        assert made.world.call(begun).number == 1
        THEIRS["{alert}"] = str(made.alert("globex"))
        made.promise("report", "globex-only", tenant="globex")
        yield made


def _path(template: str, names: dict[str, str]) -> str:
    for place, name in names.items():
        template = template.replace(place, quote(name, safe=""))
    return template.replace("{", "").replace("}", "")


def _asked(caller: Caller, method: str, path: str) -> httpx.Response:
    """Without a body that could be used: who may not ask is told so before anything is read."""
    return caller.ask(method, path, headers={"content-type": "application/json"})


def test_whoever_has_no_good_token_is_told_so_by_every_route(stage: Stage) -> None:
    expired = stage.token("expired", "admin", expires_in="1s")
    revoked = stage.token("revoked", "admin")
    stage.world.call(stage.app.operate.revoke_token_async("revoked", reason="leaked", actor="ana"))
    stage.world.run_for("1s")
    said = {
        "nothing": {},
        "nonsense": {"authorization": "Bearer foliot_" + "x" * 43},
        "basic": {"authorization": "Basic YW5hOmFuYQ=="},
        "expired": {"authorization": f"Bearer {expired}"},
        "revoked": {"authorization": f"Bearer {revoked}"},
        "session": {"cookie": "foliot_session=whatever"},
    }
    for how, headers in said.items():
        caller = Caller(stage, headers, ELSEWHERE)
        for method, template in ROUTES:
            response = _asked(caller, method, _path(template, THEIRS))
            assert response.status_code == 401, (how, method, template)
            assert response.headers["content-type"] == "application/problem+json"
            assert response.json()["type"] == "urn:foliot:problem:no-credential"


def test_a_path_that_does_not_exist_tells_strangers_nothing(stage: Stage) -> None:
    assert stage.somebody(ELSEWHERE).ask("GET", "/api/v1/nothing").status_code == 401
    assert stage.caller("curious").ask("GET", "/api/v1/nothing").status_code == 404


def test_every_route_wants_its_scope(stage: Stage) -> None:
    for scope in Scope:
        caller = stage.caller(f"only-{scope}", scope)
        for method, template in ROUTES:
            if not allows(scope, TABLE[method, template].scope):
                response = _asked(caller, method, _path(template, THEIRS))
                assert response.status_code == 403, (scope, method, template)
                assert response.json()["type"] == "urn:foliot:problem:not-allowed"


def test_what_is_about_the_whole_installation_is_refused_to_a_tenants_token(stage: Stage) -> None:
    caller = stage.caller("acme-admin", "admin", tenant="acme")
    refused = [route for route in ROUTES if TABLE[route].tenants is Tenants.ALL]
    assert refused
    for method, template in refused:
        response = _asked(caller, method, _path(template, THEIRS))
        assert response.status_code == 403, (method, template)


BODIES = {
    "/reconcile": {"evidence": "the bank says so"},
    "/rate": {"reason": "why", "at_once": 2},
    "/move": {"at": "2030-01-01T00:00:00Z"},
    "/snooze": {"reason": "why", "for": "1h"},
    "/{schedule}": {"reason": "why", "change": {"owner": "eve"}},
}


def test_what_is_another_tenants_is_told_as_what_nobody_has(stage: Stage) -> None:
    caller = stage.caller("acme-operator", "operate", tenant="acme")
    named = [route for route in ROUTES if any(place in route[1] for place in THEIRS)]
    named = [route for route in named if TABLE[route].tenants is Tenants.OWN]
    named = [route for route in named if not route[1].startswith("/act/")]  # forms, which answer with pages
    assert len(named) > 15
    for method, template in named:
        body = next((body for end, body in BODIES.items() if template.endswith(end)), {"reason": "why"})
        more = (
            {"json": body}
            if method in ("POST", "PATCH")
            else {"params": {"reason": "why"}}
            if method == "DELETE"
            else {}
        )
        told = []
        for names in (THEIRS, NOBODYS):
            response = caller.ask(method, _path(template, names), **more)
            assert response.status_code == 404, (method, template, response.text)
            text = response.text
            for name in (name for place, name in names.items() if place in template):
                text = (
                    text.replace(f"/{quote(name, safe='')}", "/?").replace(f' {name}"', ' ?"').replace(f"'{name}'", "?")
                )
            told.append((text, {k: v for k, v in response.headers.items() if k != "content-length"}))
        assert told[0] == told[1], (method, template)


def test_lists_hold_only_what_is_the_tenants_own(stage: Stage) -> None:
    caller = stage.caller("acme-reader", "read", tenant="acme")
    assert {one["tenant"] for one in caller.get("/runs")["items"]} == {"acme"}
    assert {one["tenant"] for one in caller.get("/dead")["items"]} == {"acme"}
    assert [one["id"] for one in caller.get("/schedules")["items"]] == ["daily/report"]
    for path in ("/runs", "/dead", "/schedules"):
        assert caller.ask("GET", f"/api/v1{path}", params={"tenant": "globex"}).status_code == 403


def test_a_replay_of_a_tenant_leaves_the_letters_of_others(stage: Stage) -> None:
    caller = stage.caller("acme-replayer", tenant="acme")
    told = caller.post("/dead/replay", reason="the account is there now", override=True)
    assert [one["id"] for one in told["outcomes"]["runs"]] == ["letter[acme]#1"]
    refused = caller.ask("POST", "/api/v1/dead/replay", json={"reason": "why", "tenant": "globex"})
    assert refused.status_code == 403


def test_many_are_rerun_only_if_all_are_the_tenants_own(stage: Stage) -> None:
    caller = stage.caller("acme-repeater", tenant="acme")
    body = {"runs": ["doubt[acme]#1", "doubt[globex]#1"], "reason": "why", "dry_run": True}
    assert caller.ask("POST", "/api/v1/bulk/rerun", json=body).status_code == 404


def test_whatever_is_done_is_written_down_with_the_tokens_name(stage: Stage) -> None:
    stage.caller("night-shift").post("/schedules/plain/pause", reason="a flood", until=None)
    [row] = stage.caller("auditor", "read").get("/audit", subject="plain", action="pause")["items"]
    assert (row["actor"], row["note"]) == ("night-shift", "a flood")
    refused = stage.caller("liar").ask("POST", "/api/v1/schedules/plain/pause", json={"reason": "x", "actor": "ana"})
    assert refused.status_code == 422


def test_only_what_the_allow_list_names_is_open(stage: Stage) -> None:
    stranger = stage.somebody(ELSEWHERE)
    assert {path for _, path in OPEN} == {"/healthz", "/readyz", "/login"}
    for path in ("/healthz", "/login", *static.paths()):
        assert stranger.ask("GET", path).status_code == 200
    for path in ("/healthz/", "/healthz/x", "/static/", "/static/..%2Faccess.py", "/x/healthz", "/login/.."):
        assert stranger.ask("GET", path).status_code == 401, path


def test_who_tries_again_and_again_waits_longer_and_is_told_of_without_the_token(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "foliot_" + "y" * 43
    stage.clock.slept.clear()
    for _ in range(3):
        Caller(stage, {"authorization": f"Bearer {wrong}"}, ELSEWHERE).ask("GET", "/api/v1/me")
    waits = stage.clock.slept
    assert len(waits) == 3
    assert waits == sorted(waits)
    assert "192.0.2.7" in caplog.text
    assert wrong not in caplog.text
