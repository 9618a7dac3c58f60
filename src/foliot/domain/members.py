"""Fan-out: a schedule over a set of members makes one run per member and tick. Values, and what they are worth.

The tick is a run of its own: it makes the members' runs, and waits for them. What one member's runs have to do with one
another (their overlap, their turn, their last useful completion) is a *series*: `health[acme]`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from foliot.domain.identity import checked_member
from foliot.domain.instant import Duration, Instant
from foliot.domain.state import PARKED, Event, State
from foliot.errors import InvalidInput

DONE = frozenset({State.SUCCEEDED, State.VERIFIED, State.RECONCILED})
"""What a member's run has to come to, for its interval to be complete in it."""


PAGE = 10_000
"""Members that are read in one go."""


class Member(NamedTuple):
    """One of a set."""

    key: str
    added_at: Instant
    source: str
    """`code`, or who added it at run time."""


@dataclass(frozen=True, slots=True)
class MemberSet:
    """A set of members, seen from outside."""

    name: str
    members: int
    schedules: tuple[str, ...] = ()
    """Which go over it."""


class MembersChanged(NamedTuple):
    """What a change did: members that were new, or gone; and their runs that nobody had begun, which ended."""

    added: int
    removed: int
    skipped: int


class Standing(NamedTuple):
    """How one member stands with one schedule."""

    member: str
    added_at: Instant
    useful_tick: Instant | None
    """The nominal time of its last useful run; None when there was none yet."""
    useful_at: Instant | None
    """When that was completed."""


class Lacking(NamedTuple):
    """A member whose run of an interval is not done."""

    member: str
    run: str
    state: State
    reason: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class Interval:
    """One tick of a fan-out, and how complete it is."""

    run: str
    made: bool
    """Whether all of its members' runs have been made."""
    states: Mapping[State, int]
    lacking: list[Lacking] = field(default_factory=list)
    """Some of those that are not done; those that wait for a person first."""

    @property
    def members(self) -> int:
        return sum(self.states.values())

    @property
    def done(self) -> int:
        return done(self.states)


def done(states: Mapping[State, int]) -> int:
    return sum(count for state, count in states.items() if state in DONE)


def is_whole(states: Mapping[State, int]) -> bool:
    return done(states) == sum(states.values())


def completeness(states: Mapping[State, int]) -> str:
    """In words: "39,988 of 40,000; 7 dead, 5 skipped"."""
    detail = f"{done(states):,} of {sum(states.values()):,}"
    rest = [f"{states[state]:,} {state}" for state in sorted(states, reverse=True) if state not in DONE]
    return f"{detail}; {', '.join(rest)}" if rest else detail


def gathered(states: Mapping[State, int], complete: float | None) -> Event:
    """What becomes of a tick when no run of its members is under way any more. Where nobody said how complete it has to
    be, it has been seen through, and says how far it came, unless it came to nothing; otherwise that is its check."""
    if complete is None:
        came_to_nothing = not done(states) and any(state in PARKED for state in states)
        return Event.CHECK_REFUSED if came_to_nothing else Event.GATHERED
    # A share is no whole number: 7 of 100 are 7 percent.
    is_enough = done(states) + _HAIR >= complete * sum(states.values())
    return Event.CHECK_PASSED if is_enough else Event.CHECK_REFUSED


_HAIR = 1e-6


def start_within(name: str, nominal: Instant, room: Duration) -> Instant:
    """A moment from `nominal` to `room` after it, by chance that is the same for everybody who asks."""
    if room <= 0:
        return nominal
    digest = blake2b(f"{name}@{nominal}".encode(), digest_size=8).digest()
    return nominal + int.from_bytes(digest) % (room + 1)


class Spread(NamedTuple):
    """How far a tick has come with its members, in the order of their keys."""

    last: str = ""
    made: int = 0

    def encoded(self) -> bytes:
        return json.dumps({"last": self.last, "made": self.made}).encode()


def spread_from(stored: bytes | None) -> Spread:
    """What cannot be read begins anew; what was made is not made twice, because its name is taken."""
    try:
        found = json.loads(stored or b"{}")
        return Spread(str(found.get("last", "")), int(found.get("made", 0)))
    except (ValueError, AttributeError, TypeError):
        return Spread()


def checked_keys(members: Iterable[str]) -> list[str]:
    """Each once, in the order given."""
    if isinstance(members, str) or not isinstance(members, Iterable):
        raise InvalidInput(f'{members!r:.80} is not a list of members; give names, as in ["acme", "globex"]')
    return list(dict.fromkeys(checked_member(one) for one in members))


def refuse_nobody(member_set: str, keys: Sequence[str]) -> None:
    if not keys:
        raise InvalidInput(f"this list would remove all members of {member_set}; to empty the set, remove them by name")
