"""Whom schedules go over."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from foliot.operate.members import changed_shape, member_set_shape, member_shape
from foliot.web import models
from foliot.web.api.parts import next_cursor, page, problems, router
from foliot.web.caller import Asking
from foliot.web.fields import Act, Key, Name, Paged, named
from foliot.web.routing import Answered

routes = router("members")

SetName = Annotated[Key, named("Name of the member set", "tenants")]


class MembersBody(Act):
    members: Annotated[list[Name], Field(min_length=1, max_length=10_000)]


@routes.get("/members", response_model=models.Page[models.MemberSet], responses=problems())
async def list_sets(asking: Asking) -> Any:
    """Lists member sets with their sizes and schedules."""
    return page([member_set_shape(one) for one in await asking.operate.member_sets_async()], None)


@routes.get("/members/{members}", response_model=models.Page[models.Member], responses=problems())
async def list_members(asking: Asking, members: SetName, query: Annotated[Paged, Query()]) -> Any:
    """Lists the members of a set by name."""
    found = await asking.operate.members_async(members, after=query.cursor or "", limit=query.limit)
    shapes = [member_shape(one) for one in found]
    return page(shapes, next_cursor(shapes, query.limit, "member"))


@routes.put("/members/{members}", response_model=models.MembersChanged, responses=problems(409, body=True))
async def set_members(asking: Asking, members: SetName, body: MembersBody) -> Any:
    """Replaces the members of a set."""
    changed = await asking.operate.set_members_async(members, body.members, reason=body.reason, actor=asking.actor)
    return Answered(changed_shape(members, changed))


@routes.post("/members/{members}/add", response_model=models.MembersChanged, responses=problems(409, body=True))
async def add_members(asking: Asking, members: SetName, body: MembersBody) -> Any:
    """Adds members. Each later tick of the set's schedules has a run for them."""
    changed = await asking.operate.add_members_async(members, body.members, reason=body.reason, actor=asking.actor)
    return Answered(changed_shape(members, changed))


@routes.post("/members/{members}/remove", response_model=models.MembersChanged, responses=problems(409, body=True))
async def remove_members(asking: Asking, members: SetName, body: MembersBody) -> Any:
    """Removes members. Later ticks have no run for them; active runs continue."""
    changed = await asking.operate.remove_members_async(members, body.members, reason=body.reason, actor=asking.actor)
    return Answered(changed_shape(members, changed))
