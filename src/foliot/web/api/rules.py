"""Rules of time, before they are saved."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from foliot import timing
from foliot.domain.instant import Instant, rfc3339
from foliot.domain.rule import Rule
from foliot.operate.rules import day_shape, explained, explained_shape, shown_zone
from foliot.timing.preview import preview
from foliot.web import models
from foliot.web.api.parts import problems, router
from foliot.web.caller import Asking, Caller
from foliot.web.fields import Asked, Moment, Name
from foliot.web.routing import Answered

routes = router("rules")


class RuleQuery(Asked):
    rule: Annotated[str, Field(min_length=1, max_length=2_000, examples=["0 2 * * *", "every 15m"])]
    tz: Name = "UTC"
    start: Annotated[Moment | None, Field(alias="from", description="Default: now.")] = None
    preset: Name | None = None
    gap: Name | None = None
    fold: Name | None = None
    interval_like: Name | None = None
    seconds: Annotated[bool, Field(description="The first of six cron fields means seconds.")] = False
    year: Annotated[bool, Field(description="The last of six cron fields means years.")] = False
    id: Annotated[Name | None, Field(description="Schedule whose name determines `H`.")] = None

    def parsed(self) -> Rule:
        rule = timing.parse(
            self.rule,
            self.tz,
            preset=self.preset,
            gap=self.gap,
            fold=self.fold,
            interval_like=self.interval_like,
            seconds=self.seconds,
            year=self.year,
        )
        return rule if self.id is None else rule.named(self.id)


class TimesQuery(RuleQuery):
    count: Annotated[int, Field(ge=1, le=1_000)] = 5


class DaysQuery(RuleQuery):
    weeks: Annotated[int, Field(ge=1, le=53)] = 4


async def _begin(asking: Caller, query: RuleQuery) -> Instant:
    return await asking.operate.now_async() if query.start is None else query.start


@routes.get("/rules/next", response_model=models.Times, responses=problems())
async def next_times(asking: Asking, query: Annotated[TimesQuery, Query()]) -> Any:
    """Lists the next ticks of a rule strictly after `from`."""
    after = await _begin(asking, query)
    ticks = await asyncio.to_thread(lambda: timing.upcoming(query.parsed(), after, query.count))
    return Answered({"next": [rfc3339(tick) for tick in ticks]})


@routes.get("/rules/explain", response_model=models.Explained, responses=problems())
async def explain_rule(asking: Asking, query: Annotated[TimesQuery, Query()]) -> Any:
    """Explains a rule in words, with next ticks, DST changes and warnings."""
    after = await _begin(asking, query)
    told = await asyncio.to_thread(
        lambda: explained(query.rule, query.parsed(), after, query.count, query.tz, is_named=query.id is not None)
    )
    return Answered(explained_shape(told))


@routes.get("/rules/preview", response_model=models.Days, responses=problems())
async def preview_rule(asking: Asking, query: Annotated[DaysQuery, Query()]) -> Any:
    """Shows the ticks of a rule on a calendar."""
    after = await _begin(asking, query)

    def look() -> list[dict[str, Any]]:
        rule = query.parsed()
        return [day_shape(day) for day in preview(rule, after, query.weeks * 7, shown_zone(rule, query.tz))]

    return Answered({"days": await asyncio.to_thread(look)})
