"""Tokens of scope work: a worker over HTTP reaches the runs within its bound, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from foliot.domain.access import PREFIX, NewToken, Scope, hashed
from foliot.domain.state import State
from foliot.web.access import TABLE
from foliot.web.settings import WebSettings
from tests.web.stage import ELSEWHERE, Caller, Stage, staged

SECRET = {"password": "c4nary-x"}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged(lived=False) as made:
        yield made


def _bound(stage: Stage, name: str = "resizer", **bound: Any) -> tuple[Caller, int]:
    caller = stage.caller(name, "work", **{"jobs": ["resize"], "tenant": "acme"} | bound)
    return caller, _registered(caller)


def _registered(caller: Caller) -> int:
    return int(caller.post("/external/workers", 201, name="laptop", jobs=[{"name": "resize"}], slots=9)["worker"])


def _claimed(stage: Stage, caller: Caller, worker: int) -> list[Any]:
    stage.world.run_for("1s")
    return list(caller.post(f"/external/workers/{worker}/claim", limit=9)["attempts"])


def test_a_worker_claims_the_runs_of_its_tenant_and_no_secret_of_another(stage: Stage) -> None:
    for tenant in ("acme", "globex", None):
        stage.promise("resize", "picture", SECRET, tenant=tenant)
    caller, worker = _bound(stage)
    [taken] = _claimed(stage, caller, worker)
    assert (taken["run"], taken["tenant"], taken["arguments"]) == ("picture[acme]#1", "acme", SECRET)
    assert _claimed(stage, caller, worker) == []
    assert [one["run"] for one in _claimed(stage, *_bound(stage, "plain", tenant=None))] == ["picture#1"]
    rest = _claimed(stage, *_bound(stage, "all", tenant=None, all_tenants=True))
    assert [one["run"] for one in rest] == ["picture[globex]#1"]


def test_a_worker_registers_nothing_outside_its_bound(stage: Stage) -> None:
    caller = stage.caller("resizer", "work", jobs=["resize"], queues=["gpu"], tenant="acme")
    job = {"name": "resize", "queue": "gpu"}
    for body in (
        {"jobs": [{"name": "report", "queue": "gpu"}]},
        {"jobs": [{"name": "resize"}]},
        {"jobs": [job], "queues": ["default"]},
        {"jobs": [job | {"settings": {"ping": "http://127.0.0.1/"}}]},
    ):
        answer = caller.post("/external/workers", 403, name="laptop", **body)
        assert answer["type"] == "urn:foliot:problem:not-allowed"
        assert "the token is restricted" in answer["detail"]
    caller.post("/external/workers", 201, name="laptop", jobs=[job | {"settings": {"attempts": 3}}])


def test_a_worker_for_runs_without_a_tenant_sets_no_setting_that_all_tenants_share(stage: Stage) -> None:
    shared = {"jobs": [{"name": "resize", "settings": {"destination": "api.bank.example"}}]}
    caller = stage.caller("plain", "work", jobs=["resize"])
    answer = caller.post("/external/workers", 403, name="laptop", **shared)
    assert "the token is restricted to runs without a tenant" in answer["detail"]
    assert "resize" not in stage.world.call(stage.world.store.jobs())
    everyone = stage.caller("all", "work", jobs=["resize"], all_tenants=True)
    everyone.post("/external/workers", 201, name="laptop", **shared)


def test_an_attempt_outside_the_bound_is_refused(stage: Stage) -> None:
    """No claim over HTTP gives one. Here the token that claimed it has lost its tenant in the store."""
    stage.promise("resize", "picture", SECRET, tenant="globex")
    caller, worker = _bound(stage, tenant="globex")
    [taken] = _claimed(stage, caller, worker)
    connection = stage.world.store._writer.connection  # type: ignore[attr-defined]
    connection.execute("UPDATE token SET tenant = 'acme' WHERE name = 'resizer'")
    attempt = f"/external/attempts/{taken['attempt_token']}"
    for how, body in (("complete", {}), ("fail", {"error": "no"}), ("give-back", {})):
        refused = caller.post(f"{attempt}/{how}", 403, **body)
        assert "outside of the token's restriction (jobs resize, tenant acme)" in refused["detail"]
    said = {"attempt": taken["attempt_token"], "checkpoint": {"tile": 3}}
    assert caller.post(f"/external/workers/{worker}/beat", attempts=[said])["lost"] == [taken["attempt_token"]]
    run = stage.world.run(taken["run"])
    assert (run.state, run.has_checkpoint) == (State.RUNNING, False)


WORK = [(method, path) for (method, path), access in TABLE.items() if access.scope is Scope.WORK]


def test_no_token_of_another_scope_takes_runs(stage: Stage) -> None:
    assert len(WORK) == 7
    for scope in ("read", "operate", "admin"):
        caller = stage.caller(scope, scope)
        for method, path in WORK:
            answer = caller.ask(method, path.replace("{worker}", "1").replace("{attempt}", "x"), json={})
            assert answer.status_code == 403, (scope, path)
            assert "--scope work --job" in answer.json()["detail"]


def test_a_workers_token_of_an_older_release_takes_nothing_and_says_so(stage: Stage) -> None:
    text = PREFIX + "o" * 43
    old = NewToken("old", hashed(text), Scope.WORK, None, None)
    stage.world.call(stage.world.store.add_token(old, actor="ana", note="why"))
    caller = Caller(stage, {"authorization": f"Bearer {text}"}, ELSEWHERE)
    answer = caller.post("/external/workers", 403, name="laptop", jobs=[{"name": "resize"}])
    assert "an older release created it" in answer["detail"]
    [listed] = stage.caller("root", "admin").get("/tokens")["items"][:1]
    assert (listed["name"], listed["jobs"], listed["queues"]) == ("old", [], [])


def test_a_work_token_is_made_with_its_bound_over_http(stage: Stage) -> None:
    admin = stage.caller("root", "admin")
    told = admin.post("/tokens", 422, name="w", reason="why", scope="work")
    assert "needs jobs or queues" in told["detail"]
    made = admin.post("/tokens", 201, name="w", reason="why", scope="work", queues=["gpu"], all_tenants=True)
    assert (made["queues"], made["jobs"], made["all_tenants"], made["tenant"]) == (["gpu"], [], True, None)
    assert made["token"].startswith("foliot_work_")


def test_the_local_user_takes_any_run_while_there_is_no_token() -> None:
    with staged(WebSettings(), lived=False) as alone:
        alone.promise("resize", "picture", tenant="acme")
        local = alone.somebody()
        assert [one["run"] for one in _claimed(alone, local, _registered(local))] == ["picture[acme]#1"]
