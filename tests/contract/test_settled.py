"""Unchanged declarations are recognised in bulk: by their fingerprints, without a statement for each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from foliot import Foliot, after, every
from foliot.domain.instant import HOUR, MINUTE
from foliot.domain.schedule import Release
from foliot.domain.store import Store
from foliot.errors import ScheduleChanged
from foliot.store.postgres.transaction import PostgresTransaction
from foliot.store.sqlite.transaction import SqliteTransaction
from tests.contract.stage import START, Stage, declared

RELEASE = Release("first", "hash")


def an_app(store: Store, stage: Stage, count: int) -> Foliot:
    made = Foliot(store, clock=stage.clock)

    @made.job
    def work() -> None: ...

    for number in range(count):
        made.schedule(f"tick{number}", work, after("10m") if number % 10 == 9 else every("10m"))
    return made


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The statements that are executed meanwhile; one for each row of those that are repeated."""
    executed: list[str] = []
    with monkeypatch.context() as patch:
        for kind in (SqliteTransaction, PostgresTransaction):
            for name in ("run", "all", "one", "run_each"):
                patch.setattr(kind, name, _counted(getattr(kind, name), executed))
        yield executed


def _counted(method: Any, executed: list[str]) -> Any:
    async def called(self: Any, query: str, *rows: Any, **values: Any) -> Any:
        if rows:
            listed = list(rows[0])
            executed.extend([query] * len(listed))
            return await method(self, query, listed)
        executed.append(query)
        return await method(self, query, **values)

    return called


async def test_unchanged_schedules_cost_no_statement_and_no_first_tick_of_their_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = an_app(stage.store, stage, 300)
    assert len((await made.apply_async()).created) == 300
    again = an_app(stage.store, stage, 300)
    monkeypatch.setattr("foliot.app.armed", None)
    with counting(monkeypatch) as executed:
        applied = await again.apply_async()
    assert (len(applied.unchanged), applied.changed, applied.vanished) == (300, [], [])
    assert len(executed) < 30, executed


async def test_one_that_changed_among_many_is_the_only_one_that_is_counted_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await an_app(stage.store, stage, 300).apply_async()
    again = Foliot(stage.store, clock=stage.clock)

    @again.job
    def work() -> None: ...

    for number in range(299):
        again.schedule(f"tick{number}", work, after("10m") if number % 10 == 9 else every("10m"))
    again.schedule("tick299", work, every("20m"))
    with counting(monkeypatch) as executed:
        applied = await again.apply_async()
    assert (len(applied.unchanged), applied.changed) == (299, ["tick299"])
    assert len(executed) < 60, executed


async def test_a_declaration_that_is_settled_and_known_writes_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.store.apply([declared("hourly", START + HOUR)], prune=False, actor="ada", release=RELEASE)
    settled = await stage.store.settled()
    assert settled == {"hourly": "v1"}
    with counting(monkeypatch) as executed:
        applied = await stage.store.apply([], prune=False, actor="ada", release=RELEASE, settled=settled)
    assert applied.unchanged == ["hourly"]
    assert not {"lock_all", "declares", "add_release", "put_schedule"} & set(executed)


async def test_a_release_that_is_new_is_entered_with_what_is_settled(stage: Stage) -> None:
    await stage.store.apply([declared("hourly", START + HOUR)], prune=False, actor="ada", release=RELEASE)
    other = Release("second", "other")
    applied = await stage.store.apply([], prune=False, actor="ada", release=other, settled={"hourly": "v1"})
    assert applied.unchanged == ["hourly"]
    await stage.store.register("scheduler", version="", queues=(), slots=0, jobs=(), release="second")
    applied = await stage.store.apply(
        [declared("hourly", START + HOUR, fingerprint="v0")], prune=False, actor="ada", release=RELEASE
    )
    assert applied.outdated == ["hourly"], "the newer release declares what is stored"


@pytest.mark.parametrize("prune", [False, True])
async def test_what_is_not_settled_any_more_is_refused_and_nothing_changes(stage: Stage, prune: bool) -> None:
    await stage.apply(declared("hourly", START + HOUR), declared("daily", START + 24 * HOUR))
    await stage.apply(declared("hourly", START + HOUR, fingerprint="v2"), declared("daily", START + 24 * HOUR))
    for settled in ({"daily": "v1", "hourly": "v1"}, {"gone": "v1"}):
        with pytest.raises(ScheduleChanged):
            await stage.store.apply([], prune=prune, actor="ada", release=RELEASE, settled=settled)
    assert [one.id for one in await stage.store.templates()] == ["daily", "hourly"]


async def test_schedules_that_vanished_are_told_and_pruned_beside_those_that_are_settled(stage: Stage) -> None:
    await stage.apply(declared("hourly", START + HOUR), declared("old", START + HOUR))
    settled = {"hourly": "v1"}
    applied = await stage.store.apply([], prune=False, actor="ada", release=RELEASE, settled=settled)
    assert (applied.vanished, applied.pruned) == (["old"], [])
    applied = await stage.store.apply([], prune=True, actor="ada", release=RELEASE, settled=settled)
    assert (applied.unchanged, applied.pruned) == (["hourly"], ["old"])


async def test_only_what_needs_nothing_is_settled(stage: Stage) -> None:
    ended = declared("ended", None)
    faulty = declared("faulty", START + HOUR, fault="its holidays end")
    delayed = declared("delayed", None, delay=10 * MINUTE)
    await stage.apply(declared("hourly", START + HOUR), ended, faulty, delayed)
    await stage.store.apply([declared("filed", START + HOUR)], prune=False, actor="ada", source="file")
    await stage.apply(declared("edited", START + HOUR), declared("hourly", START + HOUR))
    await stage.store.edit(declared("edited", START + HOUR, queue="mail"), 1, fields=["queue"], actor="ada", note="why")
    assert await stage.store.settled() == {"hourly": "v1", "delayed": "v1"}
    assert await stage.store.settled("file") == {"filed": "v1"}


async def test_a_schedule_that_changes_after_the_look_is_compared_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = an_app(stage.store, stage, 2)
    await made.apply_async()
    looks: list[dict[str, str]] = []
    look = stage.store.settled

    async def settled(source: str = "code") -> dict[str, str]:
        found = await look(source)
        if not looks:
            await stage.store.delete("tick1", actor="ada", note="meanwhile")
        looks.append(found)
        return found

    monkeypatch.setattr(made.store, "settled", settled, raising=False)
    applied = await made.apply_async()
    assert (applied.unchanged, applied.created) == (["tick0"], ["tick1"])
    assert len(looks) == 2
