"""Follows new rows of the store through the operator's read models, by polling a few times a second."""

from __future__ import annotations

import time
from collections.abc import Iterable

from foliot.cli import account
from foliot.cli.account import Line
from foliot.cli.words import clock_time, relative
from foliot.domain.instant import SECOND, Duration, Instant
from foliot.domain.run import RunView
from foliot.domain.state import PARKED, State
from foliot.domain.store import EventRow
from foliot.operate import Operator

LONG: Duration = SECOND
"""A run that takes longer gets a line while it runs."""

_PAGE = 1_000
_MOST_PAGES = 10
"""Of one look. Beyond that the account would fall behind; then it says how much it left out."""
_LIVE = 200
_KNOWN = 20_000
_SHARE = 20
"""A poll of live runs may read many rows: polls take at most this fraction (1/_SHARE) of the time."""


class Follower:
    """Remembers the positions it has read, and the lines it has made for live runs."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._ended = 0
        self._events = 0
        self._known: dict[tuple[int, State, int], None] = {}
        self._live_after = 0.0

    async def begin(self) -> None:
        """What is there already is not news."""
        self._ended, self._events = await self._operator.last_positions_async()
        for states in ([State.RETRYING], [*PARKED]):
            for view in await self._operator.runs_async(states=states, limit=_KNOWN):
                self._is_new(view)

    async def look(self, now: Instant) -> list[Line]:
        """What happened since the last look, in its order."""
        lines = [account.noticed(event) for event in await self._new_events()]
        lines += await self._new_endings(now)
        if time.monotonic() >= self._live_after:
            began = time.monotonic()
            lines += await self._live(now)
            self._live_after = time.monotonic() + _SHARE * (time.monotonic() - began)
        return sorted(lines, key=lambda line: line.at)

    async def _new_events(self) -> list[EventRow]:
        events = await self._operator.events_since_async(self._events, _PAGE)
        if events:
            self._events = events[-1].position
        return events

    async def _new_endings(self, now: Instant) -> list[Line]:
        lines: list[Line] = []
        for _ in range(_MOST_PAGES):
            views = await self._operator.ended_since_async(self._ended, _PAGE)
            lines += [account.ended(view) for view in views]
            if views:
                self._ended = views[-1].position
            if len(views) < _PAGE:
                return lines
        # Positions are in order, and say nothing of how many lie between.
        self._ended, _ = await self._operator.last_positions_async()
        return [*lines, account.note(now, "too many runs end per second to follow: some are not shown")]

    async def _live(self, now: Instant) -> list[Line]:
        """Runs that take long, that are tried again, or that wait for a person."""
        lines: list[Line] = []
        for view in await self._operator.runs_async(states=[State.RUNNING], limit=_LIVE):
            begun = view.started_at or view.claimed_at
            if begun is not None and now - begun > LONG and self._is_new(view):
                lines.append(account.running(view, now))
        for states in ([State.RETRYING], [*PARKED]):
            for view in await self._operator.runs_async(states=states, limit=_LIVE):
                if self._is_new(view):
                    lines += await self._attempted(view, now)
        return lines

    async def _attempted(self, view: RunView, now: Instant) -> Iterable[Line]:
        whole = await self._operator.run_async(view.id)
        if (whole.state, whole.attempt) != (view.state, view.attempt):
            return []  # it changed meanwhile; the next poll shows how
        return [account.parked(whole, now) if whole.state in PARKED else account.retrying(whole, now)]

    def _is_new(self, view: RunView) -> bool:
        key = view.number, view.state, view.attempt
        if key in self._known:
            return False
        self._known[key] = None
        if len(self._known) > 2 * _KNOWN:
            for old in list(self._known)[:_KNOWN]:
                del self._known[old]
        return True

    async def quiet(self, now: Instant) -> Line:
        """A line for a quiet time: counts of waiting runs, and the next due one."""
        counts = await self._operator.counts_async()
        text = ", ".join(f"{counts[state]:,} {state}" for state in _SHOWN if counts.get(state)) or "no runs waiting"
        due = await self._operator.next_pending_async()
        if due is not None:
            text += f"; next due {relative(due.fire_at, now)}: {due.id} at {clock_time(due.fire_at)}"
        shown = {state: counts.get(state, 0) for state in _SHOWN}
        return account.note(now, f"quiet; {text}", kind="quiet", counts=shown)


_SHOWN = ("scheduled", "held", "ready", "running", "retrying", "dead", "ambiguous", "unverified", "settled")
