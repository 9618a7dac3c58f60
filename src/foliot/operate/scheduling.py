"""The verbs that make, edit and remove schedules at run time, one by one or from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from foliot.domain.fingerprint import is_declared
from foliot.domain.instant import Instant, rfc3339
from foliot.domain.redaction import Secrets
from foliot.domain.schedule import Applied, Declaration, Schedule, ScheduleView
from foliot.domain.store import Store
from foliot.errors import Conflict, InvalidInput, TickTaken
from foliot.operate.acting import Acting, acting, stated
from foliot.operate.advising import traits_of
from foliot.operate.crontab import SOURCE as CRONTAB
from foliot.operate.shapes import Shape
from foliot.operate.stating import (
    FieldChange,
    Ticks,
    check_requires,
    edited_schedule,
    stated_schedule,
    ticks_of,
    told_changes,
)
from foliot.timing import decode
from foliot.timing.ticks import armed, standing

OPERATOR = "operator"
"""The source of schedules that were made one by one."""
_NO_FILE = {
    OPERATOR: "the source of schedules that operators created one by one",
    "code": "the source of schedules that an app declares",
    CRONTAB: "the source of schedules imported from a crontab",
}
"""Sources of which no list says all: to apply one as if it did would remove the rest."""
MOST_STATED = 10_000
_TRIES = 10_000


class Planned(NamedTuple):
    """What becomes of one schedule."""

    schedule: str
    outcome: str
    """`created`, `changed`, `unchanged`, `pruned`, `vanished` (it stays, because nobody said that it shall go), or
    `refused`."""
    fields: list[FieldChange]
    ticks: Ticks
    revision: int | None = None
    """The one that it has, or had before this."""
    problem: str | None = None
    """Why it is refused; or what gives way to it."""


class ScheduleVerbs(Acting):
    """Standing rules, as operators state them."""

    async def put_schedule_async(self, given: Mapping[str, Any], *, reason: str, actor: str) -> Planned:
        """Makes a schedule: `{"name": ..., "job": ..., "rule": "0 2 * * *", "tz": ..., "args": {...}, ...}` with
        settings of the policy beside these. The job must be known to the store.

        Said again, nothing happens. Conflict when there is another one of that name: edit it."""
        self._check_addresses([given])
        store, who, why = await self._stored(), acting(actor), stated(reason)
        [planned] = await _planned(store, [given], OPERATOR, prune=False)
        if planned.outcome == "changed":
            raise Conflict(
                f"a schedule {planned.schedule!r} exists already and differs "
                f"({', '.join(change.field for change in planned.fields)}); edit it, from revision "
                f"{planned.revision}"
            )
        if planned.outcome == "refused":
            raise Conflict(planned.problem or "")
        if planned.outcome == "created":
            await _applied(store, await _declared(store, [given]), source=OPERATOR, actor=who, note=why, fresh=True)
        return planned

    def put_schedule(self, given: Mapping[str, Any], *, reason: str, actor: str) -> Planned:
        return self._call(lambda: self.put_schedule_async(given, reason=reason, actor=actor), "put_schedule_async")

    async def preview_put_async(self, given: Mapping[str, Any]) -> Planned:
        """What `put_schedule` would do now. Nothing is changed."""
        self._check_addresses([given])
        [planned] = await _planned(await self._stored(), [given], OPERATOR, prune=False)
        return planned

    async def preview_edit_async(self, schedule: str, given: Mapping[str, Any]) -> Planned:
        """What `edit_schedule` would change now, and which ticks come before and after. Nothing is changed."""
        self._check_addresses([given])
        planned, _ = await _edit(await self._stored(), schedule, given)
        return planned

    def preview_edit(self, schedule: str, given: Mapping[str, Any]) -> Planned:
        return self._call(lambda: self.preview_edit_async(schedule, given), "preview_edit_async")

    async def edit_schedule_async(
        self, schedule: str, given: Mapping[str, Any], *, revision: int, reason: str, actor: str
    ) -> Planned:
        """Changes what is given: `rule` (a text or a rule object), `tz` with it, `args`, `bind`, `queue`, `priority`,
        `tenant`, `owner`, `runbook`, `changes`, and settings of the policy. None takes a setting back to the job's.
        Cron text and RRULEs keep the zone of the rule before unless `tz` is given, and its gap, fold and interval_like.

        `revision` is the one that was looked at: Conflict, which says who changed what, when it is no longer that one.
        What is so already is not changed again, whatever the revision."""
        self._check_addresses([given])
        store, who, why = await self._stored(), acting(actor), stated(reason)
        for _ in range(_TRIES):
            planned, wanted = await _edit(store, schedule, given)
            if planned.outcome == "unchanged":
                return planned
            changed = [change.field for change in planned.fields]
            note = f"{', '.join(changed)}: {why}"
            try:
                made = await store.edit(wanted, revision, fields=changed, actor=who, note=note)
            except TickTaken:  # fired between our look and our word
                continue
            return planned._replace(revision=made)
        raise Conflict("the schedule kept firing while it was edited; edit it again")

    def edit_schedule(
        self, schedule: str, given: Mapping[str, Any], *, revision: int, reason: str, actor: str
    ) -> Planned:
        return self._call(
            lambda: self.edit_schedule_async(schedule, given, revision=revision, reason=reason, actor=actor),
            "edit_schedule_async",
        )

    async def preview_apply_async(
        self, given: Sequence[Mapping[str, Any]], *, source: str, prune: bool = False
    ) -> list[Planned]:
        """What `apply_schedules` would do now. Nothing is changed."""
        planned = await _planned(await self._stored(), given, _of_a_list(source), prune=prune)
        self._check_addresses(given)
        return planned

    async def apply_schedules_async(
        self, given: Sequence[Mapping[str, Any]], *, source: str, reason: str, actor: str, prune: bool = False
    ) -> list[Planned]:
        """Brings the schedules of a source to what it says now: all of them or none. One that is as it was stated last
        is left alone, with what operators edited of it. With `prune`, those that the source stated once and no longer
        does are removed; those of others never are. Conflict when one belongs to another source.

        InvalidInput for the sources `operator`, `code` and `crontab`: what those hold no list states whole."""
        source = _of_a_list(source)
        store, who, why = await self._stored(), acting(actor), stated(reason)
        planned = await _planned(store, given, source, prune=prune)
        self._check_addresses(given)
        for one in planned:
            if one.outcome == "refused":
                raise Conflict(one.problem or "")
        await _applied(store, await _declared(store, given), source=source, actor=who, note=why, prune=prune)
        return planned

    def apply_schedules(
        self, given: Sequence[Mapping[str, Any]], *, source: str, reason: str, actor: str, prune: bool = False
    ) -> list[Planned]:
        return self._call(
            lambda: self.apply_schedules_async(given, source=source, reason=reason, actor=actor, prune=prune),
            "apply_schedules_async",
        )

    async def import_schedules_async(self, declarations: Sequence[Declaration], *, source: str, actor: str) -> Applied:
        """Creates schedules, or brings them to what `source` says now. Each begins with its first tick after now.

        Conflict when one of them exists and belongs to another source, such as code.
        """
        store, who = await self._opened(), acting(actor)
        known = {view.schedule.id: view.schedule for view in await store.schedules()}
        for one in declarations:
            if one.id in known and known[one.id].source != source:
                raise Conflict(f"{_belongs(known[one.id])}; choose another name")
        return await _applied(store, declarations, source=source, actor=who)

    def import_schedules(self, declarations: Sequence[Declaration], *, source: str, actor: str) -> Applied:
        return self._call(
            lambda: self.import_schedules_async(declarations, source=source, actor=actor), "import_schedules_async"
        )

    async def delete_async(self, schedule: str, *, reason: str, actor: str, revision: int | None = None) -> None:
        """Removes a schedule and its pending run; its history stays. What code declares comes back with the code.
        Conflict when it is not at the `revision` that is given."""
        store = await self._opened()
        await store.delete(schedule, actor=acting(actor), note=stated(reason), revision=revision)

    def delete(self, schedule: str, *, reason: str, actor: str, revision: int | None = None) -> None:
        self._call(lambda: self.delete_async(schedule, reason=reason, actor=actor, revision=revision), "delete_async")


def planned_shape(planned: Planned) -> Shape:
    return {
        "id": planned.schedule,
        "outcome": planned.outcome,
        "revision": planned.revision,
        "changed": [change._asdict() for change in planned.fields],
        "ticks_before": [rfc3339(tick) for tick in planned.ticks.before],
        "ticks_after": [rfc3339(tick) for tick in planned.ticks.after],
        "problem": planned.problem,
    }


def _of_a_list(source: str) -> str:
    """A source whose schedules a list may state, all of them."""
    if source in _NO_FILE:
        raise InvalidInput(
            f"source={source!r}: that is {_NO_FILE[source]}, and cannot be replaced by a list; give the list its "
            "own source, such as file:schedules.toml"
        )
    return source


def _belongs(schedule: Schedule) -> str:
    return f"a schedule {schedule.id!r} exists already, declared by {schedule.source}"


async def _edit(store: Store, schedule: str, given: Mapping[str, Any]) -> tuple[Planned, Declaration]:
    """What an edit changes of a schedule as it is now, with the first tick that follows. What it does not change is
    written back as it was read: with its secrets, of which nothing is told."""
    known, now = (await store.schedule(schedule)).schedule, await store.now()
    card = (await store.jobs()).get(known.job)
    wanted = edited_schedule(known, given, card)
    if wanted.policy.requires != known.policy.requires:
        check_requires(schedule, wanted.policy.requires, {view.schedule.id for view in await store.schedules()})
    changes = told_changes(known, wanted, traits_of(card).secrets)
    outcome = "changed" if changes else "unchanged"
    planned = Planned(schedule, outcome, changes, ticks_of(known, wanted, now), known.revision)
    begin = max(now, known.evaluated_through or 0)
    return planned, armed(wanted, decode(wanted.rule), begin, known)


async def _declared(store: Store, given: Sequence[Mapping[str, Any]]) -> list[Declaration]:
    """All of them, or an error that says of which one it speaks."""
    if not isinstance(given, list | tuple) or len(given) > MOST_STATED:
        raise InvalidInput(f"give a list of at most {MOST_STATED:,} schedules")
    cards, sets = await store.jobs(), [one.name for one in await store.member_sets()]
    found: dict[str, Declaration] = {}
    for one in given:
        declared = stated_schedule(one, cards, sets)
        if declared.id in found:
            raise InvalidInput(f"schedule {declared.id!r} occurs twice in the list; list it once")
        found[declared.id] = declared
    if any(one.policy.requires is not None for one in found.values()):
        known = {*found, *(view.schedule.id for view in await store.schedules())}
        for declared in found.values():
            check_requires(declared.id, declared.policy.requires, known)
    return list(found.values())


async def _planned(store: Store, given: Sequence[Mapping[str, Any]], source: str, *, prune: bool) -> list[Planned]:
    declared, now = await _declared(store, given), await store.now()
    secrets = {name: traits_of(card).secrets for name, card in (await store.jobs()).items()}
    known = {view.schedule.id: view for view in await store.schedules()}
    stated_now = {one.id for one in declared}
    planned = [_plan(one, known.get(one.id), source, now, secrets[one.job]) for one in declared]
    for name, view in known.items():
        if view.schedule.source == source != OPERATOR and name not in stated_now:
            outcome = "pruned" if prune else "vanished"
            planned.append(Planned(name, outcome, [], ticks_of(view.schedule, None, now), view.schedule.revision))
    return planned


def _plan(one: Declaration, view: ScheduleView | None, source: str, now: Instant, secrets: Secrets) -> Planned:
    if view is None:
        return Planned(one.id, "created", [], ticks_of(None, one, now))
    known = view.schedule
    ticks = ticks_of(known, one, now)
    if known.source != source:
        return Planned(one.id, "refused", [], ticks, known.revision, f"{_belongs(known)}; change it there")
    if is_declared(one, known, None if view.edit is None else view.edit.fields):
        problem = None if view.edit is None else (f"keeps the edit by {view.edit.actor}: {', '.join(view.edit.fields)}")
        return Planned(one.id, "unchanged", [], ticks._replace(after=ticks.before), known.revision, problem)
    gives_way = (
        None if view.edit is None else (f"replaces the edit by {view.edit.actor}: {', '.join(view.edit.fields)}")
    )
    return Planned(one.id, "changed", told_changes(known, one, secrets), ticks, known.revision, gives_way)


async def _applied(
    store: Store,
    declarations: Sequence[Declaration],
    *,
    source: str,
    actor: str,
    note: str = "",
    prune: bool = False,
    fresh: bool = False,
) -> Applied:
    """Each begins with its first tick after now that nobody decided upon yet."""
    now = await store.now()
    known = {view.schedule.id: view.schedule for view in await store.schedules()}

    def first(one: Declaration, after: Instant) -> Declaration:
        before = known.get(one.id)
        begin = max(after, (before and before.evaluated_through) or 0)
        return armed(one, decode(one.rule), begin, before)

    wanted = {one.id: first(one, now) for one in declarations}
    for _ in range(_TRIES):
        try:
            return await store.apply(
                list(wanted.values()),
                prune=prune,
                actor=actor,
                source=source,
                note=note,
                fresh=fresh,
                standing=standing(wanted.values(), known),
            )
        except TickTaken as taken:  # fired between our look and our word, or before the schedule was removed once
            wanted[taken.schedule] = first(wanted[taken.schedule], taken.nominal)
    raise Conflict("the schedules kept changing while they were applied; apply them again")
