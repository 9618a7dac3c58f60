"""The pages in a real browser: read, acted on, followed live; with keys, without scripts, in the dark, on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest

from tests.servers.browser import FLAGS, chromium
from tests.servers.home import memory
from tests.tiers import FULL
from tests.waiting import HANG
from tests.web.clerks import WHY, BrowserClerk, Clerk, FormClerk
from tests.web.screen import ADDRESS, BRACES, CANARY, DOUBT, IMAGE, SCRIPT, Screen, is_mended, screened

playwright = pytest.importorskip("playwright.sync_api", reason="needs browser: playwright cannot be imported")
# A store and a browser for each test would cost half a minute of CPU time.
pytestmark = [pytest.mark.needs("browser"), pytest.mark.in_order]

RUN = f"{DOUBT}[{CANARY}]#1"
PAGES = (
    *("/", "/schedules", "/schedules/nightly-report", "/schedules/feed%2Fhourly", "/schedules/schools", "/runs"),
    *(f"/runs/{quote(RUN, safe='')}", "/runs/late-one%231", "/dead", "/backfills", "/load", "/fleet", "/alerts"),
    *("/audit", "/act/schedules/to-edit/edit", f"/act/runs/{quote(RUN, safe='')}/reconcile", "/act/dead/all/replay"),
)


@pytest.fixture(scope="module")
def screen() -> Iterator[Screen]:
    with TemporaryDirectory(dir=memory()) as folder, screened(Path(folder)) as made:
        made.call(made.operate.pause_async("to-delete", reason=CANARY, actor=f"ben {CANARY}"))
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield made
        made.close()


class Window(NamedTuple):
    """One page of the browser, which many tests use in turn. Each context has a process, whose start costs more CPU
    than most tests."""

    page: Any
    complaints: list[str]
    """Everything that the browser complains about, the content policy too."""


def is_complaint(said: Any, page: Any) -> bool:
    """A page or a form that was refused says so itself, and the test asked for it."""
    url = said.location["url"]
    is_own = said.text.startswith("Failed to load resource") and (
        url == page.url or (urlsplit(url).path.startswith("/act/") and "422" in said.text)
    )
    return said.type in ("error", "warning") and not is_own


def _window(browser: Any, **more: Any) -> Window:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, **more)
    context.set_default_timeout(1_000 * HANG)
    page, complaints = context.new_page(), []
    page.on("console", lambda said: complaints.append(said.text) if is_complaint(said, page) else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    return Window(page, complaints)


@pytest.fixture(scope="module")
def scripted(browser: Any) -> Window:
    return _window(browser)


@pytest.fixture(scope="module")
def scriptless(browser: Any) -> Window:
    return _window(browser, java_script_enabled=False)


@pytest.fixture
def page(scripted: Window) -> Iterator[Any]:
    yield from _in_turn(scripted)


@pytest.fixture
def plain(scriptless: Window) -> Iterator[Any]:
    """Without scripts: every act is possible without them."""
    yield from _in_turn(scriptless)


def _in_turn(window: Window) -> Iterator[Any]:
    window.complaints.clear()
    yield window.page
    assert not window.complaints


@pytest.fixture(scope="module")
def forms(screen: Screen) -> Iterator[FormClerk]:
    made = FormClerk(screen.address)
    yield made
    made.close()


@pytest.fixture
def clerk(screen: Screen, request: pytest.FixtureRequest) -> Clerk:
    """A browser in the full suite, and in the short one a reader of forms."""
    if FULL:
        return BrowserClerk(request.getfixturevalue("plain"), screen.address)
    return request.getfixturevalue("forms")  # type: ignore[no-any-return]


# Reading


class Seen(NamedTuple):
    """What was found on a page."""

    path: str
    faults: list[str]
    text: str
    ran: object
    """What a canary did."""
    wide: int
    """On a phone."""


class Look(NamedTuple):
    name: str
    scheme: str
    width: int
    rules: dict[str, Any]


LIGHT = Look("light", "light", 1280, {})
DARK = Look("dark", "dark", 1280, {"runOnly": ["color-contrast"]} if FULL else {})
PHONE = Look("phone", "light", 390, {})
LEFT_OUT = [] if FULL else [["tbody tr:nth-child(n + 9)"]]
"""The rows of a table have the same markup, and the short suite looks at the first eight."""


@pytest.fixture(scope="module")
def walked(screen: Screen, scripted: Window) -> list[Seen]:
    """Every page, loaded once. The full suite looks for faults on each page in light, in the dark and as on a phone.
    The short suite looks once at each page, by turns in light and in the dark."""
    looks = (LIGHT, DARK, PHONE)
    found = [
        _seen(scripted, screen.address, path, looks if FULL else (looks[number % 2],))
        for number, path in enumerate(PAGES)
    ]
    scripted.page.emulate_media(color_scheme="light")
    scripted.page.set_viewport_size({"width": 1280, "height": 800})
    return found


def _seen(window: Window, address: str, path: str, looks: tuple[Look, ...]) -> Seen:
    page, complaints = window
    complaints.clear()
    page.set_viewport_size({"width": 1280, "height": 800})
    assert page.goto(address + path).ok
    text = page.inner_text("main")
    page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8"))
    faults = [fault for look in looks for fault in _faults(page, look)]
    page.set_viewport_size({"width": 390, "height": 800})
    wide = page.evaluate("document.documentElement.scrollWidth")
    return Seen(path, complaints + faults, text, page.evaluate(_RAN), wide)


_RAN = """() => window.ran || document.querySelector("img, main script, dialog script")?.outerHTML
    || [...document.links].find((link) => !link.protocol.startsWith("http"))?.href || null"""
"""What a canary did, if it did anything: ran, became markup, or an address that is none."""


_AXE = """async ([exclude, rules]) => (await axe.run({exclude}, {...rules, resultTypes: ["violations"]})).violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .flatMap((one) => one.nodes.slice(0, 2).map((node) => [one.id, node.html.slice(0, 120), node.failureSummary]))"""


def _faults(page: Any, look: Look) -> list[str]:
    """What axe calls serious or critical."""
    page.emulate_media(color_scheme=look.scheme)
    page.set_viewport_size({"width": look.width, "height": 800})
    return [": ".join([look.name, *fault]) for fault in page.evaluate(_AXE, [LEFT_OUT, look.rules])]


def test_nobody_is_kept_from_reading_a_page_and_no_browser_complains(walked: list[Seen]) -> None:
    assert {seen.path: seen.faults for seen in walked if seen.faults} == {}


def test_what_is_stored_is_shown_as_text_and_never_runs(walked: list[Seen]) -> None:
    assert {seen.path: seen.ran for seen in walked if seen.ran} == {}
    shown = "".join(seen.text for seen in walked)
    for canary in (SCRIPT, IMAGE, BRACES, ADDRESS):
        assert canary in shown


def test_a_schedule_over_members_shows_how_complete_it_was_who_waits_longest_and_who_fails(walked: list[Seen]) -> None:
    [text] = [seen.text for seen in walked if seen.path == "/schedules/schools"]
    part = text[text.index("Members") : text.index("Upcoming")]
    assert "each of 2 members of schools" in part
    assert part.count("1 of 2; 1 dead") >= 3
    assert re.search(r"Oldest completions\s+Member\s+Last useful completion\s+atlantis\s+never", part)
    assert re.search(r"Needs attention\s.*atlantis\s+dead\s+.*it is not there .*\s+6\n", part, re.DOTALL)


def test_no_page_scrolls_sideways_on_a_phone(walked: list[Seen]) -> None:
    assert {seen.path: seen.wide for seen in walked if seen.wide > 390} == {}


def test_dark_and_light_follow_the_system_and_whoever_says_otherwise(screen: Screen, page: Any) -> None:
    page.emulate_media(color_scheme="dark")
    colour = "getComputedStyle(document.body).backgroundColor"
    page.goto(screen.address)
    dark = page.evaluate(colour)
    page.click("text=Theme")
    light = page.evaluate(colour)
    assert dark != light
    page.goto(f"{screen.address}/schedules")
    assert page.evaluate(colour) == light  # it is remembered
    page.evaluate("localStorage.clear()")
    page.emulate_media(color_scheme="light")


def test_filters_live_in_the_address(screen: Screen, page: Any) -> None:
    page.goto(f"{screen.address}/runs")
    page.select_option("[name=state]", "dead")
    page.fill("[name=schedule]", "certificates")
    page.click("text=Show")
    assert "state=dead" in page.url
    assert "schedule=certificates" in page.url
    rows = page.locator("tbody tr")
    rows.first.wait_for()
    assert rows.count() > 3
    assert all("certificates@" in row and "dead" in row for row in rows.all_inner_texts())


def test_a_page_follows_the_store_by_itself(screen: Screen, page: Any) -> None:
    page.goto(f"{screen.address}/runs?schedule=feed%2Fhourly")
    page.wait_for_selector(".live.on")
    before = page.locator("tbody tr").count()
    screen.run_for("10m")
    page.wait_for_function("before => document.querySelectorAll('tbody tr').length > before", arg=before)


def test_the_timeline_of_a_running_run_moves_with_the_clock(screen: Screen, page: Any) -> None:
    page.goto(f"{screen.address}/runs/slow-one%231")
    edges = "[...document.querySelectorAll('svg[data-from] text')].slice(-2).map(one => one.textContent)"
    start, end = page.evaluate(edges)
    stretch = page.locator("svg[data-from] rect.fill-busy").bounding_box()
    assert stretch["width"] > 400 * page.locator("svg[data-from]").bounding_box()["width"] / 600, "it reaches to now"
    page.wait_for_function(f"before => {edges}[1] > before", arg=end)
    assert page.evaluate(edges)[0] == start
    moved = page.locator("svg[data-from] rect.fill-busy").bounding_box()
    assert abs(moved["x"] + moved["width"] - stretch["x"] - stretch["width"]) < 0.5


def test_a_page_that_is_not_seen_keeps_no_connection(screen: Screen, page: Any) -> None:
    """A browser has six to a host: a seventh page would never load."""
    turn = """hidden => {
        Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.goto(f"{screen.address}/runs")
    page.wait_for_selector(".live.on")
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/live")):
        page.evaluate(turn, True)
    with page.expect_request("**/live"):
        page.evaluate(turn, False)
    page.wait_for_selector(".live.on")


def test_what_went_wrong_again_and_again_is_one_row(screen: Screen, page: Any) -> None:
    page.goto(screen.address)
    row = page.locator("#person tbody tr", has_text="dead").filter(has=page.locator("a.id", has_text="certificates"))
    assert row.count() == 1
    assert re.search(r"\d+ dead\s+certificates", row.inner_text())
    row.locator("a.id").click()
    page.wait_for_url("**/runs?state=dead**")
    page.locator("tbody tr").first.wait_for()
    assert page.locator("tbody tr").count() > 3


# Keys


def test_a_page_can_be_used_with_keys_alone(screen: Screen, page: Any) -> None:
    page.goto(f"{screen.address}/schedules/to-pause")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip-link"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#page"
    pause = page.locator("a", has_text="Trigger…")
    pause.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] :focus")
    for _ in range(8):
        page.keyboard.press("Tab")
        inside = "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        assert page.evaluate(inside)
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    assert page.evaluate("document.activeElement.textContent") == "Trigger…"
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_url("**/fleet")


