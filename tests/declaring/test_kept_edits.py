"""No edit is lost by a deploy of this release to a store of an older one, also while both apply by turns."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from foliot import Foliot, every, rrule
from foliot.clock import ManualClock
from foliot.domain.fingerprint import is_applied
from foliot.domain.instant import parse_rfc3339
from foliot.domain.schedule import FORMAT, Applied, ScheduleView
from foliot.domain.store import Store
from foliot.operate.scheduling import Planned
from foliot.store.keys import new_key
from foliot.store.postgres import PostgresStore
from tests.declaring.shop import EDITS, FILE, MADE, NOW, PAUSED, STATED, crontab, shop
from tests.declaring.stores import (
    HERE,
    changed_by_the_older_release,
    fingerprints_in,
    opened_file,
    record_database,
    recorded_file,
)

OLD = json.loads((HERE / "ed5b06f.json").read_text())
SAID: dict[str, Any] = {"reason": "a deploy", "actor": "bob"}
EDITED = sorted(EDITS.keys() - {MADE["name"]})
"""What an operator made has no declaration beside the edit."""


@asynccontextmanager
async def opened(file: Path, **declared: Any) -> AsyncIterator[tuple[Foliot, Store]]:
    app = shop(f"sqlite:///{file}", **declared)
    yield app, await app.opened()
    await app.close_async()


async def views_of(store: Store) -> dict[str, ScheduleView]:
    return {view.schedule.id: view for view in await store.schedules()}


def as_said(view: ScheduleView) -> tuple[Any, ...]:
    """All of a schedule that an operator or a declaration says."""
    one = view.schedule
    template = (one.rule, one.payload, one.policy, one.options, one.queue, one.priority, one.owner, one.over)
    return (*template, one.revision, one.paused_note, view.edit)


async def applied_by_all_channels(app: Foliot) -> tuple[Applied, list[Planned], Applied]:
    return (
        await app.apply_async(),
        await app.operate.apply_schedules_async(STATED, source=FILE, **SAID),
        await app.operate.import_schedules_async(crontab(), source="crontab", actor="bob"),
    )


async def assert_all_is_kept(app: Foliot, store: Store, before: dict[str, ScheduleView]) -> None:
    code, file, lines = await applied_by_all_channels(app)
    assert (code.created, code.changed, code.overwritten, code.outdated, code.vanished) == ([], [], [], [], [])
    assert sorted(code.unchanged) == sorted(OLD["code"])
    assert {one.outcome for one in file} == {"unchanged"}
    assert (lines.changed, sorted(lines.unchanged)) == ([], sorted(OLD["crontab"]))
    assert await app.settle_async() == Applied()
    after = await views_of(store)
    assert {name: as_said(view) for name, view in after.items()} == {
        name: as_said(view) for name, view in before.items()
    }
    assert sorted(name for name, view in after.items() if view.edit is not None) == EDITED
    assert all(after[name].schedule.paused(NOW) for name in PAUSED)


async def test_a_file_of_an_older_release_keeps_every_edit(tmp_path: Path) -> None:
    file = recorded_file(tmp_path)
    async with opened(file) as (app, store):
        before = await views_of(store)
        assert sorted(name for name, view in before.items() if view.edit is not None) == EDITED
        assert {view.schedule.format for view in before.values()} == {0}
        for _ in range(2):
            await assert_all_is_kept(app, store, before)
            after = await views_of(store)
            assert {name for name, view in after.items() if view.schedule.format != FORMAT} == {MADE["name"]}
        made = after[MADE["name"]].schedule
        assert (made.format, made.former == OLD["operator"][MADE["name"]]) == (0, False), "it is as edited"
    assert fingerprints_in(file) == {name: row[1] for name, row in OLD["stored"].items()}, "as the older one knows them"


async def test_a_database_of_an_older_release_keeps_every_edit(database: str) -> None:
    await record_database(database)
    store = PostgresStore(database)
    await store.open()
    try:
        before = await views_of(store)
        assert {name: view.schedule.former for name, view in before.items()} == {
            name: row[1] for name, row in OLD["stored"].items()
        }
        app = shop(store)
        for _ in range(2):
            await assert_all_is_kept(app, store, before)
        assert {view.schedule.former for view in (await views_of(store)).values()} == {
            row[1] for row in OLD["stored"].values()
        }
    finally:
        await store.close()


async def test_a_hash_that_this_code_cannot_reproduce_is_no_change(tmp_path: Path) -> None:
    file = recorded_file(tmp_path)
    async with opened(file):
        pass
    with opened_file(file) as connection:
        connection.execute("UPDATE schedule SET fingerprint = 'other ' || id")
        connection.execute(
            "UPDATE declared SET release = 'another', "
            "declares = (SELECT json_group_object(id, fingerprint) FROM schedule WHERE source = 'code')"
        )
    async with opened(file) as (app, store):
        before = await views_of(store)
        for _ in range(2):
            await assert_all_is_kept(app, store, before)
        note = (await store.audit_of("nightly"))[-1]
        assert (note.action, note.actor) == ("apply", "code")
        assert note.note.startswith("kept the edit by ada (rule): ")
        assert [row.action for row in await store.audit_of("plain")] == ["apply"]
    assert fingerprints_in(file)["nightly"] == "other nightly"
    with opened_file(file) as connection:
        ages = connection.execute("SELECT release, coalesce(age, n), format FROM declared ORDER BY n").fetchall()
    assert ages == [("another", 1, 0), (OLD["release"], 1, FORMAT)], "the same release, as old as before"


async def test_a_declaration_that_changed_has_its_way_and_the_log_says_so(tmp_path: Path) -> None:
    """In the deploy that brings the present format, and in the one after it."""
    file = recorded_file(tmp_path)
    async with opened(file, region="east") as (app, store):
        applied = await app.apply_async()
        assert (applied.changed, applied.overwritten) == (["nightly"], ["nightly"])
        view = await store.schedule("nightly")
        assert (view.edit, json.loads(view.schedule.payload)["region"]) == (None, "east")
        assert (await store.audit_of("nightly"))[-1].note.startswith("replaced the edit by ada (rule): ")
        edited = {"rule": "45 3 * * *", "tz": "Europe/Paris"}
        await app.operate.edit_schedule_async("nightly", edited, revision=view.schedule.revision, **SAID)
        assert (await app.apply_async()).changed == []
    async with opened(file, region="east", nightly="0 7 * * *") as (app, _):
        assert (await app.apply_async()).overwritten == ["nightly"]


async def test_a_declaration_that_changed_in_edited_fields_alone_gives_way_once(tmp_path: Path) -> None:
    """An older format cannot show that it changed: the edit is kept, once. The next change has its way."""
    file = recorded_file(tmp_path)
    async with opened(file, nightly="0 6 * * *") as (app, store):
        before = as_said(await store.schedule("nightly"))
        applied = await app.apply_async()
        assert (applied.changed, applied.overwritten) == ([], [])
        assert as_said(await store.schedule("nightly")) == before
        assert (await store.audit_of("nightly"))[-1].note.startswith("kept the edit by ada (rule): ")
    async with opened(file, nightly="0 7 * * *") as (app, _):
        assert (await app.apply_async()).overwritten == ["nightly"]


async def test_an_older_release_that_changes_a_declaration_is_not_overlooked(tmp_path: Path) -> None:
    """It leaves the columns that it does not know: these speak of another declaration then."""
    file = recorded_file(tmp_path)
    async with opened(file) as (app, _):
        await app.apply_async()
    east = shop(f"sqlite:///{file}", region="east")
    [stated] = [one for one in east.declarations() if one.id == "nightly"]
    as_stated = {"rule": stated.rule, "payload": stated.payload, "fingerprint": OLD["other"]["code"]["nightly"]}
    changed_by_the_older_release(file, "nightly", **as_stated)
    async with opened(file) as (app, store):
        assert (await store.schedule("nightly")).schedule.format == 0
        assert (await app.apply_async()).changed == ["nightly"]
        edited = {"rule": "45 3 * * *", "tz": "Europe/Paris"}
        revision = (await store.schedule("nightly")).schedule.revision
        await app.operate.edit_schedule_async("nightly", edited, revision=revision, **SAID)
        assert (await app.apply_async()).changed == []
    assert fingerprints_in(file)["nightly"] == OLD["code"]["nightly"], "the older release finds its own"


async def test_the_older_release_finds_its_name_and_its_fingerprints(tmp_path: Path) -> None:
    file = recorded_file(tmp_path)
    async with opened(file) as (app, _):
        await app.apply_async()
    with opened_file(file) as connection:
        rows = connection.execute("SELECT release, declares, format, age FROM declared").fetchall()
    [(release, declares, format, age)] = rows
    assert (release, json.loads(str(declares)), format, age) == (OLD["release"], OLD["code"], FORMAT, None)


async def test_encrypted_arguments_are_compared_in_the_clear(tmp_path: Path) -> None:
    file, key = tmp_path / "foliot.db", new_key()

    async def applied(region: str) -> Applied:
        app = Foliot(f"sqlite:///{file}", encryption=key)

        @app.job
        def report(region: str) -> None: ...

        for name in ("edited", "plain"):
            app.schedule(name, report, every("1h"), args={"region": region})
        found = await app.apply_async()
        store = await app.opened()
        if found.created:
            await store.register("worker", version="", queues=(), slots=1, jobs=[report.handler.card()])
            await app.operate.edit_schedule_async("edited", {"rule": "every 2h"}, revision=1, **SAID)
        await app.close_async()
        return found

    def made_older() -> None:
        with opened_file(file) as connection:
            connection.execute("UPDATE schedule SET fingerprint = 'other ' || id")

    await applied("west")
    made_older()
    again = await applied("west")
    assert (again.changed, sorted(again.unchanged)) == ([], ["edited", "plain"])
    made_older()
    changed = await applied("east")
    assert (sorted(changed.changed), changed.overwritten) == (["edited", "plain"], ["edited"])


async def test_a_stored_rrule_keeps_its_policy_while_old_and_new_releases_apply_by_turns(tmp_path: Path) -> None:
    """Releases of format 1 give an RRULE without a policy that of Vixie; this release gives it that of RFC 5545."""
    file, changed_policy = tmp_path / "store.db", '"gap":"shift_forward"'
    before_the_gap = parse_rfc3339("2026-03-28T12:00:00Z")

    def meeting(**policy: str) -> Foliot:
        app = Foliot(f"sqlite:///{file}", clock=ManualClock(before_the_gap))

        @app.job
        def meet() -> None: ...

        for name in ("meeting", "edited"):
            rule = rrule("FREQ=DAILY;BYHOUR=2;BYMINUTE=30", tz="Europe/Paris", **policy)
            app.schedule(name, meet, rule)
        return app

    app = meeting(preset="vixie")
    await app.apply_async()
    revision = (await (await app.opened()).schedule("edited")).schedule.revision
    await app.operate.edit_schedule_async("edited", {"attempts": 9}, revision=revision, **SAID)
    await app.close_async()
    for _ in range(2):
        with opened_file(file) as connection:  # as a release of format 1 leaves it: here it has the same hashes
            connection.execute("UPDATE schedule SET declared_format = 1")
            connection.create_scalar_function("foliot_now", lambda *_: before_the_gap)
            connection.execute("DELETE FROM run WHERE schedule = 'meeting'")
        app = meeting()
        applied = await app.apply_async()
        assert (sorted(applied.unchanged), applied.changed, applied.overwritten) == (["edited", "meeting"], [], [])
        views = await views_of(await app.opened())
        older = {one.id: replace(one, format=1) for one in meeting(preset="vixie").declarations()}
        for name, view in views.items():
            assert changed_policy not in view.schedule.rule
            assert view.schedule.format == FORMAT
            assert is_applied(older[name], view.schedule.applied), "the older release finds its declaration"
            assert view.next_id == f"{name}@2026-03-29T01:00:00Z", "the tick of the stored rule"
        assert views["edited"].edit is not None
        await app.close_async()
    app = meeting(preset="vixie")  # the declaration states a policy now: it did not before
    assert sorted((await app.apply_async()).changed) == ["edited", "meeting"]
    await app.close_async()
    app = meeting()
    assert sorted((await app.apply_async()).changed) == ["edited", "meeting"]
    assert all(changed_policy in view.schedule.rule for view in (await views_of(await app.opened())).values())
    await app.close_async()


async def test_a_chosen_policy_of_an_older_release_is_no_change(tmp_path: Path) -> None:
    """Format 0 writes the chosen and the default policy alike here, so the content shows that nothing changed."""
    app = Foliot(f"sqlite:///{tmp_path / 'store.db'}", clock=ManualClock(NOW))

    @app.job
    def meet() -> None: ...

    app.schedule("meeting", meet, rrule("FREQ=DAILY;BYHOUR=2", tz="Europe/Paris", gap="shift_forward"))
    await app.apply_async()
    store = await app.opened()
    revision = (await store.schedule("meeting")).schedule.revision
    await app.operate.edit_schedule_async("meeting", {"attempts": 9}, revision=revision, **SAID)
    with opened_file(tmp_path / "store.db") as connection:
        connection.execute(
            "UPDATE schedule SET declared_format = 1, declared = 'older', fingerprint = 'older', declared_for = 'older'"
        )
    assert (await app.apply_async()).unchanged == ["meeting"]
    assert (await store.schedule("meeting")).edit is not None
    await app.close_async()
