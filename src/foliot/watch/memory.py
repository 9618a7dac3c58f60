"""What the watch knows from one look to the next. The store keeps it, so that whoever watches next goes on with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from foliot.domain.alerts import Brewing, brewing_from, brewing_to
from foliot.domain.instant import MINUTE, Instant

MINUTES_KEPT = 70


@dataclass(slots=True)
class Series:
    """A number by the minute, for the last hour and a little more."""

    by_minute: dict[int, int] = field(default_factory=dict)

    def add(self, now: Instant, count: int) -> None:
        minute = now // MINUTE
        self.by_minute[minute] = self.by_minute.get(minute, 0) + count
        self._tidy(minute)

    def put(self, now: Instant, count: int) -> None:
        """Of a number that is not summed up: the last one of each minute counts."""
        self.by_minute[now // MINUTE] = count
        self._tidy(now // MINUTE)

    def lower(self, now: Instant, count: int) -> None:
        """Of a number whose growth is asked for: the least one of each minute counts."""
        minute = now // MINUTE
        self.by_minute[minute] = min(count, self.by_minute.get(minute, count))
        self._tidy(minute)

    def sum(self, now: Instant, start: int, end: int) -> int:
        """Of the minutes from `start` to `end` ago."""
        minute = now // MINUTE
        return sum(count for at, count in self.by_minute.items() if minute - end < at <= minute - start)

    def ago(self, now: Instant, minutes: int) -> int | None:
        """What was put so many minutes ago, or the last one before; None when nothing is known from then."""
        at = max((minute for minute in self.by_minute if minute <= now // MINUTE - minutes), default=None)
        return None if at is None else self.by_minute[at]

    def _tidy(self, minute: int) -> None:
        if len(self.by_minute) > MINUTES_KEPT:
            self.by_minute = {at: count for at, count in self.by_minute.items() if minute - MINUTES_KEPT < at <= minute}


@dataclass(slots=True)
class Remembered:
    """All of it."""

    brewing: Brewing = field(default_factory=Brewing)
    ended: int | None = None
    """How far endings were read; None: nothing was, and only what is new counts."""
    events: int | None = None
    schedules_after: str = ""
    parked_after: int = 0
    completions: Series = field(default_factory=Series)
    retrying: Series = field(default_factory=Series)
    dead: Series = field(default_factory=Series)
    useful: dict[str, Instant] = field(default_factory=dict)
    """By job that expects one, its last useful completion; or since when it is expected."""
    failures: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By subject, failures since the last useful result, and the newest run among them."""
    parked: dict[str, list[int]] = field(default_factory=dict)
    """By subject, the newest parked runs that a look has met, in their order."""
    tight: dict[str, int] = field(default_factory=dict)
    """By schedule, how many runs in a row took nearly all of their interval."""
    head: tuple[int, Instant] | None = None
    """The first run that is due and was not handed off, and since when it is this one."""
    checking: dict[int, Instant] = field(default_factory=dict)
    """By number, since when runs are seen to wait for their checks."""
    fallen_from: tuple[int, Instant] | None = None
    """Completions in ten minutes, from before they fell, and since when: what is compared with until they are back."""

    def encoded(self) -> bytes:
        plain = {
            "brewing": brewing_to(self.brewing),
            "ended": str(self.ended) if self.ended is not None else None,
            "events": str(self.events) if self.events is not None else None,
            "schedules_after": self.schedules_after,
            "parked_after": self.parked_after,
            "completions": self.completions.by_minute,
            "retrying": self.retrying.by_minute,
            "dead": self.dead.by_minute,
            "useful": self.useful,
            "failures": self.failures,
            "parked": self.parked,
            "tight": self.tight,
            "head": self.head,
            "checking": self.checking,
            "fallen_from": self.fallen_from,
        }
        return json.dumps(plain, separators=(",", ":")).encode()


def remembered(data: bytes | None) -> Remembered:
    """What `encoded` wrote. What cannot be read, or a newer release wrote otherwise, is begun anew."""
    try:
        plain: dict[str, Any] = json.loads(data or b"{}")
        return Remembered(
            brewing=brewing_from(plain.get("brewing")),
            ended=_whole(plain.get("ended")),
            events=_whole(plain.get("events")),
            schedules_after=str(plain.get("schedules_after", "")),
            parked_after=int(plain.get("parked_after", 0)),
            completions=_series(plain.get("completions")),
            retrying=_series(plain.get("retrying")),
            dead=_series(plain.get("dead")),
            useful={str(job): int(at) for job, at in plain.get("useful", {}).items()},
            failures={str(one): (int(count), int(last)) for one, (count, last) in plain.get("failures", {}).items()},
            parked={str(one): list(map(int, numbers)) for one, numbers in plain.get("parked", {}).items()},
            tight={str(one): int(count) for one, count in plain.get("tight", {}).items()},
            head=_pair(plain.get("head")),
            checking={int(number): int(at) for number, at in plain.get("checking", {}).items()},
            fallen_from=_pair(plain.get("fallen_from")),
        )
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return Remembered()


def _pair(given: Any) -> tuple[int, int] | None:
    return None if given is None else (int(given[0]), int(given[1]))


def _whole(given: Any) -> int | None:
    return None if given is None else int(given)


def _series(given: Any) -> Series:
    return Series({int(minute): int(count) for minute, count in (given or {}).items()})
