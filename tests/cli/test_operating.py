"""`foliot schedules` and `foliot runs`, on a store in which things have happened."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime

import pytest

from foliot import Foliot, bootstrap, every
from foliot.clock import SystemClock
from foliot.domain.instant import parse_rfc3339
from tests.cli.support import refused, run, run_json
from tests.contract.stage import Stage

WHY = ("--reason", "a test", "--actor", "tester")


def test_schedules_are_listed_with_what_they_mean(store: str):
    listed = {shape["id"]: shape for shape in run_json("schedules", "list", "--store", store)}
    assert set(listed) == {"greetings", "sweep"}
    assert listed["greetings"]["words"] == "every 240000 hours, at 00:00 UTC, counted from 1970-01-01T00:00:00Z"
    assert listed["greetings"]["state"] == "waiting"
    assert parse_rfc3339(listed["greetings"]["next_fire_at"]) > 0
    assert (
        "every 240000 hours, at 00:00 UTC, counted from 1970-01-01T00:00:00Z"
        in run("schedules", "list", "--store", store).stdout
    )


def test_a_schedule_is_shown_with_its_policies_in_words_and_what_comes(store: str):
    shown = run_json("schedules", "show", "greetings", "--store", store)
    assert len(shown["upcoming"]) == 5
    assert shown["policy"]["attempts"] == 4
    assert shown["policy"]["timeout"] == 900.0
    assert [entry["state"] for entry in shown["runs"]] == ["scheduled"]
    told = run("schedules", "show", "greetings", "--store", store).stdout
    assert "skip a tick while an earlier run is busy" in told
    assert re.search(r"^owner +sales$", told, re.MULTILINE)
    assert "health" in told


def test_a_fixed_delay_shows_the_one_tick_that_waits(store: str):
    assert len(run_json("schedules", "show", "sweep", "--store", store)["upcoming"]) == 1


def test_a_paused_schedule_says_why_and_until_when_and_can_be_resumed(store: str):
    until = run_json("schedules", "pause", "greetings", "--for", "2h", *WHY, "--store", store)["until"]
    shown = run_json("schedules", "show", "greetings", "--store", store)
    assert (shown["state"], shown["paused_until"], shown["paused_note"]) == ("paused", until, "a test")
    assert "a test" in run("schedules", "show", "greetings", "--store", store).stdout
    assert run_json("schedules", "resume", "greetings", *WHY, "--store", store)["outcome"] == "resumed"
    assert run_json("schedules", "show", "greetings", "--store", store)["state"] == "waiting"


def test_a_pause_can_end_at_an_instant_but_not_in_the_past(store: str):
    paused = run_json("schedules", "pause", "greetings", "--until", "2100-01-01T00:00:00Z", *WHY, "--store", store)
    assert paused["until"] == "2100-01-01T00:00:00Z"
    refused(run("schedules", "pause", "greetings", "--until", "2001-01-01T00:00:00Z", *WHY, "--store", store), 1)


def test_a_triggered_run_is_one_of_its_schedule(store: str):
    made, again = (
        run_json("schedules", "trigger", "greetings", "--key", "deploy-7", *WHY, "--store", store) for _ in range(2)
    )
    assert (again["id"], again["outcome"]) == (made["id"], "kept")
    assert made["id"].startswith("greetings@")
    assert run_json("runs", "show", made["id"], "--store", store)["origin"] == "manual"


async def _hand_off(url: str) -> None:
    """Hands off what is due."""
    store = bootstrap.make_store(url)
    await store.open()
    await Stage(store, SystemClock()).fire()  # type: ignore[arg-type]
    await store.close()


def test_a_trigger_that_overlap_would_skip_makes_no_run_unless_it_is_overridden(store: str):
    on = ("--store", store)
    free = run("schedules", "trigger", "greetings", *WHY, *on).stdout
    assert "greetings: the run starts now" in free
    first = free.split()[-1]
    asyncio.run(_hand_off(store))
    before = len(run_json("runs", "list", *on))
    complaint = refused(run("schedules", "trigger", "greetings", *WHY, *on), 1)
    assert f"{first} is still active (overlap=skip)" in complaint
    assert "--override-overlap" in complaint
    assert "would be skipped" in run("schedules", "trigger", "greetings", "--dry-run", *on).stdout
    assert len(run_json("runs", "list", *on)) == before
    seen = run_json("schedules", "trigger", "greetings", "--override-overlap", "--dry-run", *on)
    assert (seen["outcome"], f"beside {first}" in seen["detail"]) == ("made", True)
    beside = run("schedules", "trigger", "greetings", "--override-overlap", *WHY, *on).stdout
    assert f"starts beside {first}" in beside
    assert "made greetings@" in beside


def test_runs_are_listed_newest_first_and_page_by_page(store: str):
    everything = run_json("runs", "list", "--store", store)
    assert len(everything) == 6
    first = run_json("runs", "list", "--limit", "4", "--store", store)
    rest = run_json("runs", "list", "--before", first[-1]["cursor"], "--store", store)
    assert [*first, *rest] == everything
    assert f"--cursor {first[-1]['cursor']}" in run("runs", "list", "--limit", "4", "--store", store).stdout


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("--state", "dead"), ["invoice:1#1"]),
        (("--state", "dead,cancelled"), ["class:2#1", "invoice:1#1"]),
        (("--state", "dead", "--state", "cancelled"), ["class:2#1", "invoice:1#1"]),
        (("--job", "pay"), ["invoice:1#1"]),
        (("--tenant", "acme"), ["class:1[acme]#1"]),
        (("--schedule", "nobody"), []),
    ],
)
def test_runs_are_filtered(filters: tuple[str, ...], found: list[str], store: str):
    assert [shape["id"] for shape in run_json("runs", "list", *filters, "--store", store)] == found


def test_an_empty_list_says_so(store: str):
    assert run("runs", "list", "--job", "nobody", "--store", store).stdout == "no matching runs\n"


def test_a_run_that_succeeded_tells_its_whole_life(store: str):
    shown = run_json("runs", "show", "class:1[acme]#1", "--store", store)
    assert (shown["state"], shown["result"], shown["arguments"]) == ("succeeded", "hello Ada", {"name": "Ada"})
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["succeeded"]
    assert shown["late"] >= 0
    assert shown["advice"] is None
    # "Now" is read before the promise is written, so a run may be due a moment before it was made.
    for first in ("made_at", "fire_at"):
        order = [parse_rfc3339(shown[name]) for name in (first, "claimed_at", "started_at", "finished_at")]
        assert sorted(order) == order


def test_a_dead_run_says_what_to_do_and_whom_it_concerns(store: str):
    shown = run_json("runs", "show", "invoice:1#1", "--store", store)
    assert (shown["state"], shown["reason"]) == ("dead", "permanent")
    assert "invoice 1 has no address" in shown["attempts"][0]["error"]
    told = run("runs", "show", "invoice:1#1", "--store", store).stdout
    assert 'foliot runs retry "invoice:1#1" --reason' in told
    assert "permanent error" in told
    assert "owner    finance" in told
    assert "https://wiki.example.org/pay" in told


def test_a_deleted_schedule_is_gone_and_says_whether_it_comes_back(store: str):
    [first, *_] = run_json("schedules", "list", "--store", store)
    assert "--reason is required" in refused(run("schedules", "delete", first["id"], "--store", store), 2)
    assert run_json("schedules", "delete", first["id"], *WHY, "--store", store) == {
        "id": first["id"],
        "outcome": "deleted",
        "source": "code",
    }
    assert first["id"] not in [left["id"] for left in run_json("schedules", "list", "--store", store)]
    assert "there is no schedule" in refused(run("schedules", "delete", first["id"], *WHY, "--store", store), 1)


def test_a_dead_run_can_be_retried_and_a_waiting_one_cancelled(store: str):
    assert run_json("runs", "retry", "invoice:1#1", *WHY, "--store", store)["state"] == "scheduled"
    assert run_json("runs", "cancel", "class:3#1", *WHY, "--store", store)["state"] == "cancelled"
    assert run_json("runs", "show", "class:3#1", "--store", store)["detail"] == "a test"


def test_what_cannot_be_done_is_refused_in_one_line(store: str):
    assert "only dead" in refused(run("runs", "retry", "class:1[acme]#1", *WHY, "--store", store), 1)
    assert "already" in refused(run("runs", "cancel", "class:2#1", *WHY, "--store", store), 1)
    assert "there is no run" in refused(run("runs", "show", "nobody", "--store", store), 1)
    assert "there is no schedule" in refused(run("schedules", "show", "nobody", "--store", store), 1)
    refused(run("schedules", "trigger", "nobody", *WHY, "--store", store), 1)


@pytest.mark.parametrize(
    "action",
    [
        ("schedules", "pause", "greetings"),
        ("schedules", "resume", "greetings"),
        ("schedules", "trigger", "greetings"),
        ("runs", "cancel", "class:3#1"),
        ("runs", "retry", "invoice:1#1"),
        ("runs", "resume", "invoice:1#1"),
        ("runs", "rerun", "invoice:1#1"),
        ("runs", "verify", "invoice:1#1"),
    ],
)
def test_no_action_without_a_reason(action: tuple[str, ...], store: str):
    assert "--reason is required" in refused(run(*action, "--store", store), 2)
    assert "--reason is required" in refused(run(*action, "--reason", " ", "--store", store), 2)


def test_what_is_piped_is_neither_wrapped_nor_cut_nor_coloured(store: str):
    told = run("runs", "list", "--store", store).stdout
    assert "permanent: Permanent: invoice 1 has no address" in told
    assert "\x1b" not in told
    assert all(line == line.rstrip() for line in told.splitlines())


def test_an_abort_at_a_prompt_prints_one_line(store: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("foliot.cli.editing.refuse_blind", lambda **_: None)  # as on a terminal; its input ends here
    left = run("schedules", "edit", "greetings", "--rule", "every 30m", *WHY, "--store", store)
    assert left.exit_code == 1
    assert left.stderr.strip() == "foliot: aborted"


def test_the_story_of_a_promise_says_that_the_app_moved_it(store: str):
    app = Foliot(store)
    moved = app.move("class:3", datetime(2100, 1, 1, tzinfo=UTC))
    app.close()
    assert re.search(r"moved: from \S+ to 2100-01-01T00:00:00Z", run("runs", "show", moved.id, "--store", store).stdout)


def test_a_schedule_that_requires_one_which_does_not_exist_warns(store: str):
    app = Foliot(store)

    @app.job
    async def greet() -> None: ...

    app.schedule("early", greet, every("1h"), requires="late")
    assert app.apply().lacking == {"early": "late"}
    app.close()
    shown = run("schedules", "show", "early", "--store", store).stdout
    assert "a useful result of late; a tick waits for it up to 1d" in shown
    assert "the required schedule late does not exist" in shown
    assert run_json("schedules", "show", "early", "--store", store)["lacks_required"] is True
    assert "early requires late; the required schedule does not exist" in " ".join(
        run("doctor", "--store", store).stdout.split()
    )