# Acting


def test_a_schedule_is_triggered_paused_released_and_resumed(screen: Screen, clerk: Clerk) -> None:
    told = clerk.act("schedules/to-pause/trigger")
    assert screen.run(told.split(" ")[0]).schedule == "to-pause"
    assert "paused until" in clerk.act("schedules/to-pause/pause", **{"for": "8h"})
    assert screen.schedule("to-pause").schedule.paused(screen.world.clock.now())
    row = screen.audited("pause")
    assert (row.subject, row.note) == ("to-pause", WHY)
    screen.run_for("1h")
    [held] = [run for run in screen.runs(schedule="to-pause") if str(run.state) == "held"]
    assert "released" in clerk.act(f"runs/{quote(held.id, safe='')}/release")
    assert "resumed" in clerk.act("schedules/to-pause/resume")
    assert not screen.schedule("to-pause").schedule.paused(screen.world.clock.now())


def test_an_edit_shows_what_would_change_before_it_does(screen: Screen, plain: Any) -> None:
    plain.goto(f"{screen.address}/act/schedules/to-edit/edit")
    plain.click("text=Preview")
    assert "No changes" in plain.inner_text(".will")
    plain.fill("[name=changes]", '{"rule": "0 7 * * *", "owner": "ben"}')
    plain.click("text=Preview")
    seen = plain.inner_text(".will")
    assert "07:00" in seen
    assert "ben" in seen
    assert screen.schedule("to-edit").schedule.revision == 1
    plain.fill("[name=reason]", WHY)
    plain.click("text=Save changes")
    assert "revision 2" in plain.inner_text(".told")
    assert screen.schedule("to-edit").schedule.owner == "ben"


