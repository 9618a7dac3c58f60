"""Pages without a browser: who sees what of them, forms and their marks, problems as pages, and how much is sent."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from foliot import Foliot, Verdict, every
from foliot.domain.alerts import Finding
from foliot.domain.alerts import Kind as AlertKind
from foliot.domain.instant import DAY, MINUTE, SECOND, Duration
from foliot.domain.survey import Conclusion
from foliot.errors import StoreError
from foliot.operate.load import Standings
from foliot.operate.surveying import Kind, Need, NeedGroup
from foliot.testing import virtual_time
from foliot.web.access import TABLE, Tenants
from foliot.web.pages import ahead, charts, static
from foliot.web.pages.doing import ACTS
from foliot.web.pages.now import need_rows
from foliot.web.pages.run import _mark
from foliot.web.settings import WebSettings
from tests.waiting import HANG
from tests.web.stage import Caller, Stage, staged

HTML = {"accept": "text/html,*/*"}
FORM = HTML | {"content-type": "application/x-www-form-urlencoded"}
PLACES = ("/", "/schedules", "/runs", "/dead", "/backfills", "/load", "/fleet", "/alerts", "/audit")
MOST_BYTES = 100_000


@pytest.fixture(scope="module")
def house() -> Iterator[Stage]:
    """Served to this host alone."""
    with staged(WebSettings()) as made:
        yield made


@pytest.fixture(scope="module")
def door() -> Iterator[Stage]:
    """Served to whoever has a token."""
    with staged() as made:
        made.token("first")
        yield made


def _page(caller: Caller, path: str, status: int = 200) -> str:
    response = caller.ask("GET", path, headers=HTML)
    assert response.status_code == status, response.text
    assert response.headers["content-type"].startswith("text/html")
    return unescape(re.sub(r'<span data-n="[^"]*">([^<]*)</span>', r"\1", response.text))


def _fields(page: str) -> dict[str, str]:
    """What the form of an action would send by itself."""
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page)
    return {name: unescape(value) for name, value in found}


def _sent(caller: Caller, path: str, **fields: str) -> httpx.Response:
    return caller.ask("POST", path, headers=FORM | {"origin": caller._base}, data=fields)


def _looked_at(caller: Caller, path: str) -> dict[str, str]:
    return _fields(caller.ask("GET", path, headers=HTML).text)


# Who sees what


def test_a_token_that_may_only_read_sees_no_buttons_and_cannot_act(door: Stage) -> None:
    reader = door.caller("reader", "read")
    letter = quote("letter[acme]#1", safe="")
    for path in (*PLACES, "/schedules/plain", f"/runs/{letter}"):
        page = _page(reader, path)
        assert "/act/" not in re.sub(r'<form method="post"[^>]*/act/[^>]*>', "", page), path
        assert 'type="checkbox" name=' not in page.replace('name="needs_person"', "").replace('name="order"', "")
    assert "Permission denied" in _page(reader, "/act/schedules/plain/pause", 403)
    refused = _sent(reader, "/act/schedules/plain/pause", reason="why", csrf="")
    assert refused.status_code == 403


def test_what_is_another_tenants_is_answered_as_what_does_not_exist(door: Stage) -> None:
    bound = door.caller("acme-ops", tenant="acme")
    for path in ("/schedules/{}", "/act/schedules/{}/pause", "/act/schedules/{}/backfill"):
        theirs = _page(bound, path.format("globex-report"), 404).replace("globex-report", "it")
        nobodys = _page(bound, path.format("no-such-one"), 404).replace("no-such-one", "it")
        assert theirs == nobodys or "globex" not in theirs
    run = quote("letter[globex]#1", safe="")
    assert "Not found" in _page(bound, f"/runs/{run}", 404)
    assert "Not found" in _page(bound, f"/act/runs/{run}/retry", 404)
    assert _sent(bound, f"/act/runs/{run}/retry", reason="why", csrf="").status_code == 404


def test_a_tenants_own_pages_show_nothing_of_others(door: Stage) -> None:
    bound = door.caller("acme-looks", tenant="acme")
    for path in ("/schedules", "/runs", "/dead", "/backfills"):
        assert "globex" not in _page(bound, path), path
    assert bound.ask("GET", "/", headers=HTML).headers["location"] == "/schedules"
    page = _page(bound, "/schedules")
    for (method, path), access in TABLE.items():
        if method == "GET" and access.tenants is Tenants.ALL and path in PLACES:
            assert f'href="{path}"' not in page, "a place that is refused is not offered"
            assert "Permission denied" in _page(bound, path, 403)


def test_a_schedule_says_by_what_it_is_paused_and_is_found_so(door: Stage) -> None:
    root, acme = door.caller("pausing"), door.caller("acme-paused", tenant="acme")
    root.post("/jobs/report/pause", reason="the disk is full", what=["claims"])
    for path in ("/schedules?paused=true", "/schedules/plain"):
        assert "claims paused: job:report: the disk is full" in _page(root, path)
    assert "/schedules/plain" not in _page(root, "/schedules?paused=false")
    theirs = _page(acme, "/schedules?paused=true")
    assert "claims paused" in theirs
    assert "the disk is full" not in theirs  # what operators say of what all share
    root.post("/jobs/report/resume", reason="it is not")
    assert "/schedules/plain" not in _page(root, "/schedules?paused=true")


def test_who_the_members_of_a_schedule_are_is_not_told_to_a_tenant(door: Stage) -> None:
    stated = {"name": "rounds", "job": "report", "rule": "0 2 * * *", "tenant": "acme", "over": "shops"}
    door.world.call(door.app.operate.put_schedule_async(stated, reason="why", actor="ana"))
    assert "Oldest completions" in _page(door.caller("whole"), "/schedules/rounds")
    assert "Oldest completions" not in _page(door.caller("part", tenant="acme"), "/schedules/rounds")


def test_that_harm_is_known_is_not_said_by_an_address(house: Stage) -> None:
    letter = quote("letter[acme]#1", safe="")
    page = _page(house.somebody(), f"/act/runs/{letter}/retry?risky=yes&override=yes")
    [box] = re.findall(r'<input[^>]*name="override"[^>]*>', page)
    assert "checked" not in box


def test_both_answers_are_offered_and_the_rest_is_resumed_or_closed_from_the_pages() -> None:
    with staged(WebSettings()) as made:
        caller, doubt = made.somebody(), quote("doubt[acme]#1", safe="")
        for path in ("/", f"/runs/{doubt}"):
            page = _page(caller, path)
            assert "It happened…" in page
            assert "It did not happen…" in page
            assert "its idempotency key is doubt[acme]#1/pay/7" in page
            assert "effects: 1 done, 1 ambiguous" in page
            assert not re.search(r'class="button safe"[^>]*>It (happened|did not happen)', page), "none is preferred"
        page = _page(caller, f"/runs/{doubt}")
        assert re.findall(r"<code>(pay:\d)</code>", page) == ["pay:7", "pay:6"], "ambiguous effects come first"
        [path] = re.findall(r'href="(/act/runs/[^"]*not_done[^"]*)"', page)
        form = _page(caller, path)
        assert '<option value="not_done" selected>' in form
        assert '<option value="resume" selected>' in form
        fields = _looked_at(caller, path) | {"effect pay:7": "not_done", "reason": "the bank said so"}
        act = path.partition("?")[0]
        refused = _sent(caller, act, **fields, evidence="x", then="")
        assert (refused.status_code, "is a placeholder" in refused.text) == (422, True)
        assert _sent(caller, act, **fields, evidence="statement 17", then="").status_code == 303
        page = _page(caller, f"/runs/{doubt}")
        assert "Resume…" in page
        assert '<span class="soft">settled</span>' not in page, "the state is shown once"
        assert "Close without remaining work…" in page
        path = f"/act/runs/{doubt}/close"
        fields = _looked_at(caller, path) | {"reason": "the order was withdrawn"}
        assert _sent(caller, path, **fields).status_code == 303
        page = _page(caller, f"/runs/{doubt}")
        assert "work is not needed: the order was withdrawn" in page


def test_what_is_about_everything_is_no_act_of_a_tenants(door: Stage) -> None:
    bound = door.caller("acme-acts", tenant="acme")
    for (kind, verb), act in ACTS.known.items():
        if act.is_for_all:
            assert bound.ask("GET", f"/act/{kind}/1/{verb}", headers=HTML).status_code == 404, (kind, verb)


def test_many_that_are_chosen_are_each_asked_whose_they_are(door: Stage) -> None:
    bound = door.caller("acme-many", tenant="acme")
    chosen = {"verb": "pause", "schedule": "globex-report", "reason": "why", "csrf": ""}
    told = _sent(bound, "/act/schedules/many/choose", **chosen)
    assert "0 of 1 schedule" in httpx.URL(told.headers["location"]).params["told"]
    view = door.world.call(door.app.operate.schedule_async("globex-report"))
    assert not view.schedule.paused(door.world.clock.now())


# Forms


def test_a_form_without_the_mark_of_its_page_does_nothing(house: Stage) -> None:
    somebody = house.somebody()
    for mark in ({}, {"csrf": ""}, {"csrf": "0" * 64}):
        refused = _sent(somebody, "/act/schedules/plain/pause", reason="why", **mark)
        assert refused.status_code == 403
        assert "Nothing was changed" in refused.text
    assert not house.world.schedule("plain").schedule.paused(house.world.clock.now())


def test_looking_at_an_action_changes_nothing(house: Stage) -> None:
    before = house.world.call(house.app.operate.audit_async(limit=1))
    for path in ("/act/schedules/plain/pause", "/act/schedules/plain/delete", "/act/dead/all/replay"):
        _page(house.somebody(), path + "?reason=why")
    assert house.world.call(house.app.operate.audit_async(limit=1)) == before


def test_a_form_that_is_sent_twice_is_done_once(house: Stage) -> None:
    somebody, path = house.somebody(), "/act/schedules/plain/trigger"
    fields = _looked_at(somebody, path) | {"reason": "why"}
    before = len(house.world.runs(schedule="plain"))
    first, second = _sent(somebody, path, **fields), _sent(somebody, path, **fields)
    assert first.status_code == second.status_code == 303
    assert first.headers["location"] == second.headers["location"]
    assert len(house.world.runs(schedule="plain")) == before + 1
    assert _sent(somebody, path, **(fields | {"reason": "another"})).status_code == 409


def test_the_form_of_a_trigger_says_that_the_run_would_be_skipped_and_can_override_that() -> None:
    with staged(WebSettings(), lived=False) as house:
        somebody, path = house.somebody(), "/act/schedules/plain/trigger"
        house.world.kill_worker()
        assert "The run starts now" in _page(somebody, path)
        house.app.operate.trigger("plain", reason="why", actor="ana")
        house.world.run_for("1s")
        page = _page(somebody, path)
        assert "The run would be skipped" in page
        assert "(overlap=skip)" in page
        fields = _fields(page) | {"reason": "why"}
        refused = _sent(somebody, path, **fields)
        assert refused.status_code == 422
        assert "is still active" in refused.text
        fields = _fields(refused.text) | {"reason": "why", "override_overlap": "yes"}
        assert _sent(somebody, path, **fields).status_code == 303
        assert len(house.world.runs(schedule="plain")) == 3


@pytest.mark.parametrize(
    "key", ["k" * 201, "k" * 500_000, "two words", "\N{SNOWMAN}"], ids=["longer", "large", "space", "no-ascii"]
)
def test_a_form_stores_no_key_that_a_header_could_not_give(house: Stage, key: str) -> None:
    somebody = house.somebody()
    fields = _looked_at(somebody, "/act/schedules/plain/trigger")
    before = len(somebody.get("/runs", schedule="plain")["items"])
    refused = _sent(somebody, "/act/schedules/plain/trigger", **fields | {"request": key, "reason": "why"})
    assert refused.status_code == 422
    assert "visible ASCII characters" in refused.text
    assert len(somebody.get("/runs", schedule="plain")["items"]) == before


def test_an_action_without_a_reason_is_refused_and_can_be_sent_again(house: Stage) -> None:
    somebody, path = house.somebody(), "/act/schedules/plain/trigger"
    fields = _looked_at(somebody, path)
    refused = _sent(somebody, path, **fields, reason="  ")
    assert refused.status_code == 422
    again = _fields(refused.text) | {"reason": "why"}
    assert _sent(somebody, path, **again).status_code == 303


@pytest.mark.parametrize(
    ("act", "given", "blamed"),
    [
        ("plain/trigger", {"reason": " "}, "reason"),
        ("plain/edit", {"changes": '{"rule": "0 99 * * *"}', "reason": "why"}, "changes"),
        ("plain/edit", {"changes": "{", "reason": "why"}, "changes"),
        ("plain/backfill", {"at_once": "some", "reason": "why"}, "at_once"),
        ("plain/backfill", {"rate": "much", "reason": "why"}, "rate"),
        ("new/make", {"name": "n", "job": "report", "rule": "0 99 * * *", "reason": "why"}, "rule"),
        ("new/make", {"name": "n", "job": "report", "rule": "0 9 * * *", "tz": "Mars/X", "reason": "why"}, "tz"),
        ("new/make", {"name": "n", "job": "report", "args": "[1]", "rule": "0 9 * * *", "reason": "why"}, "args"),
    ],
)
def test_a_refused_form_marks_the_field_that_is_to_blame(
    house: Stage, act: str, given: dict[str, str], blamed: str
) -> None:
    somebody, path = house.somebody(), f"/act/schedules/{act}"
    edges = {"from": "2026-01-01T00:00", "to": "2026-01-02T00:00"}
    refused = _sent(somebody, path, **_looked_at(somebody, path) | edges | given)
    assert refused.status_code == 422
    marked = re.findall(r'<(?:input|textarea|select)[^>]* name="([^"]+)"[^>]*aria-invalid="true"', refused.text)
    assert marked == [blamed]


def test_what_is_told_after_an_action_cannot_be_forged(house: Stage) -> None:
    page = _page(house.somebody(), "/runs?told=You+have+been+hacked&mark=00")
    assert "hacked" not in page


# Problems


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/runs/no-such-run", 404, "Not found"),
        ("/schedules/no-such-schedule", 404, "Not found"),
        ("/act/schedules/plain/explode", 404, "Not found"),
        ("/runs?state=odd", 422, "known: scheduled"),
        ("/runs?cursor=odd", 422, "Invalid input"),
        ("/load?for=99d", 422, "for must be one of 1h, 6h, 1d, 7d"),
        ("/audit?cursor=x", 422, "is not a number; give digits"),
        ("/nowhere", 404, "Not found"),
    ],
)
def test_a_browser_is_told_of_a_problem_on_a_page(house: Stage, path: str, status: int, told: str) -> None:
    page = _page(house.somebody(), path, status)
    assert told.lower() in page.lower()
    assert 'aria-label="Pages"' in page  # one can go on from there
    programs = house.somebody().ask("GET", path)
    assert programs.headers["content-type"] == "application/problem+json"


def test_a_mistake_of_ours_is_a_page_that_asks_the_store_nothing(
    house: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("foliot.web.pages.lists.runs_page", broken)
    page = _page(house.somebody(), "/runs", 500)
    assert "Internal error" in page
    assert "secret detail" not in page
    assert "secret detail" in caplog.text


# How much is sent


def test_the_first_view_of_every_page_is_small(house: Stage) -> None:
    files = sum(len(house.somebody().ask("GET", path).content) for path in static.paths())
    for path in (*PLACES, "/schedules/plain", "/load?for=1h", "/load?for=7d"):
        page = house.somebody().ask("GET", path, headers=HTML)
        assert len(page.content) + files < MOST_BYTES, path


# The load to come


def test_nobody_waits_for_a_long_count_and_its_age_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go, counted = threading.Event(), []
    inner = ahead._counted

    def slow(standing: Standings, span: Duration) -> dict[str, Any]:
        counted.append(span)
        assert may_go.wait(HANG)
        return inner(standing, span)

    def look(wanted: str) -> str:
        monkeypatch.setattr(ahead, "PATIENCE", 0.01 if wanted != "at last" else HANG)
        return re.sub("<[^>]+>", "", _page(stage.somebody(), "/load"))

    monkeypatch.setattr(ahead, "_counted", slow)
    with staged(WebSettings(), lived=False) as stage:
        assert "Counting starts" in look("at once")
        may_go.set()
        assert "starts of 4 schedules" in look("at last")
        may_go.clear()
        stage.world.clock.advance(50 * SECOND)
        page = look("at once")
        assert "Counted 50 s ago." in page
        assert len(counted) == 1  # for both of them
        stage.world.clock.advance(MINUTE)
        assert "Counted 1 min ago; a new count is running" in look("at once")
        may_go.set()
        assert "Counted now." in look("at last")
        assert counted == [DAY, DAY]


def test_a_load_is_counted_anew_once_somebody_changed_a_schedule_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "PATIENCE", HANG)
    with staged(WebSettings(), lived=False) as stage:
        somebody, path = stage.somebody(), "/act/schedules/plain/pause"
        assert "starts of 4 schedules" in _page(somebody, "/load")
        _sent(somebody, path, **_looked_at(somebody, path) | {"reason": "why", "what": "creation"})
        assert "starts of 3 schedules" in _page(somebody, "/load")


def test_a_count_that_failed_is_told_and_not_begun_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def broken(standing: Standings, span: Duration) -> dict[str, Any]:
        begun.append(span)
        raise StoreError("the disk is gone")

    monkeypatch.setattr(ahead, "_counted", broken)
    monkeypatch.setattr(ahead, "PATIENCE", HANG)
    with staged(WebSettings(), lived=False) as stage:
        for _ in range(3):
            _page(stage.somebody(), "/load", 503)
    assert begun == [DAY]


@pytest.mark.parametrize("kind", ["kept", "failed", "retried"])
def test_thirty_strips_fit_whatever_became_of_their_ticks(kind: str) -> None:
    assert 30 * len(charts.strip([kind] * 30)) < 40_000


def test_a_strip_says_in_words_what_it_shows() -> None:
    drawn = charts.strip(["kept", "kept", "failed"])
    assert "<title>the last 3 ticks: 2 kept, 1 failed</title>" in drawn
    assert drawn.count("<path") == 3  # two marks in one, the third, and the line where nothing was yet


# What needs attention


def _need(subject: str, schedule: str | None, since: int, kind: Kind = Kind.DEAD, job: str = "look_after") -> Need:
    return Need(kind, subject, job, schedule, None, since, "It was given up.", "retry", None, "why", None, None)


def test_the_mark_of_an_attempt_does_not_depend_on_the_words_of_its_error() -> None:
    marks = {
        "attempt 1 started on worker 2": "running",
        "attempt 1 failed after 2 s: RuntimeError: the service is not started; to be retried": "failed",
        "attempt 2 succeeded after 2 s": "running",
    }
    assert {text: _mark({"state": "succeeded"}, {"kind": "attempt", "text": text}) for text in marks} == marks


def test_what_has_one_cause_is_one_row_with_its_number() -> None:
    member = NeedGroup(_need("schools@2026-04-03T02:00:00Z[atlantis]", "schools", 0), 4, 0, "attempts")
    others = [_need("class:7#1", None, 0, job="remind"), _need("payday@2026-04-03T02:00:00Z", "payday", 0)]
    many, one, tick = need_rows([member, *(NeedGroup(need, 1, 0) for need in others)])
    assert (many["kind"].striptags(), many["id"]) == ("4 dead", "schools[atlantis]")
    assert many["href"] == "/runs?state=dead&schedule=schools&member=atlantis&reason=attempts"
    replay = "/act/dead/all/replay?schedule=schools&member=atlantis&why=attempts"
    assert many["safe"] == {"href": replay, "text": "Replay…", "kind": "safe"}
    assert (one["kind"], one["id"]) == ("dead", "class:7#1")
    assert tick["href"] == f"/runs/{quote('payday@2026-04-03T02:00:00Z', safe='')}"


def test_a_try_that_cannot_help_is_not_the_primary_action(house: Stage) -> None:
    caller, letter = house.somebody(), quote("letter[acme]#1", safe="")
    page = _page(caller, f"/runs/{letter}")
    assert "permanent error" in page
    assert re.findall(rf'<a class="button ([a-z]*)" href="/act/runs/{letter}/retry" data-opens>([^<]*)<', page) == [
        ("", "Retry after the cause is fixed…")
    ]
    for path in (f"/runs/{letter}", "/", "/dead"):
        assert not re.search('class="button safe"[^>]*/(retry|replay)', _page(caller, path)), path
    assert f'href="/act/runs/{letter}/retry" data-opens>Retry after the cause is fixed…</a>' in _page(caller, "/")
    story = [line["text"] for line in caller.get(f"/runs/{letter}")["story"]]
    assert story[-1].startswith("after the cause is fixed: retry (")


def test_a_tick_that_was_not_done_for_all_members_is_partial_until_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with staged(WebSettings(), lived=False) as made:
        caller, operate = made.somebody(), made.app.operate
        stated = {"name": "rounds", "job": "visit", "rule": "every 1h", "over": "shops", "bind": {"shop": "member"}}
        made.world.call(operate.put_schedule_async(stated, reason="why", actor="ana"))
        made.world.run_for("1h1m")
        [tick] = [run for run in made.world.runs(schedule="rounds") if run.finished_at is not None]
        assert (str(tick.state), tick.reason, tick.detail) == ("succeeded", "partial", "1 of 2; 1 dead")
        for path in ("/schedules/rounds", "/runs?schedule=rounds", f"/runs/{quote(tick.id, safe='')}"):
            page = _page(caller, path)
            assert re.search(r'class="state is-late"><svg[^>]*>.*?</svg>partial<', page), path
            assert "1 of 2; 1 dead" in page
            assert "succeeded<" not in page.replace("<option>succeeded<", ""), path
        assert ": 1 partial</title>" in _page(caller, "/schedules?text=rounds")
        assert caller.get("/schedules/rounds")["partial"] == 1
        day = f"{made.world.now:%Y-%m-%d}"
        statement = next(one for one in caller.get("/report/rounds", on=day)["statements"] if one["run"] == tick.id)
        assert (statement["verdict"], statement["ok"]) == ("partial", False)
        assert "not for all of its members: 1 of 2; 1 dead" in statement["text"]
        monkeypatch.setattr("tests.web.stage.is_open", [True])
        made.world.call(operate.retry_async(f"{tick.id}[south]", reason="it is open", actor="ana"))
        made.world.run_for("1m")
        statement = next(one for one in caller.get("/report/rounds", on=day)["statements"] if one["run"] == tick.id)
        assert (statement["verdict"], statement["ok"]) == ("complete", True)


def test_each_row_of_the_first_page_counts_the_runs_that_its_links_choose() -> None:
    with staged(WebSettings(), lived=False) as made:
        caller = made.somebody()
        rounds = {"name": "rounds", "job": "broken", "rule": "every 1h", "over": "shops"}
        made.world.call(made.app.operate.put_schedule_async(rounds, reason="why", actor="ana"))
        for number in range(130):
            made.promise("broken", f"letter:{number}")
        made.world.run_for("3h1m")
        page = _page(caller, "/")
        for size, query in (
            (130, "job=broken&schedule=-&tenant=-"),
            (3, "schedule=rounds&member=north&tenant=north"),
            (3, "schedule=rounds&member=south&tenant=south"),
        ):
            assert f"{size} dead</span>" in page
            assert f'href="/runs?state=dead&{query}&reason=permanent"' in page
            assert f'href="/act/dead/all/replay?{query}&why=permanent"' in page
        for query, size in (
            ("schedule=rounds&member=north", 3),
            ("job=broken", 136),
            ("job=broken&schedule=-", 130),
            ("job=broken&tenant=-", 130),
            ("job=broken&tenant=south", 3),
        ):
            assert len(caller.get(f"/dead?{query}&limit=200")["items"]) == size
        looked_at = _page(caller, "/act/dead/all/replay?schedule=rounds&member=north&why=permanent")
        assert "3 of 3 dead letters are retried" in looked_at
        assert _page(caller, "/runs?state=dead&schedule=rounds&member=north").count('aria-label="rounds@') == 3
        assert caller.ask("GET", "/api/v1/dead?member=north").status_code == 422


def test_alerts_of_one_kind_about_one_thing_are_one_row_that_opens() -> None:
    with staged(WebSettings()) as house:
        page = _page(house.somebody(), "/alerts")
        assert "No open alerts" in page
        letters = [f"letter:{place}#1" for place in range(60)]
        found = [Finding(AlertKind.DEAD, f"run:{run}", f"{run} is dead", job="broken", run=run) for run in letters]
        found += [
            Finding(AlertKind.DEAD, "run:doubt#1", "doubt#1 is dead", job="settle", run="doubt#1"),
            Finding(AlertKind.LATE, "schedule:plain", "plain is late", schedule="plain"),
        ]
        for one in found:
            house.world.call(house.world.store.open_alert(Conclusion(b"", [one])))
        page = _page(house.somebody(), "/alerts")
        assert page.count("<details>") == 1
        assert "60 dead" in page
        assert "Newest 50" in page
        assert '<a class="id" href="/runs?state=dead&job=broken&schedule=-">broken</a>' in page
        assert '<a class="id" href="/runs/doubt%231">doubt#1</a>' in page
        assert re.search(">all <b[^>]*>62</b>", page)
        path = "/act/alerts/many/snooze-many?kind=dead&about=broken"
        looked_at = _page(house.somebody(), path)
        assert "60 alerts about broken" in looked_at
        _sent(house.somebody(), path, **_looked_at(house.somebody(), path) | {"reason": "why", "for": "8h"})
        page = _page(house.somebody(), "/alerts")
        assert "60 snoozed" in page
        alerts = house.world.call(house.app.operate.alerts_async())
        assert sum(one.snoozed(alerts.now) for one in alerts.alerts) == 60
        _sent(house.somebody(), path, **_looked_at(house.somebody(), path) | {"reason": "why", "for": "2h"})
        again = house.world.call(house.app.operate.alerts_async())
        assert {one.snoozed_until for one in again.alerts} == {one.snoozed_until for one in alerts.alerts}, (
            "as long as before"
        )
        late = _page(house.somebody(), "/alerts?kind=late")
        assert "plain is late" in late
        assert "is dead" not in late


def test_an_alert_shows_how_many_runs_it_counts_and_leads_to_them(house: Stage) -> None:
    run = "letter:a#1"
    found = Finding(AlertKind.UNVERIFIED, "job:lone", "lone: 46 runs", count=46, job="lone", run=run)
    house.world.call(house.world.store.open_alert(Conclusion(b"", [found])))
    page = _page(house.somebody(), "/alerts")
    assert re.search(r"\b46\b(</b>|</span>)? unverified</span>", page)
    assert '<a class="id" href="/runs?state=unverified&job=lone&schedule=-">lone</a>' in page
    [shown] = house.somebody().get("/alerts?kind=unverified")["items"]
    assert (shown["count"], shown["run"], shown["repeated_at"]) == (46, run, None)
    measured = house.world.call(house.app.operate.metrics_async()).decode()
    assert 'foliot_alerts_open_runs{kind="unverified",severity="warning"} 46' in measured


@pytest.mark.parametrize("name", ["new", "many"])
def test_a_schedule_that_is_called_like_a_word_of_ours_is_still_its_tenants(door: Stage, name: str) -> None:
    stated = {"name": name, "job": "report", "rule": "0 2 * * *", "tenant": "acme"}
    door.world.call(door.app.operate.put_schedule_async(stated, reason="why", actor="ana"))
    stranger = door.caller(f"stranger-of-{name}", tenant="globex")
    for verb in ("edit", "trigger", "delete"):
        assert stranger.ask("GET", f"/act/schedules/{name}/{verb}", headers=HTML).status_code == 404


def test_whoever_is_bound_to_a_tenant_cannot_give_a_schedule_away(door: Stage) -> None:
    mine = door.caller("giver", tenant="globex")
    changes = quote('{"tenant": "acme"}', safe="")
    page = _page(mine, f"/act/schedules/globex-report/edit?changes={changes}&preview=yes", 403)
    assert "bound to a tenant" in page


def test_the_check_of_a_run_is_no_attempt_on_the_page_of_its_schedule() -> None:
    app = Foliot("sqlite:///:memory:")

    @app.job
    async def count() -> int:
        return 4

    @count.verify
    def right() -> Verdict:
        return Verdict(True, "they add up")

    app.schedule("counted", count, every("1h"))
    with virtual_time(app) as world:
        world.run_for("1h1m")
        page = _page(Stage(world, WebSettings()).somebody(), "/schedules/counted")
    assert re.findall(r'<tr class="child"[^>]*><td>([^<]*)</td>', page) == ["attempt 1", "check"]
