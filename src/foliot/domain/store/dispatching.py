"""From durable promise to handed-off work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from foliot.domain.instant import Duration, Instant
from foliot.domain.lanes import DueKind
from foliot.domain.run import Lane
from foliot.domain.schedule import Armed, Rearming
from foliot.domain.store.values import (
    Arrivals,
    Cells,
    Decide,
    Fired,
    Lease,
    Standing,
)


class DispatchStore(Protocol):
    """From durable promise to handed-off work.

    Pending runs are spread over shards by their numbers (`shard_of`). Each shard is leased apart, so that any number of
    schedulers can share them; what one scheduler holds it renews, watches and fires together. Shards below zero have no
    runs: they are the duties that one instance does for all (see `Duty`), and are leased in the same way.
    """

    @property
    def shard_count(self) -> int:
        """How many shards the runs of this store are spread over; it never changes."""

    @property
    def lead(self) -> Duration:
        """How long before its time a run may be handed off, to be claimed no sooner than that; zero: not at all."""

    async def standing(self, owner: int, ttl: Duration) -> Standing:
        """Who has which shard, and who could. Says at the same time that the scheduler `owner` lives."""

    async def take(self, shard: int, owner: int, ttl: Duration) -> Lease | None:
        """Leases a shard that is free, whose lease has ended, or whose owner's process is known to be gone.

        The epoch rises, and everything the old owner still sends under its own is refused. None when somebody else
        holds it. The new lease has its high-water mark at the beginning of time: load everything.
        """

    async def renew(self, leases: Sequence[Lease], ttl: Duration, high_water: Instant) -> list[Lease]:
        """Prolongs leases of one owner, and may raise their high-water marks: from then on promises below are late
        arrivals. Returns those that are still held; what is missing was lost.

        Load the newly leased window with the cursor that `arrivals` had come to when the mark was raised: what lies
        at or below it is in the window's cells, what lies above is told by `arrivals`, and nothing by both.
        """

    async def release(self, leases: Sequence[Lease]) -> None:
        """Gives shards of one owner up at once, for whoever comes next. Nothing happens to what was lost already."""

    async def load(self, lease: Lease, start: tuple[Instant, int], limit: int, until: Instant | None = None) -> Cells:
        """Pending runs of a shard after `start` (fire time, number) and below its high-water mark, at most `limit`.
        Those before `until` only, where it is given: so the past is loaded apart from what is live.

        Leaves out what came after `lease.cursor`: `arrivals` tells that. Leaves out what hand-off chunks named already
        when the shard was taken, until a load of the past was exhausted; after that it may be told, and is claimed once
        all the same.
        """

    async def lane_rates(self) -> dict[Lane, float | None]:
        """How many runs of a lane the whole fleet of schedulers may hand off in a second. None, or no entry: any
        number. Can change at any time."""

    async def arrivals(self, leases: Sequence[Lease], cursor: int) -> Arrivals:
        """What became pending in these shards, below their marks, since `cursor`: new promises, moved ones, retries,
        releases. A cursor means something only to the store that gave it.

        Everything is told at least once, also when its transaction was open for long.
        """

    async def fire(
        self,
        leases: Sequence[Lease],
        due: Sequence[tuple[Instant, int]],
        cursor: int,
        decide: Decide,
        soon: Sequence[tuple[Instant, int]] = (),
        kind: DueKind = DueKind.LIVE,
    ) -> Fired:
        """One transaction: checks the epochs, refuses what the clock has not reached, hands off the rest in chunks.

        A run whose fire time is not the one given, or that is no longer pending, is stale and is passed over. Runs
        past their `useful_until` end as `skipped: too_late`. Runs of schedules are decided by `decide`, and each
        recurrence's next run is inserted here. `cursor`: arrivals up to there need not be told again.
        `soon` falls due within the store's `lead`. Of it, what nothing has to be decided about is handed off, too, and
        no claim takes it before its time has come by the store's clock; the rest is `patient`.
        `kind` says what all of these are, and so in which lane they are handed off: see `foliot.domain.lanes`.
        LostOwnership, with the shards in question, when an epoch is no longer the store's; then nothing was fired.
        """

    def look_ahead(self, leases: Sequence[Lease], decide: Decide) -> None:
        """A hint from the owner of these shards, at least once in `CALLED_FOR`: runs that fall due soon may be made
        ready for `fire`, which does with them what it would have done without. No other process sees that before.
        `decide` may be called with a time that is to come: that of the ticks."""

    async def computed_otherwise(self, tables: Sequence[str], after: str, limit: int) -> list[Armed]:
        """Schedules whose pending tick was computed with tables of the world, and with none of these releases of them;
        by id, those after `after`. An empty list means that there are no more."""

    async def rearm(self, rearmings: Sequence[Rearming]) -> int:
        """Moves pending ticks to where newer tables put them. Each names revision and tick: a schedule that was
        edited, or whose tick is due, handed off or decided by now, is passed over. Returns how many were moved; each
        of these leaves an event `tick_moved`."""