def test_what_is_refused_keeps_what_was_typed(screen: Screen, plain: Any) -> None:
    plain.goto(f"{screen.address}/act/schedules/to-edit/edit")
    plain.fill("[name=changes]", '{"rule": "0 99 * * *"}')
    plain.fill("[name=reason]", WHY)
    plain.click("text=Save changes")
    assert "99" in plain.inner_text(".told.refused")
    assert plain.input_value("[name=reason]") == WHY
    assert "0 99" in plain.input_value("[name=changes]")


def test_a_refused_form_stays_in_its_dialog_with_what_was_typed_and_its_field_marked(screen: Screen, page: Any) -> None:
    page.goto(f"{screen.address}/schedules/to-edit")
    page.click("text=Edit…")
    typed = '\n\n{"rule":\n    "0 99 * * *"}\n'
    page.fill("dialog [name=changes]", typed)
    page.fill("dialog [name=reason]", WHY)
    page.click("dialog >> text=Save changes")
    page.wait_for_selector("dialog[open] .told.refused")
    assert page.url.endswith("/schedules/to-edit")
    assert page.input_value("dialog [name=changes]") == typed
    assert page.input_value("dialog [name=reason]") == WHY
    assert page.get_attribute("dialog [name=changes]", "aria-invalid") == "true"
    assert page.get_attribute("dialog [name=reason]", "aria-invalid") is None
    assert page.evaluate("document.activeElement.name") == "changes"
    told = page.inner_text("dialog .told.refused").splitlines()
    assert told[-1].index("^") == told[-2].index("99"), "the caret is below the character"
    assert "99" not in page.inner_text("dialog .will"), "it is said once"
    page.fill("dialog [name=changes]", "{")
    page.click("dialog >> text=Preview")
    page.wait_for_selector("dialog .told.refused >> text=is not JSON")
    page.fill("dialog [name=changes]", '{"owner": "carla"}')
    page.click("dialog >> text=Save changes")
    page.wait_for_selector(".told:not(.refused)")
    assert screen.schedule("to-edit").schedule.owner == "carla"


