"""Schedules over many members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from foliot.domain.instant import Instant
from foliot.domain.members import Member, MembersChanged, MemberSet
from foliot.domain.members import Standing as MemberStanding


class MemberStore(Protocol):
    """Whom schedules go over, and how complete they are.

    A tick of a schedule over a set of members makes a run for each of them, in chunks, each in a firing transaction of
    its own, and none twice: `health@T[acme]`. Those fire like other runs, and whatever is decided about them (overlap,
    turns) is decided among runs of the same member. The tick waits until no run of its members is under way."""

    async def members(self, member_set: str, *, after: str = "", limit: int = 1_000) -> list[Member]:
        """By their keys, after one."""

    async def member_sets(self) -> list[MemberSet]:
        """Those that have members, or that schedules go over."""

    async def change_members(
        self, member_set: str, *, add: Sequence[str] = (), remove: Sequence[str] = (), actor: str, note: str
    ) -> MembersChanged:
        """Adds and removes members; what is so already stays so. Ticks that have not come to a new member's key yet
        make a run for it, too. Runs of a removed one that nobody has begun end as skipped, `revised`."""

    async def set_members(self, member_set: str, keys: Sequence[str], *, actor: str, note: str) -> MembersChanged:
        """Brings a set to exactly these."""

    async def declare_members(self, member_set: str, keys: Sequence[str], *, prune: bool, actor: str) -> MembersChanged:
        """What code says: adds what is missing. What it said once and no longer does goes with `prune`."""

    async def standings(
        self, schedule: str, *, after: str = "", limit: int = 1_000, stale_before: Instant | None = None
    ) -> list[MemberStanding]:
        """The members that a schedule goes over, by their keys, each with its last useful completion; or only those
        that had none since `stale_before`. UnknownName if there is no such schedule; Conflict if it goes over none."""

    async def worst_served(self, schedule: str, *, limit: int) -> list[MemberStanding]:
        """Those of them that have waited longest for a useful completion: since the last one, or since they were added.
        Refuses as `standings` does."""

    async def gather(self) -> int:
        """Ends ticks whose members have all come to an end, or wait for a person: as verified or unverified where their
        schedule says how complete they have to be, as succeeded otherwise; with how many were done. When no
        run that an operator changed is under way any more, counts the members of an ended tick again. Returns how many
        schedules had ticks to end, plus how many ticks were counted again."""
