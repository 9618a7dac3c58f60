"""One answer for one Idempotency-Key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from typing import Any

import httpx
import pytest

from foliot.domain.instant import DAY, MINUTE
from foliot.errors import StoreError
from foliot.web.settings import WebSettings
from tests.waiting import soon
from tests.web.stage import Caller, Stage, staged


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged(WebSettings(), lived=False) as made:
        yield made


def _trigger(caller: Caller, key: str, reason: str = "why") -> httpx.Response:
    body = {"reason": reason}
    return caller.ask("POST", "/api/v1/schedules/plain/trigger", json=body, headers={"idempotency-key": key})


def test_the_same_request_is_done_once_and_answered_again(stage: Stage) -> None:
    caller = stage.caller("ci")
    first, second = _trigger(caller, "k1"), _trigger(caller, "k1")
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.content == second.content
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert second.headers["content-type"] == "application/json"
    assert len(caller.get("/runs", origin="manual")["items"]) == 1
    stage.world.run_for("1s")
    assert _trigger(caller, "k2").json()["id"] != first.json()["id"]


def test_the_local_user_triggers_once_too(stage: Stage) -> None:
    local = stage.somebody()
    local.headers = {"idempotency-key": "k1"}
    for _ in range(2):
        assert local.ask("POST", "/api/v1/schedules/plain/trigger", json={"reason": "why"}).status_code == 200
    assert len(local.get("/runs", origin="manual")["items"]) == 1


def test_a_token_cannot_fill_the_store_with_keys(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    operate = stage.app.operate
    monkeypatch.setattr(operate, "begin_request_async", partial(operate.begin_request_async, most=1))
    worker = stage.caller("worker", "work")
    asked = {"json": {"name": "w", "jobs": [{"name": "resize"}]}}
    told = [
        worker.ask("POST", "/api/v1/external/workers", headers={"idempotency-key": key}, **dict(asked))
        for key in ("k1", "k2")
    ]
    assert [one.status_code for one in told] == [201, 429]
    assert told[1].json()["type"] == "urn:foliot:problem:too-many-keys"
    assert worker.ask("POST", "/api/v1/external/workers", **asked).status_code == 201, "without a key it goes on"


def test_another_request_under_the_same_key_is_refused(stage: Stage) -> None:
    caller = stage.caller("ci")
    _trigger(caller, "k1")
    response = _trigger(caller, "k1", reason="another")
    assert response.status_code == 422
    assert response.json()["type"] == "urn:foliot:problem:key-reused"


def test_keys_of_two_tokens_are_two(stage: Stage) -> None:
    first = _trigger(stage.caller("ci"), "k1")
    stage.world.run_for("1s")
    assert _trigger(stage.caller("cd"), "k1").json()["id"] != first.json()["id"]


def test_a_refusal_is_told_again_too(stage: Stage) -> None:
    caller = stage.caller("ci")
    for _ in range(2):
        response = caller.ask(
            "POST", "/api/v1/schedules/none/trigger", json={"reason": "why"}, headers={"idempotency-key": "k1"}
        )
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["idempotency-replayed"] == "true"


def test_of_two_at_once_one_is_told_that_the_other_is_at_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, trigger = stage.caller("ci"), stage.app.operate.trigger_async
    under_way, may_go = asyncio.Event(), asyncio.Event()

    async def slow(*given: Any, **more: Any) -> Any:
        under_way.set()
        await may_go.wait()
        return await trigger(*given, **more)

    monkeypatch.setattr(stage.app.operate, "trigger_async", slow)
    asked = caller.headers | {"idempotency-key": "k1"}

    async def both() -> tuple[httpx.Response, httpx.Response]:
        path, body = "/api/v1/schedules/plain/trigger", {"json": {"reason": "why"}}
        first = asyncio.create_task(caller.ask_async("POST", path, headers=asked, **body))
        await soon(under_way.wait())
        second = await caller.ask_async("POST", path, headers=asked, **body)
        may_go.set()
        return await first, second

    first, second = stage.world.call(both())
    assert (first.status_code, second.status_code) == (200, 409)
    assert second.json()["type"] == "urn:foliot:problem:under-way"
    assert second.headers["retry-after"] == "1"


def test_after_a_store_failed_nobody_knows_what_was_done(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = stage.caller("ci")

    async def broken(*given: Any, **more: Any) -> Any:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(stage.app.operate, "trigger_async", broken)
        response = _trigger(caller, "k1")
    assert response.status_code == 503
    assert "disk" not in response.text
    stage.world.clock.advance(MINUTE)
    assert _trigger(caller, "k1").json()["type"] == "urn:foliot:problem:outcome-unknown"
    assert _trigger(caller, "k2").status_code == 200


def test_what_was_begun_and_never_answered_is_not_done_again_blindly(stage: Stage) -> None:
    caller = stage.caller("ci")
    digest = sha256(b'POST /api/v1/schedules/plain/trigger?\n{"reason":"why"}').digest()
    stage.world.call(stage.app.operate.begin_request_async(1, "k1", digest))  # by a process that died then
    assert _trigger(caller, "k1").json()["type"] == "urn:foliot:problem:under-way"
    stage.world.clock.advance(MINUTE)
    response = _trigger(caller, "k1")
    assert response.status_code == 409
    assert response.json()["type"] == "urn:foliot:problem:outcome-unknown"
    assert caller.get("/runs", origin="manual")["items"] == []


def test_an_answer_is_kept_for_a_day(stage: Stage) -> None:
    caller = stage.caller("ci")
    first = _trigger(caller, "k1").json()["id"]
    stage.world.clock.advance(DAY - MINUTE)
    assert _trigger(caller, "k1").json()["id"] == first
    stage.world.clock.advance(2 * MINUTE)
    assert _trigger(caller, "k1").json()["id"] != first


def test_the_text_of_a_token_is_not_kept_for_whoever_asks_again(stage: Stage) -> None:
    caller = stage.caller("root", "admin")
    asked = {"json": {"name": "new", "reason": "why"}, "headers": {"idempotency-key": "k1"}}
    first, second = (caller.ask("POST", "/api/v1/tokens", **dict(asked)) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json()["token"].startswith("foliot_")
    assert second.json() == first.json() | {"token": None}


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 201, "ü"])
def test_a_key_that_cannot_be_kept_is_refused(stage: Stage, key: str) -> None:
    asked = {"json": {"reason": "why"}, "headers": {"idempotency-key": key.encode()}}
    assert stage.caller("ci").ask("POST", "/api/v1/schedules/plain/trigger", **asked).status_code == 422