def test_a_schedule_is_made_and_deleted(screen: Screen, clerk: Clerk) -> None:
    clerk.act("schedules/new/make", name="made-here", job="report", rule="15 3 * * *", tz="Europe/Paris")
    assert clerk.open("/schedules/made-here") == 200
    assert "03:15 Europe/Paris" in clerk.shown("main")
    clerk.act("schedules/made-here/delete")
    assert clerk.open("/schedules/made-here") == 404
    assert "Not found" in clerk.shown("h1")


def test_a_backfill_is_previewed_started_paced_paused_resumed_and_cancelled(screen: Screen, clerk: Clerk) -> None:
    edges = {"from": "2026-03-26T00:00", "to": "2026-03-26T12:00"}
    would = clerk.preview("schedules/to-fill/backfill", **edges)
    assert "12 ticks, 12 without a run" in would
    assert "backfill 1" in clerk.act("schedules/to-fill/backfill", rate="1/m", **edges)
    for verb, fields, state in (
        ("rate", {"rate": "2/m"}, "running"),
        ("pause", {}, "paused"),
        ("resume", {}, "running"),
        ("cancel", {}, "cancelled"),
    ):
        clerk.act(f"backfills/1/{verb}", **fields)
        progress = screen.call(screen.operate.backfill_progress_async(1))
        assert str(progress.backfill.state) == state
    assert clerk.open("/backfills") == 200
    assert "cancelled" in clerk.shown("main")


