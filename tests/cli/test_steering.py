"""Pauses, workers, edits and bulks on the command line."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path
from typing import Any

from foliot import Foliot, bootstrap
from foliot.bootstrap import DRAINED
from foliot.cli.supervisor import Child, Supervisor
from foliot.domain.instant import SECOND
from foliot.domain.store import Wish
from tests.cli.support import refused, run, run_json
from tests.waiting import HANG, soon

WHY = ("--reason", "a test", "--actor", "tester")


def test_a_queue_a_job_and_a_tenant_are_paused_shown_where_they_are_listed_and_resumed(store: str):
    on = ("--store", store)
    [paused] = run_json("queues", "pause", "default", "--for", "2h", *WHY, *on)
    assert [paused[one] for one in ("name", "what", "actor", "note")] == ["queue:default", "claims", "tester", "a test"]
    [queue] = run_json("queues", "list", *on)
    assert queue["pauses"] == [paused]
    assert "paused claims of pay until it is resumed" in run("jobs", "pause", "pay", *WHY, *on).stdout
    assert {job["name"]: len(job["pauses"]) for job in run_json("jobs", "list", *on)} == {"greet": 0, "pay": 1}
    assert "by tester: a test" in run("jobs", "show", "pay", *on).stdout
    run_json("tenants", "pause", "acme", "--what", "creation,retries", *WHY, *on)
    assert "acme: retries paused by tester: a test" in run("tenants", *on).stdout
    schedules = {one["id"]: one for one in run_json("schedules", "list", *on)}
    assert [one["name"] for one in schedules["greetings"]["pauses"]] == ["queue:default"]
    assert "claims (queue:default)" in run("schedules", "list", "--paused", *on).stdout
    assert run_json("schedules", "list", "--not-paused", *on) == []
    assert [one["what"] for one in run_json("tenants", "resume", "acme", *WHY, *on)] == ["creation", "retries"]
    assert run_json("queues", "resume", "default", *WHY, *on) == [paused]
    assert run("queues", "resume", "default", *WHY, *on).stdout == "default was not paused\n"


def test_wrong_words_about_pauses_are_refused(store: str):
    on = ("--store", store)
    assert "creation, retries, claims" in refused(run("jobs", "pause", "pay", "--what", "all", *WHY, *on), 2)
    assert "no job 'nobody'" in refused(run("jobs", "pause", "nobody", *WHY, *on), 1)
    assert "not both" in refused(
        run("queues", "pause", "q", "--for", "1h", "--until", "2100-01-01T00:00:00Z", *WHY, *on), 2
    )
    assert "no worker serves this queue" in run("queues", "pause", "nosuch", *WHY, *on).stdout
    assert "give either the name of one schedule" in refused(run("schedules", "pause", *WHY, *on), 2)


def test_a_worker_is_told_to_leave_and_told_otherwise(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/workers.db"

    async def enter() -> int:
        store = bootstrap.make_store(url)
        await store.open()
        entered = await store.register("worker", version="1", queues=("default",), slots=5, jobs=[])
        await store.close()
        return entered.number

    number = str(asyncio.run(enter()))
    told = run_json("workers", "drain", number, *WHY, "--store", url)
    assert told == {"number": int(number), "wish": "drain", "outcome": "told"}
    assert run_json("workers", "drain", number, *WHY, "--store", url)["outcome"] == "unchanged"
    assert "drain (tester: a test)" in run("workers", "list", "--store", url).stdout
    assert "claims no more runs and keeps running" in run("workers", "quarantine", number, *WHY, "--store", url).stdout
    assert run_json("workers", "resume", number, *WHY, "--store", url)["wish"] is None
    assert "worker 99 does not exist" in refused(run("workers", "drain", "99", *WHY, "--store", url), 1)


def test_a_supervisor_does_not_start_a_child_again_that_was_drained():
    told: list[tuple[str, str]] = []

    async def scene() -> None:
        child = Child("worker", [sys.executable, "-c", f"raise SystemExit({DRAINED})"])
        supervisor = Supervisor([child], lambda name, what: told.append((name, what)))
        supervisor.start()
        await soon(asyncio.gather(*supervisor._keeping))
        await supervisor.stop(SECOND)

    asyncio.run(scene())
    assert [what.partition(" (")[0] for _, what in told] == [
        "started",
        "drained, not restarted; to start it again, restart `foliot up`",
    ]


async def test_a_drained_worker_that_leaves_for_a_handler_is_not_to_be_started_again() -> None:
    app, begun, release = Foliot("sqlite:///:memory:"), threading.Event(), threading.Event()

    @app.job(timeout="1s")
    def stubborn() -> None:
        begun.set()
        release.wait(HANG)

    store = await app.opened()
    more: dict[str, Any] = {"grace": 0, "queues": ["default"], "slots": 1, "recycle_after": SECOND}
    stop, handlers = asyncio.Event(), {"stubborn": stubborn.handler}
    scheduling = asyncio.create_task(bootstrap.run_scheduler(store, stop))
    working = asyncio.create_task(bootstrap.run_worker(store, handlers, asyncio.Event(), **more))
    await stubborn.now_async()
    assert await asyncio.to_thread(begun.wait, HANG)
    [worker] = [one.number for one in await store.instances() if one.role == "worker"]
    await store.wish(worker, Wish.DRAIN, actor="ana", note="x")
    left = await soon(working)
    release.set()
    stop.set()
    await scheduling
    await app.close_async()
    assert (left.recycled, left.exit_code) == (True, DRAINED)


def test_a_schedule_is_edited_from_the_revision_that_was_seen(store: str):
    on = ("--store", store)
    seen = run_json("schedules", "edit", "greetings", "--rule", "every 30m", "--set", "owner=ops", "--dry-run", *on)
    assert ([one["field"] for one in seen["changed"]], seen["revision"]) == (["rule", "owner"], 1)
    assert len(seen["ticks_after"]) == 5
    done = run("schedules", "edit", "greetings", "--rule", "every 30m", "--revision", "1", *WHY, *on)
    assert "now at revision 2" in done.stdout
    again = run("schedules", "edit", "greetings", "--set", "attempts=2", "--revision", "1", *WHY, *on)
    assert again.exit_code == 1
    assert "not at 1; tester changed it at" in again.stderr
    assert again.stdout == "", "a refused edit prints no plan that reads as a success"
    assert "by tester" in run("schedules", "show", "greetings", *on).stdout
    assert run_json("schedules", "show", "greetings", *on)["edited"]["fields"] == ["rule"]
    assert "--set NAME=VALUE" in refused(run("schedules", "edit", "greetings", *WHY, *on), 2)
    assert "preview with --dry-run" in refused(
        run("schedules", "edit", "greetings", "--set", "attempts=2", *WHY, *on), 2
    )
    refused(run("schedules", "delete", "greetings", "--revision", "1", *WHY, *on), 1)


def test_a_file_of_schedules_is_applied_and_pruned(store: str, tmp_path: Path):
    on, file = ("--store", store), tmp_path / "all.toml"
    file.write_text(
        '[[schedule]]\nname = "daily"\njob = "greet"\nrule = "0 5 * * *"\nargs = { name = "you" }\n'
        '[[schedule]]\nname = "more"\njob = "greet"\nrule = "every 1h"\n'
    )
    assert [one["outcome"] for one in run_json("schedules", "apply", file, "--dry-run", *on)] == ["created", "created"]
    assert "created 2 schedules" in run("schedules", "apply", file, "--yes", *on).stdout
    as_json = tmp_path / "all.json"
    as_json.write_text('{"name": "daily", "job": "greet", "rule": "0 6 * * *"}')
    told = run_json("schedules", "apply", as_json, "--source", "file:all.toml", "--prune", "--yes", *on)
    assert [(one["id"], one["outcome"]) for one in told] == [("daily", "changed"), ("more", "pruned")]
    both = [{"name": name, "job": "greet", "rule": "every 1h"} for name in ("fresh", "greetings")]
    as_json.write_text(json.dumps(both))
    refusal = run("schedules", "apply", as_json, "--yes", *on)
    assert refusal.exit_code == 1
    assert "declared by code" in refusal.stderr
    assert "greetings" in refusal.stdout
    assert "fresh" not in refusal.stdout, "a refused list creates no schedule, so no line says so"
    assert "there is no schedule" in run("schedules", "show", "fresh", *on).stderr
    file.write_text("[[schedule]\n")
    refused(run("schedules", "apply", file, "--yes", *on), 2)


def test_many_are_shown_first_and_never_touched_blindly(store: str):
    on = ("--store", store)
    assert "preview with --dry-run" in refused(run("runs", "skip", "--job", "greet", *WHY, *on), 2)
    seen = run_json("runs", "skip", "--job", "greet", "--dry-run", *on)
    assert seen["would"] == len(seen["sample"]) > 0
    told = run_json("runs", "skip", "--job", "greet", "--yes", *WHY, *on)
    assert sum(told["counts"].values()) == seen["would"]
    assert "give either the name of one run" in refused(run("runs", "cancel", *WHY, *on), 2)
    assert run_json("schedules", "pause", "--job", "greet", "--dry-run", *on)["would"] == 2
    assert "paused 1 schedule" in run("schedules", "pause", "--owner", "sales", "--yes", *WHY, *on).stdout
    assert run_json("schedules", "resume", "--prefix", "g", "--yes", *WHY, *on)["counts"] == {"resumed": 1}
