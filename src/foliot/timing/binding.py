"""Arguments that a run gets from its tick: `bind={"day": "tick.date"}`.

A binding is stored with the schedule and travels with each run; what it says is found when it is asked for, so that an
edit, a merged span or a run by hand all say the truth about themselves.

    tick.id                          the run's id
    tick.at, tick.start, tick.end    instants: when the tick is, and its interval [start, end)
    tick.date, tick.time             the date and the time of day of tick.at, in the rule's zone
    tick.start.date, tick.end.time   the same of the others
    member                           whom the run is for, where its schedule goes over many
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta, timezone
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, NamedTuple

from foliot.domain.instant import SECOND, Instant, to_datetime
from foliot.errors import InvalidInput
from foliot.timing.zones import zone

_MOMENTS = ("at", "start", "end")
_PARTS = ("date", "time")
MEMBER = "member"
KNOWN = (
    MEMBER,
    "tick.id",
    *(f"tick.{part}" for part in _PARTS),
    *(f"tick.{moment}" for moment in _MOMENTS),
    *(f"tick.{moment}.{part}" for moment in _MOMENTS for part in _PARTS),
)


class Tick(NamedTuple):
    """What bindings are about."""

    id: str
    at: Instant
    since: Instant | None
    """Where the interval begins; None when the run has none."""
    tz: str
    member: str | None = None


class Binding(NamedTuple):
    """By argument, what it is bound to."""

    arguments: tuple[tuple[str, str], ...]
    tz: str

    def values(self, id: str, at: Instant, since: Instant | None, member: str | None = None) -> dict[str, str]:
        """The arguments as text that JSON holds; InvalidInput when one is asked for that the run does not have."""
        tick = Tick(id, at, since, self.tz, member)
        return {argument: _value(source, tick) for argument, source in self.arguments}

    def encoded(self) -> dict[str, Any]:
        """As the run's options hold it."""
        return {"bind": dict(self.arguments), "tz": self.tz}


def binding(bind: Mapping[str, str], tz: str) -> Binding:
    """Checks what a user wrote."""
    if not isinstance(bind, Mapping):
        raise InvalidInput(f'bind={bind!r:.80}: give a dict of argument names, as in bind={{"day": "tick.date"}}')
    for argument, source in bind.items():
        if not isinstance(source, str) or source not in KNOWN:
            near = get_close_matches(str(source), KNOWN, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"give one of {', '.join(KNOWN)}"
            raise InvalidInput(
                f"bind: {argument!r:.80} is bound to {source!r:.80}, which is not a field of a tick; {advice}"
            )
    return Binding(tuple((str(argument), source) for argument, source in bind.items()), tz)


@lru_cache(maxsize=10_000)
def binding_in(options: bytes | None) -> Binding | None:
    """The binding among a run's options; None when there is none. InvalidInput when it cannot be read."""
    if not options or b'"bind"' not in options:
        return None
    try:
        stored = json.loads(options)
        return binding(stored["bind"], stored["tz"]) if "bind" in stored else None
    except (ValueError, TypeError, KeyError, RecursionError) as problem:
        raise InvalidInput(f"the stored binding of arguments is invalid: {problem}") from None


def _value(source: str, tick: Tick) -> str:
    if source == "tick.id":
        return tick.id
    if source == MEMBER:
        if tick.member is None:
            raise InvalidInput(f"{source}: this run has no member; bind it only in a schedule with over=")
        return tick.member
    _, *path = source.split(".")
    moment = path[0] if path[0] in _MOMENTS else "at"
    at = tick.since if moment == "start" else tick.at
    if at is None:
        raise InvalidInput(f"{source}: this run has no interval; bind tick.at instead")
    local = to_datetime(at).astimezone(timezone(timedelta(seconds=zone(tick.tz).offset(at // SECOND))))
    if path[-1] == "date":
        return local.date().isoformat()
    return local.time().isoformat() if path[-1] == "time" else local.isoformat()