def test_an_ambiguous_run_is_settled_with_evidence(screen: Screen, plain: Any) -> None:
    plain.goto(f"{screen.address}/runs/{quote(RUN, safe='')}")
    first, *others = plain.locator("#advice .actions a").all_text_contents()
    assert first == "It happened…"  # the safe one comes first; those that could do harm are folded away
    assert others[0] == "It did not happen…"
    assert not plain.locator("#advice details").evaluate("it => it.open")
    assert any(text.startswith(("Retry", "Rerun")) for text in others)
    effect = plain.goto(f"{screen.address}/act/runs/{quote(RUN, safe='')}/reconcile").text()
    name = re.search(r'name="(effect [^"]+)"', effect)
    assert name is not None
    plain.locator("select").first.select_option("done")
    plain.locator("[name=then]").select_option("")
    plain.fill("[name=evidence]", "the bank says so")
    plain.fill("[name=reason]", WHY)
    plain.click("text=Reconcile run")
    assert str(screen.run(RUN).state) == "reconciled"
    assert f"=done; {WHY}; evidence: the bank says so" in screen.audited("reconcile").note


def test_runs_are_skipped_cancelled_retried_rerun_and_repaired(screen: Screen, clerk: Clerk) -> None:
    clerk.act("runs/future:0%231/skip")
    assert str(screen.run("future:0#1").state) == "skipped"
    clerk.act("runs/future:1%231/cancel")
    assert str(screen.run("future:1#1").state) == "cancelled"
    clerk.act("runs/late-one%231/retry")
    assert str(screen.run("late-one#1").state) != "dead"
    assert screen.audited("retry").subject == "late-one#1"
    told = clerk.act("runs/future:1%231/rerun")
    assert "rerun created" in told
    repairing = screen.run(clerk.act("runs/future:0%231/repair").split(": rerun")[0])
    assert repairing.repair
    assert WHY in screen.audited("repair").note
    [checked] = [run for run in screen.runs(schedule="counted", limit=5) if str(run.state) == "unverified"][:1]
    assert "check" in clerk.act(f"runs/{quote(checked.id, safe='')}/verify")


def test_a_running_one_is_asked_to_stop(screen: Screen, clerk: Clerk) -> None:
    assert "cancellation requested" in clerk.act("runs/slow-one%231/cancel")
    assert clerk.open("/runs/slow-one%231") == 200
    assert "cancellation requested" in clerk.shown("main")


def test_a_run_goes_on_where_it_stopped_once_its_cause_is_gone(screen: Screen, clerk: Clerk) -> None:
    assert [str(screen.run(f"{key}#1").state) for key in ("letters", "in-doubt")] == ["dead", "ambiguous"]
    is_mended.append(True)
    clerk.act("runs/letters%231/resume")
    screen.run_for("1s")
    run = screen.run("letters#1")
    assert str(run.state) == "succeeded", run.detail
    assert len({effect.key for effect in run.effects}) == 4
    assert (screen.audited("resume").subject, screen.audited("resume").note) == ("letters#1", WHY)


def test_what_may_happen_twice_is_retried_only_by_who_says_that_they_know(screen: Screen, plain: Any) -> None:
    plain.goto(f"{screen.address}/runs/in-doubt%231")
    plain.click("#advice summary")
    plain.click("#advice details >> text=Retry…")
    assert "may happen a second time" in plain.inner_text(".will.unsafe")
    plain.fill("[name=reason]", WHY)
    plain.click("text=Retry run")
    assert plain.url.endswith("risky=yes")  # the browser holds it back until the box is checked
    assert str(screen.run("in-doubt#1").state) == "ambiguous"
    plain.check("[name=override]")
    plain.click("text=Retry run")
    assert "retry scheduled" in plain.inner_text(".told")
    assert str(screen.run("in-doubt#1").state) == "scheduled"
    assert WHY in screen.audited("retry").note


