"""A store whose values are locked: around any engine, and the same for all.

Locked are arguments (of runs, schedules and backfills), results, checkpoints, and results of effects. Not locked is
what the store decides by, and people find things by: names, keys, tenants, times, states, progress, and error texts,
which are stored without their secrets.

What this process has no key for comes out as it is stored (see `foliot.domain.locking`): schedulers never look at it,
workers put its runs off, and people are shown that it is encrypted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from foliot.domain.ledger import Begun, Effect, EffectState, EffectView
from foliot.domain.listing import RunFilter, RunPage
from foliot.domain.locking import Place, Relocked, Stored, is_shut
from foliot.domain.overview import ParkedRun
from foliot.domain.replay import DeadFilter, DeadLetter
from foliot.domain.run import Claimed, Ending, Kept, Progress, Promised, RunView
from foliot.domain.schedule import Applied, Declaration, Schedule, ScheduleView
from foliot.domain.standing import ScheduleFacts, ScheduleFilter, SchedulePage
from foliot.domain.store import Beat, Offer, OpenTransaction, Store
from foliot.store.keyring import Keyring

_NOTHING = b"{}"
"""No arguments: there is nothing to hide, and most schedules have these."""


def locked_store(store: Store, keys: Keyring) -> Store:
    return cast(Store, LockedStore(store, keys))


class _Locks:
    """What is locked under which name. The names are part of what is stored: a value opens under its own alone."""

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys

    def arguments(self, payload: bytes, job: str) -> bytes:
        return payload if payload == _NOTHING else self._keys.lock(payload, f"arguments:{job}")

    def result(self, result: bytes | None, number: int) -> bytes | None:
        return None if result is None else self._keys.lock(result, f"result:{number}")

    def checkpoint(self, checkpoint: bytes | None, number: int) -> bytes | None:
        return None if checkpoint is None else self._keys.lock(checkpoint, f"checkpoint:{number}")

    def effect(self, result: bytes | None, name: str, key: str) -> bytes | None:
        return None if result is None else self._keys.lock(result, f"effect:{name}:{key}")

    def promise(self, promises: Sequence[Any]) -> list[Any]:
        return [one._replace(payload=self.arguments(one.payload, one.job)) for one in promises]

    def ending(self, ending: Ending) -> Ending:
        if ending.result is not None:
            ending = ending._replace(result=self.result(ending.result, ending.number))
        return ending if ending.report is None else ending._replace(report=self.progress(ending.report))

    def progress(self, progress: Progress) -> Progress:
        if progress.checkpoint is None:
            return progress
        return progress._replace(checkpoint=self.checkpoint(progress.checkpoint, progress.number))


class _Opened:
    """The other way round."""

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys

    def arguments(self, payload: bytes, job: str) -> bytes:
        return self._keys.unlock(payload, f"arguments:{job}")

    def result(self, result: bytes | None, number: int) -> bytes | None:
        return None if result is None else self._keys.unlock(result, f"result:{number}")

    def checkpoint(self, checkpoint: bytes | None, number: int) -> bytes | None:
        return None if checkpoint is None else self._keys.unlock(checkpoint, f"checkpoint:{number}")

    def claimed(self, run: Claimed) -> Claimed:
        payload, checkpoint = self.arguments(run.payload, run.job), self.checkpoint(run.checkpoint, run.number)
        return run._replace(payload=payload, checkpoint=checkpoint)

    def effect(self, view: EffectView) -> EffectView:
        if view.result is None:
            return view
        return view._replace(result=self._keys.unlock(view.result, f"effect:{view.name}:{view.key}"))

    def begun(self, begun: Begun) -> Begun:
        return begun if begun.before is None else begun._replace(before=self.effect(begun.before))

    def run(self, view: RunView) -> RunView:
        return replace(
            view,
            payload=self.arguments(view.payload, view.job),
            result=self.result(view.result, view.number),
            effects=[self.effect(one) for one in view.effects],
        )

    def template(self, schedule: Schedule) -> Schedule:
        return replace(schedule, payload=self.arguments(schedule.payload, schedule.job))

    def schedule(self, view: ScheduleView) -> ScheduleView:
        return replace(view, schedule=self.template(view.schedule))

    def facts(self, facts: ScheduleFacts) -> ScheduleFacts:
        live, parked = (tuple(map(self.run, views)) for views in (facts.live, facts.parked))
        return replace(facts, schedule=self.template(facts.schedule), live=live, parked=parked)


class _Around:
    """Whatever carries no such values goes straight to what is around."""

    def __init__(self, inner: Any, keys: Keyring) -> None:
        self._inner = inner
        self._keys = keys
        self._lock = _Locks(keys)
        self._open = _Opened(keys)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def begin_effect(self, number: int, token: int, effect: Effect) -> Begun:
        return self._open.begun(await self._inner.begin_effect(number, token, effect))

    async def end_effect(
        self, number: int, token: int, effect: Effect, state: EffectState, result: bytes | None, note: str | None
    ) -> None:
        kept = self._lock.effect(result, effect.name, effect.key)
        await self._inner.end_effect(number, token, effect, state, kept, note)

    async def ledger_of(self, number: int) -> list[EffectView]:
        return [self._open.effect(one) for one in await self._inner.ledger_of(number)]


class LockedTransaction(_Around):
    """A transaction in a handler's hands."""

    async def finish(self, worker: int, ending: Ending) -> bool:
        return bool(await self._inner.finish(worker, self._lock.ending(ending)))


