"""A set of members that schedules go over: `over=` makes one run per member and tick. It can change at any time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from foliot.domain.identity import checked_line, checked_name
from foliot.domain.members import PAGE, Member, MembersChanged, checked_keys, refuse_nobody
from foliot.domain.store import Store
from foliot.portal import Portal

ACTOR = "app"
"""Who changes a set where nobody says so."""


class _App(Protocol):
    """What a set needs of its app."""

    @property
    def portal(self) -> Portal: ...

    @property
    def opened(self) -> Callable[[], Awaitable[Store]]: ...


class Members:
    """The set, wherever its members are stored. Each verb is durable when it returns, and has an `_async` twin."""

    def __init__(self, app: _App, name: str, declared: Iterable[str] | None = None) -> None:
        self.name = checked_name(name, "member set")
        self.declared = None if declared is None else checked_keys(declared)
        """What code says of it; None when that says nothing."""
        self._app = app

    def __repr__(self) -> str:
        return f"<members {self.name}>"

    async def add_async(self, *members: str, actor: str = ACTOR, reason: str = "") -> MembersChanged:
        """From now on each tick has a run for these, too; also one that is making its runs, and has not come so far."""
        keys, who, why = checked_keys(members), checked_line(actor, "actor"), _note(reason)
        return await (await self._app.opened()).change_members(self.name, add=keys, actor=who, note=why)

    def add(self, *members: str, actor: str = ACTOR, reason: str = "") -> MembersChanged:
        return self._app.portal.call(lambda: self.add_async(*members, actor=actor, reason=reason), "add_async")

    async def remove_async(self, *members: str, actor: str = ACTOR, reason: str = "") -> MembersChanged:
        """No tick has runs for these any more. Runs that nobody has begun end as skipped; what runs goes on."""
        keys, who, why = checked_keys(members), checked_line(actor, "actor"), _note(reason)
        return await (await self._app.opened()).change_members(self.name, remove=keys, actor=who, note=why)

    def remove(self, *members: str, actor: str = ACTOR, reason: str = "") -> MembersChanged:
        return self._app.portal.call(lambda: self.remove_async(*members, actor=actor, reason=reason), "remove_async")

    async def set_async(self, members: Iterable[str], *, actor: str = ACTOR, reason: str = "") -> MembersChanged:
        """Brings it to exactly these, as another system knows them. Never to nobody: that is what a question looks like
        that went wrong, and `remove` says it better."""
        keys, who, why = checked_keys(members), checked_line(actor, "actor"), _note(reason)
        refuse_nobody(self.name, keys)
        return await (await self._app.opened()).set_members(self.name, keys, actor=who, note=why)

    def set(self, members: Iterable[str], *, actor: str = ACTOR, reason: str = "") -> MembersChanged:
        return self._app.portal.call(lambda: self.set_async(members, actor=actor, reason=reason), "set_async")

    async def list_async(self) -> list[Member]:
        """All of them, by name."""
        store = await self._app.opened()
        found: list[Member] = []
        while True:
            page = await store.members(self.name, after=found[-1].key if found else "", limit=PAGE)
            found += page
            if len(page) < PAGE:
                return found

    def list(self) -> list[Member]:
        return self._app.portal.call(self.list_async, "list_async")


def _note(reason: str) -> str:
    return checked_line(reason, "reason") if reason else ""