def test_workers_are_drained_quarantined_and_taken_back(screen: Screen, clerk: Clerk) -> None:
    [worker] = screen.call(screen.operate.workers_async())
    for verb in ("drain", "quarantine"):
        clerk.act(f"workers/{worker.number}/{verb}")
        assert verb in clerk.shown("#workers")
        [wished] = screen.call(screen.operate.workers_async())
        assert str(wished.wish) == verb
        assert screen.audited(verb).note == WHY
    clerk.act(f"workers/{worker.number}/resume")
    [wished] = screen.call(screen.operate.workers_async())
    assert wished.wish is None


def test_alerts_are_snoozed_and_told_again(screen: Screen, clerk: Clerk) -> None:
    number = screen.call(screen.operate.alerts_async()).alerts[-1].number
    assert "snoozed until" in clerk.act(f"alerts/{number}/snooze")
    assert screen.call(screen.operate.alert_async(number)).snoozed(screen.world.clock.now())
    clerk.act(f"alerts/{number}/unsnooze")
    assert not screen.call(screen.operate.alert_async(number)).snoozed(screen.world.clock.now())


def test_dead_letters_are_replayed_in_bulk_after_their_number_was_shown(screen: Screen, plain: Any) -> None:
    plain.goto(f"{screen.address}/dead?schedule=certificates")
    plain.click("text=Replay all")
    will = plain.inner_text(".will")
    count = re.match(r"(\d+) of \1 dead letters are retried", will)
    assert count is not None, will
    plain.fill("[name=reason]", WHY)
    plain.click(f"text=Replay {count[1]}")
    assert f"{count[1]} replayed" in plain.inner_text(".told")
    assert plain.url.split("?")[0].endswith("/dead")
    states = {str(run.state) for run in screen.runs(schedule="certificates")}
    assert "dead" not in states
    assert WHY in screen.audited("replay").note


def test_many_are_chosen_and_paused_in_a_dialog(screen: Screen, page: Any) -> None:
    page.goto(f"{screen.address}/schedules?text=to-")
    assert page.locator(".bulk button").first.is_disabled()
    for name in ("to-edit", "to-fill"):
        page.check(f"input[value='{name}']")
    assert page.inner_text("[data-chosen]") == "2 selected"
    page.click("text=Pause…")
    page.wait_for_selector("dialog[open]")
    assert "2 schedules" in page.inner_text("dialog .will")
    page.select_option("dialog [name=for]", "1h")
    page.fill("dialog [name=reason]", WHY)
    page.click("dialog button.safe")
    page.wait_for_selector(".told")
    assert "2 of 2 schedules done; paused until" in page.inner_text(".told")
    assert page.url.endswith("/schedules?text=to-")  # back where one was, and told once
    for name in ("to-edit", "to-fill"):
        assert screen.schedule(name).schedule.paused_note == WHY
    assert screen.audited("pause").note == WHY


def test_many_are_chosen_and_cancelled_in_a_dialog(screen: Screen, page: Any) -> None:
    page.goto(f"{screen.address}/runs?text=cancel-me")
    page.check("thead input[type=checkbox]")
    assert page.inner_text("[data-chosen]") == "3 selected"
    page.click(".bulk >> text=Cancel…")
    page.wait_for_selector("dialog[open]")
    assert "3 runs" in page.inner_text("dialog .will.unsafe")
    page.fill("dialog [name=reason]", WHY)
    page.click("dialog button.unsafe")
    page.wait_for_selector(".told")
    assert "3 of 3 runs done" in page.inner_text(".told")
    assert [str(screen.run(f"cancel-me:{number}#1").state) for number in range(3)] == ["cancelled"] * 3
    assert screen.audited("cancel").note == WHY


# Last, because from the first token on everybody has to say who they are.


def test_whoever_has_a_token_logs_in_and_out(screen: Screen, page: Any) -> None:
    text = screen.token("carla", "read")
    page.goto(f"{screen.address}/schedules")
    page.wait_for_url("**/login")
    page.fill("[name=token]", text)
    page.click("button")
    page.wait_for_selector(".foot")
    page.goto(f"{screen.address}/schedules")
    assert "carla" in page.inner_text(".foot")
    assert page.locator("text=New schedule").count() == 0
    assert page.locator("input[type=checkbox][name=schedule]").count() == 0
    page.click("text=Log out")
    page.wait_for_url("**/login")