class LockedStore(_Around):
    """All verbs that carry values which are locked; `tests/secrets` looks whether one is missing here."""

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keys.names

    def again(self) -> Store | None:
        another = self._inner.again()
        return None if another is None else locked_store(another, self._keys)

    # What goes in

    async def promise(self, promises: Sequence[Any]) -> list[Kept]:
        kept: list[Kept] = await self._inner.promise(self._lock.promise(promises))
        return kept

    async def promise_as(self, promises: Sequence[Any], **more: Any) -> list[Kept]:
        kept: list[Kept] = await self._inner.promise_as(self._lock.promise(promises), **more)
        return kept

    async def promised(self, numbers: Sequence[int]) -> Mapping[int, Promised]:
        found: Mapping[int, Promised] = await self._inner.promised(numbers)
        return {
            number: one._replace(payload=self._open.arguments(one.payload, one.job)) for number, one in found.items()
        }

    def promise_within(self, connection: Any, promises: Sequence[Any]) -> list[Kept]:
        kept: list[Kept] = self._inner.promise_within(connection, self._lock.promise(promises))
        return kept

    async def promise_within_async(self, connection: Any, promises: Sequence[Any]) -> list[Kept]:
        kept: list[Kept] = await self._inner.promise_within_async(connection, self._lock.promise(promises))
        return kept

    async def apply(self, declarations: Sequence[Declaration], **more: Any) -> Applied:
        wanted = [replace(one, payload=self._lock.arguments(one.payload, one.job)) for one in declarations]
        applied: Applied = await self._inner.apply(wanted, read=self._open.arguments, **more)
        return applied

    async def edit(self, edited: Declaration, revision: int, **more: Any) -> int:
        # What is locked with a key that is not here stays as it is.
        payload = edited.payload if is_shut(edited.payload) else self._lock.arguments(edited.payload, edited.job)
        made: int = await self._inner.edit(replace(edited, payload=payload), revision, **more)
        return made

    async def finish(self, worker: int, endings: Sequence[Ending]) -> list[Ending]:
        refused: list[Ending] = await self._inner.finish(worker, [self._lock.ending(one) for one in endings])
        return refused

    async def finish_and_claim(
        self, worker: int, endings: Sequence[Ending], offer: Offer
    ) -> tuple[list[Ending], list[Claimed]]:
        locked = [self._lock.ending(one) for one in endings]
        refused, claimed = await self._inner.finish_and_claim(worker, locked, offer)
        return refused, [self._open.claimed(one) for one in claimed]

    async def beat(
        self, worker: int, progress: Sequence[Progress], *, patient: bool = False, leaving: bool = False
    ) -> Beat:
        said = [self._lock.progress(one) for one in progress]
        beat: Beat = await self._inner.beat(worker, said, patient=patient, leaving=leaving)
        return beat

    # What comes out

    async def claim(self, *wanted: Any, **more: Any) -> list[Claimed]:
        return [self._open.claimed(one) for one in await self._inner.claim(*wanted, **more)]

    async def claim_within(self, *wanted: Any, **more: Any) -> list[Claimed]:
        return [self._open.claimed(one) for one in await self._inner.claim_within(*wanted, **more)]

    def transaction(self, connection: Any = None) -> OpenTransaction:
        return cast(OpenTransaction, LockedTransaction(self._inner.transaction(connection), self._keys))

    async def maybes(self, job: str | None, effect: str | None, limit: int) -> list[tuple[str, EffectView]]:
        return [(run, self._open.effect(one)) for run, one in await self._inner.maybes(job, effect, limit)]

    async def run(self, run_id: str) -> RunView:
        return self._open.run(await self._inner.run(run_id))

    async def runs(self, **wanted: Any) -> list[RunView]:
        return [self._open.run(one) for one in await self._inner.runs(**wanted)]

    async def list_runs(self, wanted: RunFilter, **more: Any) -> RunPage:
        page: RunPage = await self._inner.list_runs(wanted, **more)
        return page._replace(runs=[one._replace(view=self._open.run(one.view)) for one in page.runs])

    async def ended_since(self, position: int, limit: int) -> list[RunView]:
        return [self._open.run(one) for one in await self._inner.ended_since(position, limit)]

    async def runs_between(self, *wanted: Any, **more: Any) -> list[RunView]:
        return [self._open.run(one) for one in await self._inner.runs_between(*wanted, **more)]

    async def next_pending(self) -> RunView | None:
        found = await self._inner.next_pending()
        return None if found is None else self._open.run(found)

    async def dead(self, wanted: DeadFilter, **more: Any) -> list[DeadLetter]:
        return [one._replace(view=self._open.run(one.view)) for one in await self._inner.dead(wanted, **more)]

    async def schedules(self) -> list[ScheduleView]:
        return [self._open.schedule(one) for one in await self._inner.schedules()]

    async def schedule(self, schedule_id: str) -> ScheduleView:
        return self._open.schedule(await self._inner.schedule(schedule_id))

    async def templates(self, names: Sequence[str] | None = None) -> list[Schedule]:
        return [self._open.template(one) for one in await self._inner.templates(names)]

    async def schedule_page(self, wanted: ScheduleFilter, **more: Any) -> SchedulePage:
        page: SchedulePage = await self._inner.schedule_page(wanted, **more)
        return page._replace(schedules=[self._open.facts(one) for one in page.schedules])

    async def schedule_facts(self, schedule: str, **more: Any) -> ScheduleFacts:
        return self._open.facts(await self._inner.schedule_facts(schedule, **more))

    async def failing(self, limit: int, tenant: str | None = None) -> list[ScheduleFacts]:
        return [self._open.facts(one) for one in await self._inner.failing(limit, tenant)]

    async def parked(self, numbers: Sequence[int]) -> list[ParkedRun]:
        return [one._replace(view=self._open.run(one.view)) for one in await self._inner.parked(numbers)]

    # Keys that change

    async def relock(self, place: Place, after: int | str, limit: int, *, dry_run: bool = False) -> Relocked:
        found: list[Stored] = await self._inner.stored(place, after, limit)
        anew = [(one, self._anew(place, one)) for one in found]
        changes = [(before, now) for before, now in anew if now is not None and now != before]
        changed = len(changes) if dry_run else await self._inner.store_anew(place, changes)
        shut = sum(now is None for _, now in anew)
        return Relocked(
            len(found), changed, len(changes) - changed, shut, found[-1].position if len(found) == limit else None
        )

    def _anew(self, place: Place, row: Stored) -> Stored | None:
        """The row with all that is in it locked by the first key; None when some of it does not open."""
        number, about = row.number, row.about
        if place is Place.EFFECTS:
            names = {"result": f"effect:{about}"}
        else:
            names = {
                "payload": f"arguments:{about}",
                "checkpoint": f"checkpoint:{number}",
                "result": f"result:{number}",
            }
        found: dict[str, Any] = {}
        for field, name in names.items():
            value: bytes | None = getattr(row, field)
            if value is None or value == _NOTHING or self._keys.is_newest(value):
                continue
            plain = self._keys.unlock(value, name)
            if is_shut(plain):
                return None
            found[field] = self._keys.lock(plain, name)
        return row._replace(**found)
