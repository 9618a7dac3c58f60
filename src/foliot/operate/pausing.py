"""The verbs that stop things for a while, and workers; of one, or of many by what they have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, TypedDict, Unpack

from foliot.domain.instant import Instant
from foliot.domain.pauses import Pause, What, pause_name, whats_named
from foliot.domain.schedule import ScheduleView
from foliot.domain.store import Store, Wish
from foliot.errors import FoliotError, InvalidInput, UnknownName
from foliot.operate.acting import Acting, acting, as_instant, stated

DEFAULT_WHATS = {"schedule": (What.CREATION,)}
"""What is paused where nobody says it: of a schedule its ticks, of all else whatever would start."""
_OTHERWISE = (What.CLAIMS,)

Progress = Callable[[int], None]


class ScheduleWanted(TypedDict, total=False):
    """Which schedules are meant: each field narrows."""

    job: str | None
    tenant: str | None
    queue: str | None
    owner: str | None
    source: str | None
    prefix: str | None
    """What their names begin with."""


class Steered(NamedTuple):
    """What became of one of many."""

    name: str
    outcome: str
    """`paused`, `resumed`, `unchanged`, `failed`."""
    problem: str | None = None


class PauseVerbs(Acting):
    """What operators stop for a while. Pausing what is paused says anew until when and why; resuming what is not does
    nothing: each can be said twice."""

    async def pause_of_async(
        self,
        kind: str,
        name: str,
        *,
        reason: str,
        actor: str,
        what: Iterable[str] | None = None,
        until: datetime | Instant | None = None,
    ) -> list[Pause]:
        """Pauses a `schedule`, `job`, `queue` or `tenant`: its `creation`, `retries` or `claims`, until it is resumed
        or `until` has come. By default the creation of a schedule's ticks, and the claims of anything else."""
        store, who, why = await self._opened(), acting(actor), stated(reason)
        full, whats = pause_name(kind, name), _whats(kind, what)
        end = await _end(store, until)
        if kind == "job" and name not in await store.jobs():
            raise UnknownName(f"there is no job {name!r}: no worker has registered it; start a worker that has the job")
        return [await store.put_pause(full, one, until=end, actor=who, note=why) for one in whats]

    def pause_of(
        self,
        kind: str,
        name: str,
        *,
        reason: str,
        actor: str,
        what: Iterable[str] | None = None,
        until: datetime | Instant | None = None,
    ) -> list[Pause]:
        return self._call(
            lambda: self.pause_of_async(kind, name, reason=reason, actor=actor, what=what, until=until),
            "pause_of_async",
        )

    async def resume_of_async(
        self,
        kind: str,
        name: str,
        *,
        reason: str,
        actor: str,
        what: Iterable[str] | None = None,
        catch_up: bool = False,
    ) -> list[Pause]:
        """Resumes it, by default all that is paused of it, and answers what was. Ticks that fell due meanwhile are
        skipped, in one row; with `catch_up` they were missed, and each schedule's policy speaks."""
        store, who, why = await self._opened(), acting(actor), stated(reason)
        full, whats = pause_name(kind, name), tuple(What) if what is None else whats_named(what)
        ended = [await store.end_pause(full, one, actor=who, note=why, catch_up=catch_up) for one in whats]
        return [one for one in ended if one is not None]

    def resume_of(
        self,
        kind: str,
        name: str,
        *,
        reason: str,
        actor: str,
        what: Iterable[str] | None = None,
        catch_up: bool = False,
    ) -> list[Pause]:
        return self._call(
            lambda: self.resume_of_async(kind, name, reason=reason, actor=actor, what=what, catch_up=catch_up),
            "resume_of_async",
        )

    async def pauses_async(self) -> list[Pause]:
        """All that is paused now."""
        return await (await self._opened()).pauses()

    def pauses(self) -> list[Pause]:
        return self._call(self.pauses_async, "pauses_async")

    # Many

    async def schedules_meant_async(self, **wanted: Unpack[ScheduleWanted]) -> list[ScheduleView]:
        """Those that a bulk action would be about. InvalidInput when nothing narrows it."""
        return meant(await (await self._opened()).schedules(), wanted)

    async def pause_many_async(
        self,
        *,
        reason: str,
        actor: str,
        what: Iterable[str] | None = None,
        until: datetime | Instant | None = None,
        progress: Progress | None = None,
        **wanted: Unpack[ScheduleWanted],
    ) -> list[Steered]:
        """Pauses each of these schedules by itself. One that fails is reported, and never stops the rest."""
        store, who, why = await self._opened(), acting(actor), stated(reason)
        whats, end = _whats("schedule", what), await _end(store, until)

        async def act(schedule: str) -> str:
            for one in whats:
                await store.put_pause(f"schedule:{schedule}", one, until=end, actor=who, note=why)
            return "paused"

        return await _each(await self.schedules_meant_async(**wanted), act, progress)

    async def resume_many_async(
        self,
        *,
        reason: str,
        actor: str,
        what: Iterable[str] | None = None,
        catch_up: bool = False,
        progress: Progress | None = None,
        **wanted: Unpack[ScheduleWanted],
    ) -> list[Steered]:
        """Resumes each of these schedules by itself, as `pause_many` pauses them."""
        store, who, why = await self._opened(), acting(actor), stated(reason)
        whats = tuple(What) if what is None else whats_named(what)

        async def act(schedule: str) -> str:
            name = f"schedule:{schedule}"
            ended = [await store.end_pause(name, one, actor=who, note=why, catch_up=catch_up) for one in whats]
            return "resumed" if any(ended) else "unchanged"

        return await _each(await self.schedules_meant_async(**wanted), act, progress)

    # Workers

    async def wish_async(self, worker: int, wish: str | None, *, reason: str, actor: str) -> bool:
        """What a worker is to do: `drain` (take nothing, end what runs, leave), `quarantine` (take nothing, stay), or
        None: work again. It hears of it within a second. False when it was told that already."""
        store, who, why = await self._opened(), acting(actor), stated(reason)
        if wish is not None and wish not in set(Wish):
            raise InvalidInput(
                f"{wish!r:.80} is not a state that can be requested of a worker; give one of {', '.join(Wish)}"
            )
        if not isinstance(worker, int) or isinstance(worker, bool) or not 0 <= worker < 1 << 31:
            raise InvalidInput(f"{worker!r:.80} is not a worker's number; see foliot workers list")
        return await store.wish(worker, None if wish is None else Wish(wish), actor=who, note=why)

    def wish(self, worker: int, wish: str | None, *, reason: str, actor: str) -> bool:
        return self._call(lambda: self.wish_async(worker, wish, reason=reason, actor=actor), "wish_async")


