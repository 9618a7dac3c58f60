"""Whom schedules go over: who is added or removed, and how each of them stands."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from foliot.domain.identity import checked_name
from foliot.domain.instant import Duration, Instant, duration
from foliot.domain.members import (
    PAGE,
    Interval,
    Member,
    MembersChanged,
    MemberSet,
    Standing,
    checked_keys,
    completeness,
    refuse_nobody,
)
from foliot.operate.acting import Acting, acting, stated
from foliot.operate.shapes import Shape, moment, seconds


class MemberVerbs(Acting):
    """Add, remove, set; and what is known of members."""

    async def add_members_async(
        self, member_set: str, members: Iterable[str], *, reason: str, actor: str
    ) -> MembersChanged:
        """From now on each tick of the schedules over this set has a run for these, too."""
        name, keys = checked_name(member_set, "member set"), checked_keys(members)
        store = await self._opened()
        return await store.change_members(name, add=keys, actor=acting(actor), note=stated(reason))

    def add_members(self, member_set: str, members: Iterable[str], *, reason: str, actor: str) -> MembersChanged:
        return self._call(
            lambda: self.add_members_async(member_set, members, reason=reason, actor=actor), "add_members_async"
        )

    async def remove_members_async(
        self, member_set: str, members: Iterable[str], *, reason: str, actor: str
    ) -> MembersChanged:
        """No tick has runs for these any more. Runs that nobody has begun end as skipped; what runs goes on."""
        name, keys = checked_name(member_set, "member set"), checked_keys(members)
        store = await self._opened()
        return await store.change_members(name, remove=keys, actor=acting(actor), note=stated(reason))

    def remove_members(self, member_set: str, members: Iterable[str], *, reason: str, actor: str) -> MembersChanged:
        return self._call(
            lambda: self.remove_members_async(member_set, members, reason=reason, actor=actor), "remove_members_async"
        )

    async def set_members_async(
        self, member_set: str, members: Iterable[str], *, reason: str, actor: str
    ) -> MembersChanged:
        """Brings the set to exactly these; never to nobody."""
        name, keys = checked_name(member_set, "member set"), checked_keys(members)
        refuse_nobody(name, keys)
        store = await self._opened()
        return await store.set_members(name, keys, actor=acting(actor), note=stated(reason))

    def set_members(self, member_set: str, members: Iterable[str], *, reason: str, actor: str) -> MembersChanged:
        return self._call(
            lambda: self.set_members_async(member_set, members, reason=reason, actor=actor), "set_members_async"
        )

    async def member_sets_async(self) -> list[MemberSet]:
        """All sets, how many each has, and which schedules go over them."""
        return await (await self._opened()).member_sets()

    def member_sets(self) -> list[MemberSet]:
        return self._call(self.member_sets_async, "member_sets_async")

    async def members_async(self, member_set: str, *, after: str = "", limit: int = PAGE) -> list[Member]:
        return await (await self._opened()).members(member_set, after=after, limit=limit)

    def members(self, member_set: str, *, after: str = "", limit: int = PAGE) -> list[Member]:
        return self._call(lambda: self.members_async(member_set, after=after, limit=limit), "members_async")

    async def member_standings_async(
        self, schedule: str, *, older_than: str | timedelta | None = None, after: str = "", limit: int = PAGE
    ) -> list[Standing]:
        """Of each member that a schedule goes over, its last useful completion; with `older_than`, only of those that
        have had none for so long."""
        store = await self._opened()
        before = None if older_than is None else await store.now() - duration(older_than)
        return await store.standings(schedule, after=after, limit=limit, stale_before=before)

    async def worst_served_async(self, schedule: str, *, limit: int = 20) -> list[Standing]:
        """The members of a schedule that have waited longest for a useful completion, the longest first."""
        return await (await self._opened()).worst_served(schedule, limit=limit)

    def worst_served(self, schedule: str, *, limit: int = 20) -> list[Standing]:
        return self._call(lambda: self.worst_served_async(schedule, limit=limit), "worst_served_async")

    def member_standings(
        self, schedule: str, *, older_than: str | timedelta | None = None, after: str = "", limit: int = PAGE
    ) -> list[Standing]:
        return self._call(
            lambda: self.member_standings_async(schedule, older_than=older_than, after=after, limit=limit),
            "member_standings_async",
        )


def member_set_shape(found: MemberSet) -> Shape:
    return {"name": found.name, "members": found.members, "schedules": list(found.schedules)}


def member_shape(member: Member) -> Shape:
    return {"member": member.key, "added_at": moment(member.added_at), "source": member.source}


def changed_shape(member_set: str, changed: MembersChanged) -> Shape:
    return {"name": member_set} | changed._asdict()


def age(standing: Standing, now: Instant) -> Duration:
    """How long ago its last useful completion was; or, where there was none yet, since when it is a member."""
    return max(0, now - (standing.added_at if standing.useful_at is None else standing.useful_at))


def standing_shape(standing: Standing, now: Instant) -> Shape:
    return {
        "member": standing.member,
        "added_at": moment(standing.added_at),
        "useful_tick": moment(standing.useful_tick),
        "useful_at": moment(standing.useful_at),
        "age": seconds(age(standing, now)),
    }


def interval_shape(interval: Interval) -> Shape:
    """How complete a tick is in its members."""
    return {
        "done": interval.done,
        "members": interval.members,
        "made": interval.made,
        "states": {str(state): count for state, count in sorted(interval.states.items())},
        "lacking": [one._asdict() | {"state": str(one.state)} for one in interval.lacking],
    }


def interval_words(interval: Interval) -> str:
    more = "" if interval.made else ", and more are being created"
    return completeness(interval.states) + more
