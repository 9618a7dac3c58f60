"""Lists of runs, live and ended ones together, by the ways that the indexes know; every way is bounded.

A list is merged from *ways*, each of which leads down from the newest number: over all live runs, or only over parked
ones; over all of history, or over that of one schedule. A way says how far down it has looked. What lies above all of
them is known; a page is cut from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from foliot.domain.conditions import Condition, all_conditions
from foliot.domain.identity import member_of_series, run_number, schedule_of_series
from foliot.domain.instant import FIRST, LAST
from foliot.domain.listing import BUDGET, NONE, ListedRun, Order, RunFilter, RunPage, checked, cursor_of, read_cursor
from foliot.domain.run import RunView
from foliot.domain.state import PARKED, PENDING, TERMINAL, State
from foliot.store.verbs import watching
from foliot.store.verbs.rows import handed_off, view_of, with_ready
from foliot.store.verbs.transaction import Transaction, longs

_WINDOW = 2_000
"""Numbers that a narrow index is asked for at a time."""
_NAMED = 200
"""Names with one beginning, up to which they are looked up one by one."""
_COMING = 5_000
_ODD = frozenset({State.RECONCILED, State.CANCELLED, State.SKIPPED})
_SPARSE: dict[State, str] = {
    State.RETRYING: "retrying_numbers",
    State.HELD: "held_numbers",
    State.VERIFYING: "checked_numbers",
    **dict.fromkeys(PARKED, "parked_numbers"),
}
"""States that few runs are in, and the index that has their numbers."""
_LIVE = frozenset(State) - TERMINAL
_FLOORS = {
    "list_live": "list_live_floor",
    "list_ended": "list_ended_floor",
    "list_ended_of_schedule": "list_ended_of_schedule_floor",
    "list_ended_of_tenant": "list_ended_of_tenant_floor",
    "list_ended_odd": "list_ended_odd_floor",
}
"""By what is walked, the query that says how far a walk of so many rows leads."""
_LAST = "\U0010ffff"


class _Way(Protocol):
    before: int
    """All that it leads to from here up was looked at."""
    exhausted: bool
    looked: int
    """At how many rows, so far."""

    async def on(self, limit: int) -> list[RunView]:
        """Looks further down; answers what is wanted of it, at most so many."""


class _Walk:
    """Down an index that has the wanted rows among others, a budget at a time."""

    def __init__(self, tx: Transaction, query: str, values: Mapping[str, Any], before: int, *, narrowed: bool) -> None:
        self._tx, self._query, self._values = tx, query, values
        self._narrowed = narrowed
        self.before, self.exhausted, self.looked = before, False, 0

    async def on(self, limit: int) -> list[RunView]:
        # Where all of them are wanted, so many are enough. A range that is known to be short is planned as what it is.
        budget = BUDGET if self._narrowed else limit
        bound = {"before": self.before, "budget": budget}
        [(lowest, count)] = await self._tx.all(_FLOORS[self._query], **bound, **self._values)
        floor, is_end = lowest or 0, count < budget
        self.looked += count if self._narrowed else 0
        bounds = {"before": self.before, "floor": 0 if is_end else floor, "limit": limit}
        views = [view_of(row) for row in await self._tx.all(self._query, **bounds, **self._values)]
        if len(views) == limit:
            self.before = views[-1].number
        else:
            self.before, self.exhausted = floor, is_end
        return views


class _Among:
    """Down a list of numbers that is known, or that an index gives piece by piece."""

    def __init__(
        self,
        tx: Transaction,
        values: Mapping[str, Any],
        before: int,
        *,
        numbers: Iterable[int] | None = None,
        index: str | None = None,
        query: str = "list_live_among",
    ) -> None:
        self._tx, self._values, self._query, self._index = tx, values, query, index
        self._window = 0
        self._numbers = sorted((number for number in numbers or () if number < before), reverse=True)
        self.before, self.exhausted, self.looked = before, index is None and not self._numbers, 0

    async def on(self, limit: int) -> list[RunView]:
        # A little more than a page at first: where most of them are wanted, the rest need not be looked at.
        self._window = min(max(2 * self._window, 4 * limit), _WINDOW)
        piece, is_end = await self._piece()
        if not piece:
            self.exhausted = True
            return []
        self.looked += len(piece)
        bounds = {"before": self.before, "floor": 0, "limit": limit}
        rows = await self._tx.all(self._query, numbers=longs(piece), **bounds, **self._values)
        views = [view_of(row) for row in rows]
        if len(views) == limit:
            self.before = views[-1].number
        else:
            self.before, self.exhausted = piece[-1], is_end
        return views

    async def _piece(self) -> tuple[list[int], bool]:
        if self._index is None:
            left = [number for number in self._numbers if number < self.before]
            return left[: self._window], len(left) <= self._window
        rows = await self._tx.all(self._index, before=self.before, limit=self._window, **self._values)
        return [row[0] for row in rows], len(rows) < self._window


async def page(tx: Transaction, wanted: RunFilter, cursor: str | None, limit: int) -> RunPage:
    checked(wanted, limit)
    after, number = read_cursor(wanted.order, cursor)
    if wanted.order is Order.SOONEST:
        views, following, complete = await _coming(tx, wanted, after, number, limit)
    else:
        views, following, complete = await newest(tx, wanted, number, limit, BUDGET)
    return RunPage(await _with_conditions(tx, views), following, complete)


async def newest(
    tx: Transaction, wanted: RunFilter, before: int, limit: int, budget: int | None
) -> tuple[list[RunView], str | None, bool]:
    """A page, where the next one begins, and whether the search came to its end. No budget: it always does."""
    if not wanted.asked:
        return [], None, True
    look = _Look(tx, wanted)
    ways = await _ways(tx, look, before)
    found: dict[int, RunView] = {}
    while True:
        open_ways = [way for way in ways if not way.exhausted]
        known_down_to = max((way.before for way in open_ways), default=-1)
        known = sorted((number for number in found if number >= known_down_to), reverse=True)
        # Every way has to have come down from where the page began: a page that ends there would begin there again.
        is_spent = budget is not None and sum(way.looked for way in ways) >= budget and known_down_to < before
        if len(known) >= limit or not open_ways or is_spent:
            break
        way = max(open_ways, key=lambda one: one.before)
        found |= {view.number: view for view in await look.wanted_of(await way.on(limit))}
    views = [found[number] for number in known[:limit]]
    if len(known) >= limit:
        more = bool(open_ways) or len(found) > limit
        return views, cursor_of(Order.NEWEST, views[-1]) if more else None, True
    return views, str(known_down_to) if open_ways else None, not open_ways


class _Look:
    """What one question is about: the filter as the queries want it, and what only Python can decide."""

    def __init__(self, tx: Transaction, wanted: RunFilter) -> None:
        self.tx, self.wanted = tx, wanted
        self.asked = wanted.asked
        # `ready` is stored as the pending state it was handed off from, so asking for it asks for those too.
        self.stored = self.asked | (PENDING if State.READY in self.asked else frozenset())
        self.values = _values(wanted, self.stored)
        self._judge: _Judge | None = None

    async def wanted_of(self, views: Sequence[RunView]) -> list[RunView]:
        shown = [view for view in await with_ready(self.tx, list(views)) if view.state in self.asked]
        if not self.wanted.conditions or not shown:
            return shown
        if self._judge is None:
            self._judge = await _Judge.of(self.tx)
        asked = set(self.wanted.conditions)
        return [view for view in shown if asked.intersection(self._judge(view))]


def _values(wanted: RunFilter, stored: Iterable[State]) -> dict[str, Any]:
    return {
        "states": sorted(int(state) for state in stored),
        "series": wanted.series,
        "job": wanted.job,
        "tenant": wanted.tenant,
        "queue": wanted.queue,
        "origins": [int(one) for one in wanted.origins] or None,
        "lanes": [int(one) for one in wanted.lanes] or None,
        "reasons": [str(one) for one in wanted.reasons] or None,
        "nominal_from": wanted.nominal_from,
        "nominal_to": wanted.nominal_to,
        "fire_from": wanted.fire_from,
        "fire_to": wanted.fire_to,
        "prefix": wanted.prefix,
        "needle": wanted.needle,
    }


# Which ways


async def _ways(tx: Transaction, look: _Look, before: int) -> list[_Way]:
    wanted = look.wanted
    if wanted.text is not None and (named := await _number_of(tx, wanted.text)) is not None:
        return _among_both(tx, {**look.values, "needle": None}, before, [named])
    if wanted.prefix is not None:
        bounds = {"prefix": wanted.prefix, "after": wanted.prefix + _LAST}
        numbers = {row[0] for row in await tx.all("named_numbers", limit=_NAMED + 1, **bounds)}
        if len(numbers) <= _NAMED:
            return _among_both(tx, look.values, before, numbers)
    return [*await _live_ways(tx, look, before), *_ended_ways(tx, look, before)]


async def _number_of(tx: Transaction, text: str) -> int | None:
    """Of the run that has this very id."""
    row = await tx.one("number_of", name=text, number=run_number(text))
    return None if row is None else int(row[0])


def _among_both(tx: Transaction, values: Mapping[str, Any], before: int, numbers: Iterable[int]) -> list[_Way]:
    listed = list(numbers)
    return [
        _Among(tx, values, before, numbers=listed, query=query) for query in ("list_live_among", "list_ended_among")
    ]


async def _live_ways(tx: Transaction, look: _Look, before: int) -> list[_Way]:
    """Through the narrowest indexes that have them all."""
    states = look.asked - TERMINAL
    if not states:
        return []
    if look.wanted.schedule not in (None, NONE):
        return [_Among(tx, look.values, before, index="scheduled_numbers")]
    if look.wanted.conditions:
        return await _conditional_ways(tx, look, before, states)
    if State.SCHEDULED in states:
        return [_Walk(tx, "list_live", look.values, before, narrowed=_is_narrowed(look, "", _LIVE))]
    ways: list[_Way] = [
        _Among(tx, look.values, before, index=index) for index in {_SPARSE[one] for one in states & set(_SPARSE)}
    ]
    if State.RUNNING in states:
        ways.append(_Among(tx, look.values, before, numbers=await _claimed(tx)))
    if State.READY in states:
        ways.append(_Among(tx, look.values, before, numbers=await handed_off(tx)))
    return ways


async def _conditional_ways(tx: Transaction, look: _Look, before: int, states: frozenset[State]) -> list[_Way]:
    """Whatever is at work has a claim; what waits and is late is due, or held."""
    ways: list[_Way] = []
    if State.RUNNING in states:
        ways.append(_Among(tx, look.values, before, numbers=await _claimed(tx)))
    if Condition.LATE not in look.wanted.conditions:
        return ways
    due = [row[0] for row in await tx.all("due_numbers", now=tx.now, limit=BUDGET + 1)]
    if len(due) > BUDGET:
        return [_Walk(tx, "list_live", look.values, before, narrowed=True)]
    return [*ways, _Among(tx, look.values, before, numbers=due), _Among(tx, look.values, before, index="held_numbers")]


def _ended_ways(tx: Transaction, look: _Look, before: int) -> list[_Way]:
    states = look.stored & TERMINAL
    if not states or look.wanted.conditions:
        return []
    query, by, known = "list_ended", "", TERMINAL
    if look.wanted.schedule not in (None, NONE):
        query, by = "list_ended_of_schedule", "schedule"
    elif states <= _ODD:
        query, known = "list_ended_odd", _ODD
    elif look.wanted.tenant not in (None, NONE):
        query, by = "list_ended_of_tenant", "tenant"
    return [_Walk(tx, query, look.values, before, narrowed=_is_narrowed(look, by, known))]


def _is_narrowed(look: _Look, by: str, known: frozenset[State]) -> bool:
    """Whether anything is asked beyond what the index knows: then a way through it may be long, and is bounded."""
    rest = replace(look.wanted, states=())
    if by == "schedule":
        rest = replace(rest, schedule=None, member=None)
    elif by == "tenant":
        rest = replace(rest, tenant=None)
    return rest != RunFilter() or not look.stored >= known


async def _claimed(tx: Transaction) -> list[int]:
    return [number for (stored,) in await tx.all("owned_by_workers") for number in tx.unpacked(stored)]


# What is to come


async def _coming(
    tx: Transaction, wanted: RunFilter, after: int, number: int, limit: int
) -> tuple[list[RunView], str | None, bool]:
    """In the order of fire times, a piece of the wheel's way at a time."""
    look = _Look(tx, wanted)
    found: list[RunView] = []
    looked = 0
    # Where all that is to come is wanted, so many are enough.
    is_narrowed = replace(wanted, order=Order.NEWEST, fire_from=FIRST, fire_to=LAST) != RunFilter()
    budget = _COMING if is_narrowed else limit + 1
    if after < wanted.fire_from:
        after, number = wanted.fire_from - 1, _ALL
    while True:
        place = {"after": after, "after_number": number, "budget": budget}
        views = [view_of(row) for row in await tx.all("list_coming", limit=limit, **place, **look.values)]
        end = await tx.one("list_coming_end", fire_to=wanted.fire_to, **place)
        found += await look.wanted_of(views)
        is_end = len(views) < limit and (end is None or end[2] < budget)
        if len(found) > limit or (len(found) == limit and not is_end):
            return found[:limit], cursor_of(Order.SOONEST, found[limit - 1]), True
        if end is None or is_end:
            return found, None, True
        looked += end[2]
        after, number = (views[-1].fire_at, views[-1].number) if len(views) == limit else (end[0], end[1])
        if looked >= BUDGET:
            return found, f"{after}.{number}", False


_ALL = (1 << 63) - 1


# What holds of them beside their states


class _Judge:
    """Tells conditions: by the jobs' policies, by when workers were last heard of, by who runs beside whom."""

    def __init__(self, tx: Transaction, cards: Any, beats: dict[int, int], busy: frozenset[Any]) -> None:
        self._now, self._cards, self._beats, self._busy = tx.now, cards, beats, busy

    @classmethod
    async def of(cls, tx: Transaction) -> _Judge:
        rows = await tx.all("crowded_series", numbers=longs(await _claimed(tx)))
        busy = frozenset((schedule_of_series(row[0]), member_of_series(row[0])) for row in rows)
        beats = {row[0]: row[1] for row in await tx.all("beats")}
        return cls(tx, await watching.jobs(tx), beats, busy)

    def __call__(self, view: RunView) -> tuple[Condition, ...]:
        return all_conditions(view, self._cards, self._beats, self._busy, self._now)


async def _with_conditions(tx: Transaction, views: Sequence[RunView]) -> list[ListedRun]:
    if all(view.state in TERMINAL | PARKED for view in views):
        return [ListedRun(view, ()) for view in views]
    judge = await _Judge.of(tx)
    return [ListedRun(view, judge(view)) for view in views]