def pauses_of(pauses: Iterable[Pause], *names: str) -> list[Pause]:
    """Those of one of these names."""
    return [one for one in pauses if one.name in names]


def brief(pauses: Sequence[Pause]) -> str:
    """`paused (claims, retries)`, or nothing."""
    whats = [str(what) for what in What if any(one.what is what for one in pauses)]
    return f"paused ({', '.join(whats)})" if whats else ""


def meant(views: Iterable[ScheduleView], wanted: ScheduleWanted) -> list[ScheduleView]:
    given = {name: value for name, value in wanted.items() if value is not None}
    if not given:
        raise InvalidInput("no filter is given: select schedules by job, tenant, queue, owner, source or prefix")
    return [view for view in views if all(_fits(view, name, str(value)) for name, value in given.items())]


def _fits(view: ScheduleView, name: str, value: str) -> bool:
    if name == "prefix":
        return view.schedule.id.startswith(value)
    if name == "queue":
        return (view.schedule.queue or "default") == value
    return bool(getattr(view.schedule, name) == value)


async def _each(
    views: Sequence[ScheduleView], act: Callable[[str], Awaitable[str]], progress: Progress | None
) -> list[Steered]:
    results: list[Steered] = []
    for view in views:
        name = view.schedule.id
        try:
            results.append(Steered(name, await act(name)))
        except FoliotError as problem:  # it went meanwhile, or the store could not
            results.append(Steered(name, "failed", str(problem)))
        if progress is not None:
            progress(len(results))
    return results


def _whats(kind: str, given: Iterable[str] | None) -> tuple[What, ...]:
    return DEFAULT_WHATS.get(kind, _OTHERWISE) if given is None else whats_named(given)


async def _end(store: Store, until: datetime | Instant | None) -> Instant | None:
    end = None if until is None else as_instant(until)
    if end is not None and end <= await store.now():
        raise InvalidInput("the pause would end in the past; give a later time")
    return end
