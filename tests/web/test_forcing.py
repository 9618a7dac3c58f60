"""A cancellation that is forced, over HTTP and from a page: shown first, with the other runs of the process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest

from foliot.domain.store import JobCard
from foliot.web import models
from tests.web.stage import Caller, Stage, staged

HTML = {"accept": "text/html,*/*"}
FORM = HTML | {"content-type": "application/x-www-form-urlencoded"}
FORCE = {"reason": "hangs", "force": True}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged(lived=False) as made:
        yield made


@pytest.fixture
def root(stage: Stage) -> Caller:
    return stage.caller("root", "admin")


class Held:
    """A worker that ends its process for a forced cancellation, and two runs of two tenants that it executes."""

    def __init__(self, stage: Stage, *, recycles: bool = True) -> None:
        self.stage, world = stage, stage.world
        cards = [JobCard("resize", b"{}", "default")]
        takes: dict[str, Any] = {"version": "1", "queues": ("default",), "slots": 9}
        self.worker = world.call(world.store.register("worker", jobs=cards, recycles=recycles, **takes)).number
        self.run, self.other = (stage.promise("resize", "picture", tenant=tenant) for tenant in ("acme", "globex"))
        world.run_for("1s")
        claimed = world.call(world.store.claim(self.worker, ["default"], ["resize"], 9))
        assert {one.id for one in claimed} == {self.run, self.other}

    def beat(self) -> Any:
        return self.stage.world.call(self.stage.world.store.beat(self.worker, []))


def path(run: str) -> str:
    return f"/runs/{quote(run, safe='')}/cancel"


def test_a_forced_cancellation_is_shown_before_it_is_requested(stage: Stage, root: Caller) -> None:
    held = Held(stage)
    answer = root.post(path(held.run), dry_run=True, **FORCE)
    models.Cancelled.model_validate(answer)
    assert (answer["id"], answer["outcome"], answer["state"]) == (held.run, "would", "running")
    assert (answer["process"]["worker"], answer["process"]["pid"]) == (held.worker, os.getpid())
    assert [(one["id"], one["job"]) for one in answer["process"]["others"]] == [(held.other, "resize")]
    assert held.beat().cancel == [], "nothing was changed"

    answer = root.post(path(held.run), **FORCE)
    assert (answer["outcome"], answer["process"]["worker"]) == ("forced", held.worker)
    assert len(held.beat().force) == 1
    shape = root.get(f"/runs/{quote(held.run, safe='')}")
    assert [(one["actor"], one["action"], one["note"]) for one in shape["audit"]] == [("root", "force_cancel", "hangs")]


def test_a_cancellation_without_force_names_no_process_and_has_no_preview(stage: Stage, root: Caller) -> None:
    held = Held(stage)
    root.post(path(held.run), 422, reason="why", dry_run=True)
    answer = root.post(path(held.run), reason="why")
    assert (answer["outcome"], answer["process"]) == ("asked", None)
    assert held.beat().force == frozenset()


def test_force_is_refused_to_a_token_of_a_tenant_because_others_have_runs_in_the_process(stage: Stage) -> None:
    held = Held(stage)
    acme = stage.caller("acme-operator", tenant="acme")
    for more in ({}, {"dry_run": True}):
        answer = acme.post(path(held.run), 403, **FORCE, **more)
        assert held.other not in str(answer)
    assert held.beat().cancel == []


def test_force_is_refused_where_nothing_runs_or_the_worker_does_not_end_its_process(stage: Stage, root: Caller) -> None:
    waiting = stage.promise("nobody", "later")
    held = Held(stage, recycles=False)
    for more in ({}, {"dry_run": True}):
        answer = root.post(path(waiting), 409, **FORCE, **more)["detail"]
        assert "force applies only to a run that a worker executes" in answer
        answer = root.post(path(held.run), 409, **FORCE, **more)["detail"]
        assert f"its worker {held.worker} does not end its process" in answer
    assert held.beat().cancel == []


def test_a_worker_over_http_cannot_be_forced_and_hears_a_plain_cancellation(stage: Stage, root: Caller) -> None:
    guest = stage.caller("resizer", "work")
    worker = guest.post("/external/workers", 201, name="laptop", jobs=[{"name": "resize"}])["worker"]
    run = stage.promise("resize", "picture")
    stage.world.run_for("1s")
    [taken] = guest.post(f"/external/workers/{worker}/claim")["attempts"]
    assert "it works over HTTP" in root.post(path(run), 409, **FORCE)["detail"]
    root.post(path(run), reason="why")
    assert guest.post(f"/external/workers/{worker}/beat", attempts=[])["stop"] == [taken["attempt_token"]]


# The page


def page(caller: Caller, address: str, status: int = 200) -> str:
    response = caller.ask("GET", address, headers=HTML)
    assert response.status_code == status, response.text
    return unescape(response.text)


def test_the_page_of_a_run_that_does_not_stop_offers_force_and_shows_what_would_end(stage: Stage, root: Caller) -> None:
    held = Held(stage)
    own, act = f"/runs/{quote(held.run, safe='')}", f"/act/runs/{quote(held.run, safe='')}/force_cancel"
    assert "Force cancel" not in page(root, own)
    root.post(path(held.run), reason="why")
    assert "Force cancel" in page(root, own)
    look = page(root, act)
    assert held.other in look
    assert "1 other run in this process would end as interrupted" in look
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', look))
    sent = root.ask("POST", act, headers=FORM | {"origin": root._base}, data=fields | {"reason": "hangs"})
    assert sent.status_code == 303, sent.text
    assert len(held.beat().force) == 1
    assert "Force cancel" not in page(root, own), "it was forced"


def test_the_page_says_why_a_cancellation_cannot_be_forced(stage: Stage, root: Caller) -> None:
    held = Held(stage, recycles=False)
    look = page(root, f"/act/runs/{quote(held.run, safe='')}/force_cancel")
    assert "does not end its process" in look
    assert 'name="reason"' not in look


def test_the_page_offers_no_force_to_a_token_of_a_tenant(stage: Stage, root: Caller) -> None:
    held = Held(stage)
    acme = stage.caller("acme-operator", tenant="acme")
    root.post(path(held.run), reason="why")
    assert "force_cancel" not in page(acme, f"/runs/{quote(held.run, safe='')}")
    page(acme, f"/act/runs/{quote(held.run, safe='')}/force_cancel", 404)
