"""Who takes which shard: schedulers share them evenly, without a leader and without talking to one another. Pure.

Each looks at the same standing and comes to the same shares: they differ by one at most, and the larger ones are for
those who hold most already, so that a shard moves only when it must. Whoever holds more than its share gives the rest
up; what is free is dealt out to those who hold less, and each takes what was dealt to itself. Two who looked at
different moments may want the same shard: the store lets one of them have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from foliot.domain.instant import MINUTE, SECOND, Duration, Instant
from foliot.domain.store import Standing

LEFT_LYING: Duration = SECOND
"""How long a free shard waits for the one it was dealt to, before another takes it who thereby gets no more than a
large share; after twice that time, anybody takes it."""
KEPT_FOR: Duration = MINUTE
"""How long a shard that was taken for another is kept, as long as the fleet does not change: somebody who lives and
takes nothing must not make it go round in circles."""


class Plan(NamedTuple):
    """What one scheduler does after a look."""

    take: list[int]
    release: list[int]
    is_waiting: bool
    """Others will give up, or are about to lose, what is dealt to this one: look again soon."""


class Balance:
    """One scheduler's part in it, with a memory of what lay free when it looked before."""

    def __init__(self, me: int) -> None:
        self._me = me
        self._free_since: dict[int, Instant] = {}
        self._kept_since: Instant | None = None
        self._fleet: list[int] = []

    def plan(self, standing: Standing, now: Instant) -> Plan:
        """
        1. Count what each living scheduler holds, and what is free.
        2. Take what is dealt to us.
        3. Take also what has been left lying.
        4. Give up what is more than our share, unless we took it because nobody else did.
        """
        held = dict.fromkeys(sorted(standing.schedulers), 0)
        if self._me not in held:
            # The store has declared this instance dead, or untrusted: it is not for us to take part.
            return Plan([], [], False)
        for _, owner in standing.shards:
            if owner in held:
                held[owner] += 1
        free = [shard for shard, owner in standing.shards if owner is None]
        mine = [shard for shard, owner in standing.shards if owner == self._me]
        due = shares(held, len(standing.shards))
        take = dealt(free, held, due)[self._me]
        room = len(standing.shards) // len(held) + 1 - len(mine) - len(take)
        take += self._left_lying([shard for shard in free if shard not in take], max(room, 0), now)
        too_many = len(mine) + len(take) - due[self._me]
        if list(held) != self._fleet:
            self._fleet, self._kept_since = list(held), None
        if take and too_many > 0:
            self._kept_since = now
        if self._kept_since is not None and _passed(self._kept_since, KEPT_FOR, now):
            self._kept_since = None
        release = mine[-too_many:] if too_many > 0 and self._kept_since is None else []
        return Plan(take, release, too_many < 0)

    def _left_lying(self, others: list[int], room: int, now: Instant) -> list[int]:
        """Of the free shards that were dealt to others, those that we take all the same."""
        self._free_since = since = {shard: self._free_since.get(shard, now) for shard in others}
        lying = [shard for shard in others if _passed(since[shard], LEFT_LYING, now)]
        return lying[:room] + [shard for shard in lying[room:] if _passed(since[shard], 2 * LEFT_LYING, now)]


def shares(held: Mapping[int, int], shard_count: int) -> dict[int, int]:
    """How many shards each scheduler should have. The larger shares go to those who hold most, then to the eldest.

    Whoever holds more than a large share counts as holding one: so nobody's share shrinks while others give up theirs.
    """
    small, larger = divmod(shard_count, len(held))
    ranked = sorted(held, key=lambda one: (-min(held[one], small + 1), one))
    return {one: small + (place < larger) for place, one in enumerate(ranked)}


def dealt(free: list[int], held: Mapping[int, int], due: Mapping[int, int]) -> dict[int, list[int]]:
    """Free shards for those who hold less than their share. All are dealt out: what some lack is what others have too
    much, and what is free."""
    lying = iter(free)
    return {one: list(islice(lying, max(due[one] - held[one], 0))) for one in held}


def _passed(since: Instant, length: Duration, now: Instant) -> bool:
    """Also when the clock went back."""
    return not since <= now < since + length
